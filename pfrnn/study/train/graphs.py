"""Steps captured as CUDA graphs and replayed.

The device's part of a step reads a few inputs, which are copied into memory that stays: sequence
numbers (M, N) and the random numbers, or the keys they derive from. Everything else already lies
in the same memory all the time: data, parameters, optimiser state, statistics, sums, counter.

The first step of a size runs eagerly, on the very buffers that the capture will read: kernels get
compiled and workspaces made, and the step counts like any other. The second one is captured, which
computes nothing, and replayed. Every size has its own graph: full batches, an epoch's last smaller
one, evaluation batches. All graphs share their memory and go with the population.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Any

import torch

from pfrnn.kernels.graph import Capture, RepeatedCall, form

log = logging.getLogger(__name__)

# Batches of unequal sequences are cut at one of so many lengths instead of their longest sequence.
# The added steps are padding, which changes no state, no statistic and no loss.
BUCKETS = 4


class Graphs:
    """Runs steps: eagerly at first, then as graphs.

    Args:
        make: records a call; :class:`pfrnn.kernels.graph.EagerCapture` tries the rest on a CPU.
    """

    def __init__(self, make: type[Capture]) -> None:
        self._make = make
        self._calls: dict[Hashable, RepeatedCall] = {}
        self._pool: Any = None
        self._captured = 0
        self._refused = ""

    @property
    def summary(self) -> str:
        """What became of the captures, for run.json."""
        if self._refused:
            return f"refused: {self._refused}"
        return f"captured: {self._captured} graphs"

    @property
    def refused(self) -> bool:
        """Whether a capture failed, and steps run eagerly from then on."""
        return bool(self._refused)

    def run(self, key: Hashable, step: Callable[..., Any], inputs: Any) -> Any:
        """Run ``step(*inputs)``; the result's tensors are written again by the next call.

        Args:
            key: tells steps apart that are not the same function of their inputs.
            step: see :class:`pfrnn.kernels.graph.CudaCapture`.
            inputs: nested tuples, lists and dicts of tensors.
        """
        if self._refused:
            return step(*inputs)
        full = (key, form(inputs))
        call = self._calls.get(full)
        if call is None:
            call = RepeatedCall(step, inputs)
            result = call.eagerly(inputs)
            # Only now: a step that failed leaves no call behind.
            self._calls[full] = call
            return result
        if not call.captured and not self._capture(call):
            return step(*inputs)
        return call.replay(inputs)

    def _capture(self, call: RepeatedCall) -> bool:
        """Record a call; where that fails, go on without graphs."""
        try:
            if self._pool is None:
                self._pool = self._make.pool()
            call.capture(self._make, self._pool)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever can't be captured can be computed
            self._refused = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            log.warning("CUDA graphs: %s; going on without", self._refused)
            self.release()
            return False
        self._captured += 1
        return True

    def release(self) -> None:
        """Free the graphs and their memory."""
        self._calls.clear()
        self._pool = None
