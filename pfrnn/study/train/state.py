"""All that a block's training remembers, and its way into a checkpoint and back."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch

from pfrnn.study.train.members import Member
from pfrnn.study.train.optimiser import Stacked
from pfrnn.study.train.population import Population


@dataclasses.dataclass
class MemberProgress:
    """How one member stands.

    Attributes:
        status: running, completed, early_stopped, diverged or halved.
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
        best: member index -> its best state (no member axis), once it has stopped.
        history: rows of history.csv so far.
        seconds: wall time of finished epochs and of sessions before this one.
        notes: what a reader of run.json should know (memory splits, resumes).
    """

    groups: list[Population]
    progress: list[MemberProgress]
    best: dict[int, tuple[Stacked, Stacked]] = dataclasses.field(default_factory=dict)
    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    notes: list[str] = dataclasses.field(default_factory=list)

    def to_plain(self, identity: str) -> dict[str, Any]:
        """Convert to tensors and plain data; ``identity`` ties it to its configuration."""
        return {
            "identity": identity,
            "groups": [group.to_plain() for group in self.groups],
            "progress": [dataclasses.asdict(one) for one in self.progress],
            "best": {index: list(state) for index, state in self.best.items()},
            "history": self.history,
            "seconds": self.seconds,
            "notes": self.notes,
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any], device: torch.device) -> BlockState:
        """Rebuild from a checkpoint."""
        return cls(
            groups=[Population.from_plain(group, device) for group in plain["groups"]],
            progress=[MemberProgress(**one) for one in plain["progress"]],
            best={index: (state[0], state[1]) for index, state in plain["best"].items()},
            history=plain["history"],
            seconds=plain["seconds"],
            notes=plain["notes"],
        )

    def retire(self, positions: Sequence[int]) -> None:
        """Keep the best state of the first group's members at ``positions``; drop them from it."""
        group = self.groups[0]
        for place in positions:
            stacks = (group.best_parameters, group.best_buffers)
            parameters, buffers = (
                {name: value[place].detach().cpu().clone() for name, value in stack.items()}
                for stack in stacks
            )
            self.best[group.members[place]] = (parameters, buffers)
        gone = set(positions)
        left = [place for place in range(len(group.members)) if place not in gone]
        if left:
            self.groups[0] = group.take(left)
        else:
            self.groups.pop(0)

    def split(self, sizes: Sequence[int] | None = None) -> None:
        """Split the group in progress: what follows waits until its first part has finished.

        Args:
            sizes: members of each part; None halves the group.
        """
        group = self.groups[0]
        count = len(group.members)
        sizes = sizes or [(count + 1) // 2, count // 2]
        ends = list(itertools.accumulate(sizes, initial=0))
        self.groups[:1] = [group.take(range(a, b)) for a, b in itertools.pairwise(ends)]


def stacked_best(state: BlockState, members: Sequence[Member]) -> tuple[Stacked, Stacked]:
    """Stack the members' best states again: parameters and buffers, (M, ...)."""
    chosen = [state.best[member.number] for member in members]
    return tuple(  # type: ignore[return-value]
        {name: torch.stack([one[kind][name] for one in chosen]) for name in chosen[0][kind]}
        for kind in (0, 1)
    )
