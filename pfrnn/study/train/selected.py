"""The selected search member's own test score: what a paper that prints one run may report.

It stands beside our finals and never among them: the member won on validation, so its score is
one draw from a selected run. It is read once, in the final stage, when nothing is left to choose.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from pfrnn.study.evaluate.metrics import contributions, metrics
from pfrnn.study.plan import Plan
from pfrnn.study.train.batches import DeviceSplit
from pfrnn.study.train.bestfile import read_best
from pfrnn.study.train.evaluate import evaluate
from pfrnn.study.train.job import Trained
from pfrnn.study.train.members import Member, search_members
from pfrnn.study.train.places import Places
from pfrnn.study.train.population import Population
from pfrnn.study.train.streaming import StreamedSplit


def selected_states(chosen: dict[str, Any], places: Places) -> dict[str, Any]:
    """Return the states that the chosen member's block kept (:func:`bestfile.read_best`).

    Raises:
        RecordError: they are missing, changed or damaged.
    """
    return read_best(places.results / chosen["block_id"])


def selected_member_metrics(
    plan: Plan,
    chosen: dict[str, Any],
    places: Places,
    trained: Trained,
    split: DeviceSplit | StreamedSplit,
    passes: int,
) -> dict[str, float]:
    """Test the chosen member's best state of the search, its metric averaged over the passes.

    Args:
        plan: the tier's plan.
        chosen: the selection's entry: block and member.
        places: where results lie.
        trained: the final, for its compute path and data; the member has the same network.
        split: the test split.
        passes: as for the final's own repetitions, with the same names of the noise.

    Raises:
        RecordError: the block's states are missing or damaged.
    """
    population, member = _member(plan, chosen, places, split.device)
    card, test = trained.prepared.card, trained.prepared.splits["test"]
    found: list[dict[str, float]] = []
    for number in range(passes):
        one = evaluate(trained.path, population, [member], split, ("test", number), True)
        found.append(metrics(contributions(card, one.prediction[0], test.y, test.mask)))
    return {name: float(np.mean([values[name] for values in found])) for name in found[0]}


def _member(
    plan: Plan, chosen: dict[str, Any], places: Places, device: torch.device
) -> tuple[Population, Member]:
    saved = selected_states(chosen, places)
    block, number = plan.block(chosen["block_id"]), int(chosen["member"])
    member = search_members(block.settings, plan.config.seed, block.dataset)[number]
    # A block keeps its best member, which is the chosen one if the block won.
    place = saved["members"]["number"].tolist().index(number)
    parameters, buffers = (
        {name: value[place : place + 1] for name, value in saved[kind].items()}
        for kind in ("parameters", "buffers")
    )
    return Population.of_best([number], parameters, buffers, device), member
