"""The selected search member's own test score: what a paper that prints one run may report.

It stands beside our finals and never among them: the member won on validation, so its score is
one draw from a selected run. It is read once, in the final stage, when nothing is left to choose.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pfrnn.study.data.base import Prepared
from pfrnn.study.evaluate.metrics import contributions, metrics
from pfrnn.study.plan import Plan
from pfrnn.study.train.batches import DeviceSplit
from pfrnn.study.train.evaluate import evaluate
from pfrnn.study.train.members import search_members
from pfrnn.study.train.path import PlainPath
from pfrnn.study.train.places import Places
from pfrnn.study.train.tables import read_best


def selected_member_metrics(
    plan: Plan,
    chosen: dict[str, Any],
    places: Places,
    path: PlainPath,
    prepared: Prepared,
    split: DeviceSplit,
    passes: int,
) -> dict[str, float]:
    """Test the chosen member's best weights of the search, its metric averaged over the passes.

    Args:
        plan: the tier's plan.
        chosen: the selection's entry: block and member.
        places: where results lie.
        path: the final's; the member has the same network.
        prepared: the final's data.
        split: the test split on the device.
        passes: as for the final's own repetitions, with the same names of the noise.

    Raises:
        RecordError: the block's weights are missing or damaged.
    """
    numbers, weights = read_best(places.results / chosen["block_id"])
    block, number = plan.block(chosen["block_id"]), int(chosen["member"])
    member = search_members(block.settings, plan.config.seed, block.dataset)[number]
    # A block keeps its best member, which is the chosen one if the block won.
    one = weights.only(numbers.index(number)).to(split.device)
    card, test = prepared.card, prepared.splits["test"]
    found: list[dict[str, float]] = []
    for index in range(passes):
        seen = evaluate(path, one, [member], split, ("test", index))
        found.append(metrics(contributions(card, seen.prediction[0], test.y, test.mask)))
    return {name: float(np.mean([values[name] for values in found])) for name in found[0]}
