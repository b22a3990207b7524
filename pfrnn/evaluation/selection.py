"""Choosing on validation data: which of a cell's members is retrained and tested."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from pfrnn.errors import RecordError


class Candidate(NamedTuple):
    """One trained member of the search, as far as the choice needs it.

    Attributes:
        block_id: its block.
        member: its number in the block.
        hidden_size: the block's hidden size.
        particles: the block's particles.
        batch_size: the block's batch size.
        learning_rate: its learning rate.
        clip: its bound on the gradient norm.
        l2: its L2 weight.
        status: as in members.csv.
        epochs: epochs it trained.
        best_epoch: epoch of its best validation score.
        val_score: best validation score, lower is better; NaN when it diverged at once.
        val_loss: validation loss at that epoch.
    """

    block_id: str
    member: int
    hidden_size: int
    particles: int
    batch_size: int
    learning_rate: float
    clip: float
    l2: float
    status: str
    epochs: int
    best_epoch: int
    val_score: float
    val_loss: float


def better(score: float, loss: float, best_score: float, best_loss: float) -> bool:
    """Whether (score, loss) beats the best so far; a tie in the score goes to the smaller loss."""
    if not math.isfinite(score):
        return False
    if score != best_score:
        return score < best_score
    return loss < best_loss


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate with the best validation score.

    Ties in score and loss go to the first in plan order, so the choice doesn't depend on the
    order in which jobs finished.

    Raises:
        RecordError: no candidate has a finite score.
    """
    best: Candidate | None = None
    for candidate in candidates:
        incumbent = (math.inf, math.inf) if best is None else (best.val_score, best.val_loss)
        if better(candidate.val_score, candidate.val_loss, *incumbent):
            best = candidate
    if best is None:
        raise RecordError(
            f"none of {len(candidates)} members has a finite validation score: all diverged; "
            "lower grid.learning_rate or look at the blocks' history.csv"
        )
    return best
