"""All that a block's training remembers, and its way into a checkpoint and back."""

from __future__ import annotations

import dataclasses
import logging
import math
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from pfrnn.study.files import atomic_path
from pfrnn.study.train.population import Population, Weights

log = logging.getLogger(__name__)


@dataclasses.dataclass
class MemberProgress:
    """How one member stands.

    Attributes:
        status: running, completed, early_stopped or diverged.
        epochs: epochs trained.
        best_epoch: epoch of the best validation score, 0 before the first finite one.
        score: best validation score (lower is better).
        loss: validation loss at that epoch.
        train_loss: training loss of that epoch.
        metrics: validation metrics at that epoch.
    """

    status: str = "running"
    epochs: int = 0
    best_epoch: int = 0
    score: float = math.inf
    loss: float = math.inf
    train_loss: float = math.nan
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class BlockState:
    """State of a block between two steps.

    Attributes:
        groups: populations still to train, the first one in progress. More than one only after
            running out of memory.
        progress: one entry a member.
        best: member index -> its best weights (no member axis), once it has stopped.
        history: rows of history.csv so far.
        seconds: wall time of finished epochs and of sessions before this one.
        notes: what a reader of run.json should know (memory splits).
    """

    groups: list[Population]
    progress: list[MemberProgress]
    best: dict[int, Weights] = dataclasses.field(default_factory=dict)
    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    notes: list[str] = dataclasses.field(default_factory=list)

    def retire(self, positions: Sequence[int]) -> None:
        """Drop the first group's members at ``positions``, and keep their best weights."""
        group = self.groups[0]
        for place in positions:
            self.best[group.members[place]] = group.best.at(place)
        left = [place for place in range(len(group.members)) if place not in positions]
        self.groups[:1] = [group.take(left)] if left else []

    def halve(self) -> None:
        """Split the group in progress: the second half waits until the first has finished."""
        group = self.groups[0]
        count = len(group.members)
        half = (count + 1) // 2
        self.groups[:1] = [group.take(range(half)), group.take(range(half, count))]


def save(path: Path, state: BlockState, identity: str) -> None:
    """Write a checkpoint.

    Args:
        path: the file.
        state: of the block.
        identity: digest of all that the numbers depend on.
    """
    plain = {
        "identity": identity,
        "groups": [group.to_plain() for group in state.groups],
        "progress": [dataclasses.asdict(one) for one in state.progress],
        "best": {index: list(weights) for index, weights in state.best.items()},
        "history": state.history,
        "seconds": state.seconds,
        "notes": state.notes,
    }
    with atomic_path(path) as temporary:
        torch.save(plain, temporary)


def load(path: Path, identity: str, device: torch.device) -> BlockState | None:
    """Read a checkpoint; None where there is none, or one that can't be gone on from.

    A damaged one, or one of another identity, is named in the log: training starts again, which
    costs time and no correctness.
    """
    try:
        plain = torch.load(path, weights_only=True, map_location="cpu")
    except FileNotFoundError:
        return None
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError) as error:
        log.warning("%s cannot be read (%s); training starts again", path, type(error).__name__)
        return None
    if plain["identity"] != identity:
        log.warning("%s is of other parameters, data or source; training starts again", path)
        return None
    # A warning, because a job's log should show it without any setting.
    log.warning("going on from %s", path)
    return BlockState(
        groups=[Population.from_plain(group, device) for group in plain["groups"]],
        progress=[MemberProgress(**one) for one in plain["progress"]],
        best={index: Weights(*weights) for index, weights in plain["best"].items()},
        history=plain["history"],
        seconds=plain["seconds"],
        notes=plain["notes"],
    )
