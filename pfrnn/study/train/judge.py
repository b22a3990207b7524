"""The end of an epoch: validation metrics, history rows, who improved and who stops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pfrnn.study.config import Training
from pfrnn.study.data.base import PreparedCard, Split
from pfrnn.study.evaluate.metrics import contributions, metrics, score
from pfrnn.study.evaluate.selection import better
from pfrnn.study.train.checkpoint import MemberProgress
from pfrnn.study.train.evaluate import Evaluated
from pfrnn.study.train.members import Member
from pfrnn.study.train.population import Population


class Verdict(NamedTuple):
    """What an epoch's end decides.

    Attributes:
        improved: for each live member, whether this is its best epoch so far.
        stopped: positions of members that stop.
        rows: their rows of history.csv.
    """

    improved: list[bool]
    stopped: list[int]
    rows: list[dict[str, Any]]


class Judge(NamedTuple):
    """Compares every live member with its best epoch.

    Attributes:
        card: the data set's card.
        validation: the validation split.
        training: when members stop.
    """

    card: PreparedCard
    validation: Split
    training: Training

    def __call__(
        self,
        group: Population,
        live: Sequence[Member],
        progress: Sequence[MemberProgress],
        passes: Sequence[Evaluated],
        seconds: float,
    ) -> Verdict:
        """Judge an epoch and update the members' entries in ``progress``.

        Args:
            group: the population; its sums of the epoch are read.
            live: its members, in stacked order.
            progress: an entry for every member of the block.
            passes: validation passes.
            seconds: wall time so far.
        """
        losses = np.mean([one.loss for one in passes], axis=0)
        sums = group.sums.double().cpu().numpy()
        finite = group.finite.cpu().numpy()
        verdict = Verdict([], [], [])
        for place, member in enumerate(live):
            entry, loss = progress[member.number], float(losses[place])
            values = self._metrics(passes, place)
            value = score(self.card.task, values)
            train_loss = float(sums[0, place] / sums[1, place])
            entry.epochs = group.epoch
            wins = bool(finite[place]) and better(value, loss, entry.score, entry.loss)
            if wins:
                entry.best_epoch, entry.score, entry.loss = group.epoch, value, loss
                entry.train_loss, entry.metrics = train_loss, values
            entry.status = self._status(entry, bool(finite[place]))
            if entry.status != "running":
                verdict.stopped.append(place)
            verdict.improved.append(wins)
            row = {
                "member": member.number,
                "epoch": group.epoch,
                "train_loss": train_loss,
                "val_loss": loss,
                "val_score": value,
                "gradient_norm": float(sums[2, place]) / group.step,
                "ess": float(np.mean([one.ess[place] for one in passes])),
                "unique_ancestors": float(np.mean([one.unique[place] for one in passes])),
                "learning_rate": member.setting.learning_rate,
                "seconds": round(seconds, 3),
            }
            verdict.rows.append(row | {f"val_{name}": number for name, number in values.items()})
        return verdict

    def _metrics(self, passes: Sequence[Evaluated], place: int) -> dict[str, float]:
        """Average a member's metrics over passes."""
        y, mask = self.validation.y, self.validation.mask
        each = [metrics(contributions(self.card, one.prediction[place], y, mask)) for one in passes]
        return {name: float(np.mean([one[name] for one in each])) for name in each[0]}

    def _status(self, entry: MemberProgress, finite: bool) -> str:
        if not finite:
            return "diverged"
        if entry.epochs >= self.training.max_epochs:
            return "completed"
        if entry.epochs - entry.best_epoch >= self.training.patience:
            return "early_stopped"
        return "running"
