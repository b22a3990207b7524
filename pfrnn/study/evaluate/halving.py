"""Successive halving over a block's members, and how often it would have picked the winner."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

# The better half goes on after an eighth, a quarter and half of the epochs.
FRACTIONS = (8, 4, 2)


def rungs(max_epochs: int) -> tuple[int, ...]:
    """Epochs after which members are dropped.

    Example:
        >>> rungs(200)
        (25, 50, 100)
    """
    return tuple(sorted({math.ceil(max_epochs / part) for part in FRACTIONS} - {max_epochs}))


def dropped(scores: Mapping[int, float]) -> list[int]:
    """Members of the worse half, by best validation score so far; at least one is kept.

    Ties are kept in the members' order, and a half is rounded in the members' favour.

    Example:
        >>> dropped({0: 3.0, 1: 1.0, 2: 2.0})
        [0]
    """
    ordered = sorted(scores, key=lambda member: (scores[member], member))
    return sorted(ordered[(len(ordered) + 1) // 2 :])


class Replay(NamedTuple):
    """What halving would have done with a fully trained block.

    Attributes:
        full: the full search's winner.
        halved: halving's winner, by the best score that each member reached before it was dropped.
        score: the full winner's score.
        regret: what the halved winner's score is worse than that, at least 0.
        share: epochs that halving would have trained, as a share of the full search's.
    """

    full: int
    halved: int
    score: float
    regret: float
    share: float


def replay(history: Sequence[Mapping[str, float]], max_epochs: int) -> Replay:
    """Replay halving on the history of a block that was trained without it.

    Args:
        history: rows with ``member``, ``epoch`` and ``val_score``.
        max_epochs: as the block was trained with.
    """
    curves: dict[int, dict[int, float]] = {}
    for row in history:
        curves.setdefault(int(row["member"]), {})[int(row["epoch"])] = float(row["val_score"])

    def best(member: int, until: int) -> float:
        seen = [score for epoch, score in curves[member].items() if epoch <= until]
        finite = [score for score in seen if math.isfinite(score)]
        return min(finite, default=math.inf)

    alive = sorted(curves)
    lengths = {member: max(curves[member]) for member in curves}
    spent = dict(lengths)
    for rung in rungs(max_epochs):
        # Members that stopped before the rung are out of the race but not dropped by it.
        racing = {member: best(member, rung) for member in alive if lengths[member] > rung}
        for member in dropped(racing):
            alive.remove(member)
            spent[member] = rung
    finals = {member: best(member, max_epochs) for member in curves}
    full = min(finals, key=lambda member: (finals[member], member))
    reached = {member: best(member, spent[member]) for member in curves}
    halved = min(reached, key=lambda member: (reached[member], member))
    share = sum(spent.values()) / sum(lengths.values())
    return Replay(full, halved, finals[full], reached[halved] - finals[full], share)
