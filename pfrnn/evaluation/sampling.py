"""The test set's own sampling error: what other test sequences would have changed."""

from __future__ import annotations

import math

import numpy as np

from pfrnn.evaluation.metrics import Contributions, metrics

SHARES = ("accuracy", "success")


def sampling_errors(table: Contributions, replicates: int, seed: int) -> dict[str, float]:
    """Standard error of every metric of a task that the finite test set leaves.

    Shares (accuracy, success): binomial. Others: bootstrap over whole sequences. A single
    sequence gives NaN.

    Args:
        table: contributions of every test sequence, averaged over passes.
        replicates: bootstrap replicates.
        seed: of the bootstrap; the same seed gives the same errors.
    """
    values = metrics(table)
    count = table.sequences
    if count < 2:
        return dict.fromkeys(values, math.nan)
    rng = np.random.default_rng(seed)
    drawn = [metrics(table, rng.integers(0, count, count)) for _ in range(replicates)]
    errors = {name: float(np.std([one[name] for one in drawn], ddof=1)) for name in values}
    for name in SHARES:
        if name in values:
            share = values[name] / 100.0
            errors[name] = 100.0 * math.sqrt(share * (1 - share) / count)
    return errors
