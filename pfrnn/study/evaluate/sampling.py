"""The test set's own sampling error: what other test sequences would have changed."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from pfrnn.study.data.base import Split, Task
from pfrnn.study.evaluate.metrics import Contributions, metrics

SHARES = ("accuracy", "success")
Labels = npt.NDArray[np.int64]


def overlapping_sequences(split: Split, task: Task) -> Labels:
    """Number the groups of sequences that share source rows, (N,), from 0.

    Overlapping windows of one recording are no independent items. Classification: all valid steps
    of a window count; otherwise the steps at which a prediction counts.
    """
    count, steps = split.rows.shape
    used = split.rows >= 0
    used &= np.arange(steps) < split.length[:, None] if task == "classification" else split.mask
    sequence = np.nonzero(used)[0]
    names, row = np.unique(split.rows[used], return_inverse=True)
    total = count + len(names)
    edges = coo_matrix((np.ones(len(row), np.int8), (sequence, count + row)), (total, total))
    labels: Labels = connected_components(edges, directed=False)[1][:count]
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def sampling_errors(
    table: Contributions, replicates: int, seed: int, groups: Labels | None = None
) -> dict[str, float]:
    """Standard error of every metric of a task that the finite test set leaves.

    Shares (accuracy, success): binomial. Others: bootstrap over whole sequences. Where sequences
    overlap, whole groups are drawn, with the factor sqrt(G / (G - 1)) for G groups, and a share's
    error is the larger of that and the binomial one. A single sequence or group gives NaN.

    Args:
        table: contributions of every test sequence, averaged over passes.
        replicates: bootstrap replicates.
        seed: of the bootstrap; the same seed gives the same errors.
        groups: (N,) as from ``overlapping_sequences``; None: every sequence is its own.
    """
    values = metrics(table)
    count = table.sequences
    labels = np.arange(count) if groups is None else groups
    distinct = int(labels.max(initial=-1)) + 1
    if distinct < 2:
        return dict.fromkeys(values, math.nan)
    members = np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))[:-1])
    grouped = distinct < count
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(replicates):
        chosen = rng.integers(0, distinct, distinct)
        rows = np.concatenate([members[group] for group in chosen]) if grouped else chosen
        drawn.append(metrics(table, rows))
    factor = math.sqrt(distinct / (distinct - 1)) if grouped else 1.0
    errors = {name: factor * float(np.std([one[name] for one in drawn], ddof=1)) for name in values}
    for name in SHARES:
        if name in values:
            share = values[name] / 100.0
            binomial = 100.0 * math.sqrt(share * (1 - share) / count)
            errors[name] = max(errors[name], binomial) if grouped else binomial
    return errors
