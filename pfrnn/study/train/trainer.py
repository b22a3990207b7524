"""The training loop of a block: epochs, validation, early stopping, divergence, checkpoints."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pfrnn.study.config import Config
from pfrnn.study.data.base import PreparedCard, Split
from pfrnn.study.train import checkpoint, members
from pfrnn.study.train.batches import DeviceSplit, epoch_orders
from pfrnn.study.train.checkpoint import BlockState, MemberProgress
from pfrnn.study.train.evaluate import Evaluated, evaluate
from pfrnn.study.train.interrupt import StoppedError, stop_requests
from pfrnn.study.train.judge import Judge
from pfrnn.study.train.members import Member
from pfrnn.study.train.optimiser import Hyper
from pfrnn.study.train.path import PlainPath
from pfrnn.study.train.population import Population, new_population
from pfrnn.study.train.progress import progress_bar
from pfrnn.study.train.tables import write_history

log = logging.getLogger(__name__)

# Seconds between two versions of a running block's history.csv.
_HISTORY_SECONDS = 10.0


class Problem(NamedTuple):
    """Everything of a block but its members.

    Attributes:
        config: the data set's configuration.
        card: the data set's card.
        train: training split, on the device.
        validation: validation split, likewise.
        host_validation: the same on the host, for the metrics.
        batch_size: sequences a step.
    """

    config: Config
    card: PreparedCard
    train: DeviceSplit
    validation: DeviceSplit
    host_validation: Split
    batch_size: int


class BlockTrainer:
    """Trains the members of one block; state lives in ``self.state``.

    It starts, or goes on from the checkpoint.

    Args:
        problem: data and settings.
        path: computes the steps.
        block_members: the members; ``member.number`` is the position in this sequence.
        folder: where history.csv and checkpoint.pt go. With ``PFRNN_CHECKPOINTS`` the checkpoint
            lies in a folder below it that is named by the identity: where a job's own disk ends
            with it (Kubernetes), a lasting one.
        identity: digest of all the numbers depend on; a checkpoint of another isn't used.
    """

    def __init__(
        self,
        problem: Problem,
        path: PlainPath,
        block_members: Sequence[Member],
        folder: Path,
        identity: str,
    ) -> None:
        self.problem = problem
        self.path = path
        self.members = list(block_members)
        self.folder = folder
        self.identity = identity
        self.device = problem.train.device
        lasting = os.environ.get("PFRNN_CHECKPOINTS")
        self.checkpoint_path = (Path(lasting) / identity if lasting else folder) / "checkpoint.pt"
        self.state = checkpoint.load(self.checkpoint_path, identity, self.device) or BlockState(
            groups=[new_population(path.build, self.members, self.device)],
            progress=[MemberProgress() for _ in self.members],
        )
        self._judge = Judge(problem.card, problem.host_validation, problem.config.training)
        self._hyper: Hyper | None = None
        self._saved = self._published = self._clock = time.monotonic()

    def run(self) -> BlockState:
        """Train until every member has stopped; the end is saved too, for the work that follows.

        Raises:
            StoppedError: a signal asked to stop; the state is saved.
        """
        steps = math.ceil(self.problem.train.sequences / self.problem.batch_size)
        total = steps * self.problem.config.training.max_epochs
        done = sum(group.updates for group in self.state.groups[:1])
        label = "/".join(self.folder.parts[-3:])
        with stop_requests() as asked, progress_bar(label, total, done) as bar:
            self._saved = self._clock = time.monotonic()
            while self.state.groups:
                try:
                    self._epoch(asked, bar)
                except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
                    self._halve(error)
        self.save()
        self.path.release()
        return self.state

    def seconds(self) -> float:
        """Wall time of the training so far, over all sessions."""
        return self.state.seconds + time.monotonic() - self._clock

    def live(self) -> list[Member]:
        """Members of the group in progress."""
        return [self.members[index] for index in self.state.groups[0].members]

    def save(self) -> None:
        """Write the checkpoint and the history so far."""
        self.state.seconds, self._clock = self.seconds(), time.monotonic()
        checkpoint.save(self.checkpoint_path, self.state, self.identity)
        write_history(self.folder / "history.csv", self.state.history)

    def _epoch(self, asked: Sequence[int], bar: Any) -> None:
        """Do what is left of the first group's epoch, then validate."""
        group, live, train = self.state.groups[0], self.live(), self.problem.train
        if self._hyper is None:
            self._hyper = members.hyper(live, self.device)
        orders = epoch_orders(live, group.epoch, train.sequences)
        for rows in train.batches(orders, self.problem.batch_size, group.step):
            self.path.train_on(group, live, self._hyper, train, rows)
            bar.update()
            self._pause(asked)
        self._end_epoch(group, live)
        best = min(one.score for one in self.state.progress)
        note = f"epoch {group.epoch - 1}, {len(live)} live, best {best:.5g}"
        bar.set_postfix_str(note, refresh=False)
        self._pause(asked)

    def _end_epoch(self, group: Population, live: Sequence[Member]) -> None:
        """Validate, write history rows, remember the best weights, retire who has stopped."""
        passes = self.validate(group, live)
        verdict = self._judge(group, live, self.state.progress, passes, self.seconds())
        self.state.history += verdict.rows
        self._publish()
        group.remember_best(torch.tensor(verdict.improved, device=self.device))
        group.start_epoch()
        if verdict.stopped:
            self.state.retire(verdict.stopped)
            self._forget()

    def validate(self, group: Population, live: Sequence[Member]) -> list[Evaluated]:
        """Evaluate on validation data with the same noise in every epoch."""
        passes = self.problem.config.training.validation_passes if self.path.stochastic else 1
        validation = self.problem.validation
        return [
            evaluate(self.path, group.current, live, validation, ("validation", number))
            for number in range(passes)
        ]

    def _halve(self, error: BaseException) -> None:
        """Go on with half of the population after running out of memory; else raise again."""
        words = str(error)
        memory = isinstance(error, torch.OutOfMemoryError | MemoryError) or (
            "can't allocate memory" in words or "out of memory" in words
        )
        count = len(self.state.groups[0].members)
        if not memory or count < 2:
            raise error
        self.state.halve()
        self._forget()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        note = f"out of memory with {count} members side by side; going on with half of them"
        self.state.notes.append(note)
        log.warning(note)

    def _forget(self) -> None:
        """Drop what belongs to a population that is no more."""
        self._hyper = None
        self.path.release()

    def _pause(self, asked: Sequence[int]) -> None:
        """Save when it is time to, or when a signal came."""
        now = time.monotonic()
        due = now - self._saved >= 60 * self.problem.config.execution.checkpoint_minutes
        if not due and not asked:
            return
        self.save()
        self._saved = time.monotonic()
        if asked:
            raise StoppedError(asked[0], str(self.checkpoint_path))

    def _publish(self) -> None:
        """Write history.csv now and then, so that a block in training can be watched."""
        if time.monotonic() - self._published >= _HISTORY_SECONDS:
            write_history(self.folder / "history.csv", self.state.history)
            self._published = time.monotonic()
