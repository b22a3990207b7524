"""The end of an epoch: validation metrics, history rows, who improved and who stops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pfrnn.study.evaluate.halving import dropped, rungs
from pfrnn.study.evaluate.metrics import contributions, metrics, score
from pfrnn.study.evaluate.selection import better
from pfrnn.study.train.evaluate import Evaluated
from pfrnn.study.train.members import Member
from pfrnn.study.train.population import Population
from pfrnn.study.train.problem import Problem
from pfrnn.study.train.state import MemberProgress


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


def judge(
    problem: Problem,
    group: Population,
    live: Sequence[Member],
    progress: Sequence[MemberProgress],
    passes: Sequence[Evaluated],
    seconds: float,
) -> Verdict:
    """Compare every live member with its best epoch; update its entry in ``progress``.

    Args:
        problem: data and settings.
        group: the population; its sums of the epoch are read.
        live: its members, in stacked order.
        progress: an entry for every member of the block.
        passes: validation passes.
        seconds: wall time so far.
    """
    loss = np.mean([one.loss for one in passes], axis=0)
    sums = group.sums.double().cpu().numpy()
    finite = group.finite.cpu().numpy()
    verdict = Verdict([], [], [])
    for place, member in enumerate(live):
        entry = progress[member.number]
        values = _metrics(problem, passes, place)
        value = score(problem.card.task, values)
        train_loss = float(sums[0, place] / sums[1, place])
        entry.epochs = group.epoch
        wins = bool(finite[place]) and better(value, float(loss[place]), entry.score, entry.loss)
        if wins:
            entry.best_epoch, entry.score, entry.loss = group.epoch, value, float(loss[place])
            entry.train_loss, entry.metrics = train_loss, values
        entry.status = _status(problem, entry, bool(finite[place]))
        if entry.status != "running":
            verdict.stopped.append(place)
        verdict.improved.append(wins)
        row = {
            "member": member.number,
            "epoch": group.epoch,
            "train_loss": train_loss,
            "val_loss": float(loss[place]),
            "val_score": value,
            "gradient_norm": float(sums[2, place]) / group.step,
            "ess": float(np.mean([one.ess[place] for one in passes])),
            "unique_ancestors": float(np.mean([one.unique[place] for one in passes])),
            "learning_rate": member.setting.learning_rate,
            "seconds": round(seconds, 3),
        }
        verdict.rows.append(row | {f"val_{name}": number for name, number in values.items()})
    verdict.stopped.extend(_halved(problem, group, progress, verdict.stopped))
    return verdict


def _metrics(problem: Problem, passes: Sequence[Evaluated], place: int) -> dict[str, float]:
    """Average the metrics over passes."""
    split = problem.host_validation
    each = [
        metrics(contributions(problem.card, one.prediction[place], split.y, split.mask))
        for one in passes
    ]
    return {name: float(np.mean([one[name] for one in each])) for name in each[0]}


def _status(problem: Problem, entry: MemberProgress, finite: bool) -> str:
    training = problem.config.training
    if not finite:
        return "diverged"
    if entry.epochs >= training.max_epochs:
        return "completed"
    if entry.epochs - entry.best_epoch >= training.patience:
        return "early_stopped"
    return "running"


def _halved(
    problem: Problem,
    group: Population,
    progress: Sequence[MemberProgress],
    stopped: Sequence[int],
) -> list[int]:
    """Positions of members that successive halving drops after this epoch."""
    if not problem.halving or group.epoch not in rungs(problem.config.training.max_epochs):
        return []
    places = dropped(
        {
            place: progress[index].score
            for place, index in enumerate(group.members)
            if place not in stopped
        }
    )
    for place in places:
        progress[group.members[place]].status = "halved"
    return places
