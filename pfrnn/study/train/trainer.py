"""The training loop of a block: epochs, validation, early stopping, divergence, checkpoints."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from pfrnn.study.train import checkpoint, footprint, members
from pfrnn.study.train.batches import epoch_orders
from pfrnn.study.train.contract import ComputePath
from pfrnn.study.train.evaluate import EVALUATION_BATCH, Evaluated, evaluate
from pfrnn.study.train.interrupt import StoppedError, StopRequest
from pfrnn.study.train.judge import judge
from pfrnn.study.train.members import Member
from pfrnn.study.train.optimiser import Hyper
from pfrnn.study.train.placement import step_bytes
from pfrnn.study.train.population import Population, new_population
from pfrnn.study.train.problem import Problem
from pfrnn.study.train.progress import Progress
from pfrnn.study.train.state import BlockState, MemberProgress
from pfrnn.study.train.writers import write_history

log = logging.getLogger(__name__)

# Seconds between two versions of a running block's history.csv.
_HISTORY_SECONDS = 10.0


class BlockTrainer:
    """Trains the members of one block; state lives in ``self.state``."""

    def __init__(
        self,
        problem: Problem,
        path: ComputePath,
        block_members: Sequence[Member],
        folder: Path,
        identity: str,
    ) -> None:
        """Start, or go on from the checkpoint in ``folder``.

        Args:
            problem: data and settings.
            path: computes the steps.
            block_members: the members; ``member.number`` is the position in this sequence.
            folder: where checkpoint.pt and history.csv go.
            identity: digest of all the numbers depend on; a checkpoint of another isn't used.
        """
        self.problem = problem
        self.path = path
        self.members = list(block_members)
        self.folder = folder
        self.identity = identity
        self.device = problem.train.device
        self.state = self._restore() or self._begin()
        self._hyper: Hyper | None = None
        self._saved = self._published = self._clock = time.monotonic()

    def _begin(self) -> BlockState:
        """Initialise all members, in as many groups as the device's memory asks for."""
        state = BlockState(
            groups=[new_population(self.path.build, self.members, self.device)],
            progress=[MemberProgress() for _ in self.members],
        )
        each, available = self._footprint(state.groups[0])
        sizes = footprint.group_sizes(len(self.members), each, available)
        if len(sizes) > 1:
            state.split(sizes)
            note = (
                f"{len(self.members)} members need about {each * len(self.members) / 2**30:.2g} "
                f"GiB, more than there is; trained in {len(sizes)} groups"
            )
            state.notes.append(note)
            log.warning(note)
        return state

    def _footprint(self, population: Population) -> tuple[int, int | None]:
        """Bytes that each member needs, buffers of streamed data included, and that there are."""
        problem, train = self.problem, self.problem.train
        each = step_bytes(
            self.path,
            min(problem.batch_size, train.sequences),
            train.longest,
            sum(value[0].numel() for value in population.parameters.values()),
        )
        each += train.member_bytes(problem.batch_size)
        each += problem.validation.member_bytes(EVALUATION_BATCH)
        held = train.fixed_bytes + problem.validation.fixed_bytes
        return each, footprint.room(self.device, held)

    @property
    def checkpoint_path(self) -> Path:
        """Where the state is saved.

        Beside the records, or in a folder below ``PFRNN_CHECKPOINTS`` that is named by all the
        numbers depend on: where a job's own disk ends with it (Kubernetes), a lasting one.
        """
        lasting = os.environ.get("PFRNN_CHECKPOINTS")
        return (Path(lasting) / self.identity if lasting else self.folder) / "checkpoint.pt"

    def _restore(self) -> BlockState | None:
        path = self.checkpoint_path
        plain = checkpoint.load(path)
        if plain is not None and plain["identity"] != self.identity:
            kept = checkpoint.set_aside(path, plain["identity"])
            log.warning(
                "%s was of other parameters, data or source (%s, expected %s); it is kept as %s "
                "for a job that has those, delete it if there will be none",
                path,
                plain["identity"],
                self.identity,
                kept.name,
            )
            plain = None
        if plain is None:
            checkpoint.take_back(path, self.identity)
            plain = checkpoint.load(path)
        if plain is None:
            return None
        state = BlockState.from_plain(plain, self.device)
        # A warning, because a job's log should show it without any setting.
        log.warning("going on from %s", path)
        return state

    def save(self) -> None:
        """Write the checkpoint and the history so far."""
        checkpoint.save(self.checkpoint_path, self.state.to_plain(self.identity))
        write_history(self.folder / "history.csv", self.state.history)

    def seconds(self) -> float:
        """Wall time of the training so far, over all sessions."""
        return self.state.seconds + time.monotonic() - self._clock

    def live(self) -> list[Member]:
        """Members of the group in progress."""
        return [self.members[index] for index in self.state.groups[0].members]

    def run(self) -> BlockState:
        """Train until every member has stopped; the end is saved too, for the work that follows.

        Raises:
            StoppedError: a signal asked to stop; the state is saved.
        """
        training = self.problem.config.training
        steps = math.ceil(self.problem.train.sequences / self.problem.batch_size)
        done = sum(group.updates for group in self.state.groups[:1])
        label = "/".join(self.folder.parts[-3:])
        with StopRequest() as request, Progress(label, steps * training.max_epochs, done) as bar:
            self._saved = self._clock = time.monotonic()
            while self.state.groups:
                try:
                    self._epoch(request, bar)
                except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
                    self._halve(error)
        self._release_data()
        self._keep()
        self.save()
        return self.state

    def _release_data(self) -> None:
        """Give up buffers of streamed data, which are as large as the population was."""
        self.problem.train.release()
        self.problem.validation.release()

    def _keep(self) -> None:
        """Add the time since the last look at the clock to the state's."""
        now = time.monotonic()
        self.state.seconds += now - self._clock
        self._clock = now

    def _halve(self, error: BaseException) -> None:
        """Go on with half of the population after running out of memory; else raise again."""
        memory = isinstance(error, torch.OutOfMemoryError | MemoryError) or (
            "can't allocate memory" in str(error) or "out of memory" in str(error)
        )
        count = len(self.state.groups[0].members)
        if not memory or count < 2:
            raise error
        self.state.split()
        self._hyper = None
        self.path.release()
        self._release_data()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        note = f"out of memory with {count} members side by side; going on with half of them"
        self.state.notes.append(note)
        log.warning(note)

    def _epoch(self, request: StopRequest, bar: Progress) -> None:
        """Do what is left of the first group's epoch, then validate."""
        group = self.state.groups[0]
        live = self.live()
        if self._hyper is None:
            self._hyper = members.hyper(live, self.device)
        problem = self.problem
        orders = epoch_orders(live, group.epoch, problem.train.sequences)
        for split, rows in problem.train.batches(orders, problem.batch_size, group.step):
            self.path.train_on(group, live, self._hyper, split, rows)
            bar.step()
            self._pause(request)
        self._end_epoch(group, live)
        if self.state.groups:
            best = min(one.score for one in self.state.progress)
            current = self.state.groups[0]
            bar.note(current.epoch, len(current.members), best)
        self._pause(request)

    def _pause(self, request: StopRequest) -> None:
        """Save when it is time to, or when a signal came."""
        now = time.monotonic()
        due = now - self._saved >= 60 * self.problem.config.execution.checkpoint_minutes
        if not due and request.signal is None:
            return
        self._keep()
        self.save()
        self._saved = time.monotonic()
        if request.signal is not None:
            raise StoppedError(request.signal, str(self.checkpoint_path))

    def validate(self, group: Population, live: Sequence[Member]) -> list[Evaluated]:
        """Evaluate on validation data with the same noise in every epoch."""
        passes = self.problem.config.training.validation_passes if self.path.stochastic else 1
        return [
            evaluate(self.path, group, live, self.problem.validation, ("validation", number))
            for number in range(passes)
        ]

    def _end_epoch(self, group: Population, live: Sequence[Member]) -> None:
        """Validate, write history rows, remember the best states, retire who has stopped."""
        passes = self.validate(group, live)
        verdict = judge(self.problem, group, live, self.state.progress, passes, self.seconds())
        self.state.history += verdict.rows
        self._publish()
        group.remember_best(torch.tensor(verdict.improved, device=self.device))
        group.epoch += 1
        group.start_epoch()
        if verdict.stopped:
            self.state.retire(verdict.stopped)
            self._hyper = None

    def _publish(self) -> None:
        """Write history.csv now and then, so that a block in training can be watched."""
        if time.monotonic() - self._published >= _HISTORY_SECONDS:
            write_history(self.folder / "history.csv", self.state.history)
            self._published = time.monotonic()
