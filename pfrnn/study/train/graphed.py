"""A compute path whose steps are captured as CUDA graphs and replayed.

The device's part of a step (``PlainPath.step``, ``PlainPath.evaluate``, with the gather in front
and the reduction behind) reads a few inputs, which are copied into memory that stays: sequence
numbers (M, N) and the random numbers, or the keys they derive from. Everything else already lies
in the same memory all the time: data, parameters, optimiser state, statistics, sums, counter.

The first step of a size runs eagerly, on the very buffers that the capture will read: kernels get
compiled and workspaces made, and the step counts like any other. The second one of that size is
run eagerly too, then captured, which computes nothing, and replayed once on the same state: where
the replay gives other numbers, or the capture fails, the path goes on without graphs. Whatever
happens, the eager step is the one that counts, so no warm-up has to be undone.

Every size has its own graph: full batches, an epoch's last smaller one (it would otherwise be the
slowest step of an epoch), evaluation batches. Batches of unequal lengths are cut at one of
``BUCKETS`` lengths instead of their longest sequence; the added steps are padding, which changes
no state, no statistic and no loss (where it would move the cuts of a truncated gradient, nothing
is added). All graphs share their memory and go with the population.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pfrnn.kernels.graph import Capture, RepeatedCall, form
from pfrnn.study.config import Training
from pfrnn.study.train.batches import Cut, DeviceSplit, Rows, cut_of, outline, take, widened
from pfrnn.study.train.loss import LossWeights
from pfrnn.study.train.members import Member
from pfrnn.study.train.networks import NetworkSpec
from pfrnn.study.train.optimiser import Hyper
from pfrnn.study.train.path import PlainPath
from pfrnn.study.train.population import Population
from pfrnn.study.train.scores import Scores, scores

log = logging.getLogger(__name__)

# Lengths at which batches of unequal sequences may be cut.
BUCKETS = 4
# Two splits, full and last batches, each bucket: more sizes than that run without a graph.
MOST = 32
# A replay may differ from the eager step by rounding, which moves single ancestors.
TOLERANCE = 1e-2


class GraphedPath:
    """Another path's steps, replayed.

    Args:
        inner: computes the steps.
        make: records a call; :class:`pfrnn.kernels.graph.EagerCapture` tries the rest on a CPU.
    """

    def __init__(self, inner: PlainPath, make: type[Capture]) -> None:
        self.inner = inner
        self._make = make
        self._calls: dict[tuple[Any, ...], RepeatedCall] = {}
        self._owner: Population | None = None
        self._hyper: Hyper | None = None
        self._way = inner.name
        self._pool: Any = None
        self._refused: str | None = None
        self._captured = 0
        self._left_out = ""

    @property
    def name(self) -> str:
        """The inner path's."""
        return self.inner.name

    @property
    def reason(self) -> str:
        """The inner path's."""
        return self.inner.reason

    @property
    def stochastic(self) -> bool:
        """The inner path's."""
        return self.inner.stochastic

    @property
    def spec(self) -> NetworkSpec:
        """The inner path's."""
        return self.inner.spec

    @property
    def weights(self) -> LossWeights:
        """The inner path's."""
        return self.inner.weights

    @property
    def training(self) -> Training:
        """The inner path's."""
        return self.inner.training

    @property
    def graph(self) -> str:
        """What became of the captures, for run.json."""
        if self._refused is not None:
            return f"refused: {self._refused}"
        if self._captured == 0:
            return "none captured: no step was repeated"
        return f"captured: {self._captured} graphs{self._left_out}"

    def build(self) -> nn.Module:
        """Make one freshly initialised model."""
        return self.inner.build()

    def release(self) -> None:
        """Free the graphs and their memory."""
        self._calls.clear()
        self._owner = self._hyper = self._pool = None
        self.inner.release()

    def train_on(
        self,
        population: Population,
        members: Sequence[Member],
        hyper: Hyper,
        split: DeviceSplit,
        rows: Rows,
    ) -> None:
        """Update ``population`` in place."""
        if self._refused is not None:
            self.inner.train_on(population, members, hyper, split, rows)
            return
        self._follow(population, hyper)
        inner, cut = self.inner, self._cut(split, rows)
        axes = ("train", population.epoch, population.step)

        def step(index: Tensor, randomness: Any) -> None:
            inner.step(population, hyper, take(split, index, cut), randomness, asks=False)

        def work() -> None:
            batch = outline(split, rows, cut)
            inputs = (rows.device, inner._training_randomness(members, axes, batch))
            key = ("train", id(split), cut.steps, cut.padded)
            self._run(key, step, inputs, population)

        inner.attempt(work)
        population.count_step()

    def score_on(
        self,
        population: Population,
        members: Sequence[Member],
        split: DeviceSplit,
        rows: Rows,
        axes: Sequence[str | int],
        best: bool,
    ) -> Scores:
        """Evaluate; the result's tensors are written again by the next call."""
        if self._refused is not None:
            return self.inner.score_on(population, members, split, rows, axes, best)
        self._follow(population, None)
        inner, cut = self.inner, self._cut(split, rows)

        def step(index: Tensor, randomness: Any) -> Scores:
            batch = take(split, index, cut)
            predicted = inner.evaluate(population, batch, randomness, best)
            with inner.beside():
                return scores(predicted, batch, split)

        def work() -> Scores:
            batch = outline(split, rows, cut)
            inputs = (rows.device, inner._evaluation_randomness(members, axes, batch))
            key = ("score", id(split), cut.steps, cut.padded, best)
            found: Scores = self._run(key, step, inputs, None)
            return found

        return inner.attempt(work)

    def _follow(self, population: Population, hyper: Hyper | None) -> None:
        """Drop the graphs of another population, of other settings, or of kernels that failed."""
        other = hyper is not None and self._hyper is not None and hyper is not self._hyper
        if population is not self._owner or other or self._way != self.inner.name:
            self.release()
            self._owner, self._way = population, self.inner.name
        if hyper is not None:
            self._hyper = hyper

    def _cut(self, split: DeviceSplit, rows: Rows) -> Cut:
        longest = split.longest
        if longest > self.spec.bptt:
            # Where the gradient is cut in between, added steps would cut it for ended sequences.
            return cut_of(split, rows)
        return widened(cut_of(split, rows), -(-longest // BUCKETS), longest)

    def _run(
        self,
        key: tuple[Any, ...],
        step: Callable[..., Any],
        inputs: Any,
        trained: Population | None,
    ) -> Any:
        """Run a step: eagerly at first, then captured."""
        full = (*key, form(inputs))
        call = self._calls.get(full)
        if call is not None and call.captured:
            return call.replay(inputs)
        if call is None and len(self._calls) < MOST:
            call = RepeatedCall(step, inputs)
            result = self._eagerly(call, inputs)
            # Only now: a step that failed leaves no call behind.
            self._calls[full] = call
            return result
        if call is None:
            return step(*inputs)
        if not call.capturable:
            return self._eagerly(call, inputs)
        return self._first_replay(call, inputs, trained)

    def _eagerly(self, call: RepeatedCall, inputs: Any) -> Any:
        """Run a step; the graphs' memory makes way for it where it must."""
        try:
            return call.eagerly(inputs)
        except torch.OutOfMemoryError:
            if self._pool is None:
                raise
        for one in self._calls.values():
            one.forget()
        self._pool = None
        return call.eagerly(inputs)

    def _first_replay(self, call: RepeatedCall, inputs: Any, trained: Population | None) -> Any:
        """Run eagerly, capture, replay on the same state and compare; the eager step counts.

        This waits for the device, once a graph.
        """
        state = [] if trained is None else trained.trained()
        before = [value.clone() for value in state]
        result = self._eagerly(call, inputs)
        expected = _fingerprint(result, trained, before)
        after = [value.clone() for value in state]
        try:
            if self._pool is None:
                self._pool = self._make.pool()
            call.capture(self._make, self._pool)
            _restore(state, before)
            found = _fingerprint(call.replay(inputs), trained, before)
        except torch.OutOfMemoryError:
            call.forget()
            call.capturable = False
            self._left_out = ", some sizes left out: out of memory"
            log.warning("CUDA graphs: no memory to capture a step; it runs without")
        except Exception as error:  # whatever can't be captured can be computed
            self._refuse(f"{type(error).__name__}: {error}")
        else:
            self._captured += 1
            if not torch.allclose(found, expected, rtol=TOLERANCE, atol=1e-6, equal_nan=True):
                self._refuse("a replay gave other numbers than the step it was captured from")
        _restore(state, after)
        return result

    def _refuse(self, why: str) -> None:
        """Go on without graphs."""
        self._refused = " ".join(why.split())[:200]
        log.warning("CUDA graphs: %s; going on without", self._refused)
        self._calls.clear()
        self._owner = self._hyper = self._pool = None


def _restore(state: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for old, value in zip(state, values, strict=True):
        old.copy_(value)


def _fingerprint(result: Any, trained: Population | None, before: Sequence[Tensor]) -> Tensor:
    """Numbers by which two runs of a step are compared.

    An evaluation's sums; of a training step the losses and gradient norms, the count, and how far
    all parameters have moved together. A single one may go either way where its gradient is zero
    but for rounding.
    """
    if trained is None:
        found: Tensor = result.sums.flatten().clone()
        return found
    # The parameters are the first of what a step writes.
    moved = [
        (new - old).double().square().sum()
        for new, old in zip(trained.parameters.values(), before, strict=False)
    ]
    return torch.cat(
        [
            torch.stack(moved).sum().sqrt()[None],
            trained.clock.double()[None],
            trained.sums.double().flatten(),
        ]
    )
