"""Steps as CUDA graphs: captured once, replayed without launching from Python."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

log = logging.getLogger(__name__)


class Capture(Protocol):
    """A recorded call: ``replay`` does its work again on the same memory.

    Attributes:
        result: what the call returned; its tensors hold the last replay's numbers.
    """

    result: Any

    def __init__(self, call: Callable[[], Any], pool: Any = None) -> None:
        """Record ``call()``."""

    def replay(self) -> None:
        """Do the call's work."""

    @staticmethod
    def pool() -> Any:
        """Make memory that several recordings can share."""


class CudaCapture:
    """Records ``call()`` into a CUDA graph. Recording runs nothing: no number changes.

    Args:
        call: reads and writes tensors in the same memory each time, and never waits for the host
            (no ``.item()``, no shape that depends on data, no tensor made from numbers on the
            host). It must have run before, so that kernels are compiled and workspaces made.
        pool: memory that several recordings share, of :meth:`pool`: what one leaves there, its
            ``result`` too, lasts until the next replay of any.

    Raises:
        RuntimeError: the call did what can't be recorded; the stream is as it was.
    """

    def __init__(self, call: Callable[[], Any], pool: Any = None) -> None:
        self.graph = torch.cuda.CUDAGraph()
        current = torch.cuda.current_stream()
        collecting = gc.isenabled()
        # A collection in between could free another graph, which isn't allowed while recording.
        gc.collect()
        gc.disable()
        try:
            with torch.cuda.graph(self.graph, pool=pool):
                self.result = call()
        except BaseException:
            _end_recording(pool)
            raise
        finally:
            if collecting:
                gc.enable()
            # A recording that failed leaves its own stream current.
            torch.cuda.set_stream(current)

    def replay(self) -> None:
        """Launch the graph."""
        self.graph.replay()

    @staticmethod
    def pool() -> Any:
        """Make memory that several recordings can share."""
        return torch.cuda.graph_pool_handle()


def _end_recording(pool: Any) -> None:
    """Tell torch's allocator that a recording into ``pool`` has ended, if it doesn't know.

    Where the driver refuses to end a recording that failed, torch raises before it tells its
    allocator: the pool's memory would never be free again, and the next attempt to free cached
    memory would end in an internal error. torch's own graph trees clean up by the same calls.
    """
    end = getattr(torch._C, "_cuda_endAllocateToPool", None)
    release = getattr(torch._C, "_cuda_releasePool", None)
    if end is None or release is None or pool is None:
        return
    device = torch.cuda.current_device()
    try:
        end(device, pool)
        release(device, pool)
    except RuntimeError as error:
        # The usual case: torch had told it.
        log.debug("the allocator wasn't recording: %s", error)


class EagerCapture:
    """Stands in for a CUDA graph where there is none: a replay calls the function again.

    As with a graph, making one runs nothing, and ``result`` stays in the same memory.
    """

    def __init__(self, call: Callable[[], Any], pool: Any = None) -> None:
        self.result: Any = None
        self._call = call

    def replay(self) -> None:
        """Call the function and put its result where the first one lies."""
        new = self._call()
        if self.result is None:
            self.result = mapped(new, torch.clone)
            return
        for old, value in zip(tensors(self.result), tensors(new), strict=True):
            old.copy_(value)

    @staticmethod
    def pool() -> Any:
        """Nothing is shared."""
        return ()


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Apply ``change`` to every tensor of nested tuples, lists and dicts."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {name: mapped(part, change) for name, part in value.items()}
    if isinstance(value, tuple | list):
        parts = [mapped(part, change) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors of nested tuples, lists and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from tensors(part)


def form(value: Any) -> tuple[Any, ...]:
    """What two calls must share to be one recording: sizes, types, which axes are expanded."""
    return tuple((tuple(x.shape), x.dtype, _expanded(x)) for x in tensors(value))


def _expanded(x: Tensor) -> tuple[int, ...]:
    """Axes along which one number serves many places."""
    return tuple(i for i, (n, s) in enumerate(zip(x.shape, x.stride(), strict=True)) if n > 1 > s)


def _own(x: Tensor) -> Tensor:
    """The distinct numbers of a tensor: one place of each expanded axis."""
    for axis in _expanded(x):
        x = x.narrow(axis, 0, 1)
    return x


class Inputs:
    """Copies of a call's inputs in memory that stays; expanded axes stay expanded.

    Args:
        example: nested tuples, lists and dicts of tensors.
    """

    def __init__(self, example: Any) -> None:
        self.value = mapped(example, lambda x: _own(x).clone().expand(x.shape))

    def fill(self, value: Any) -> None:
        """Copy new numbers in; ``value`` has the form of the example."""
        for old, new in zip(tensors(self.value), tensors(value), strict=True):
            _own(old).copy_(_own(new), non_blocking=True)


class RepeatedCall:
    """A function on inputs in memory that stays: run eagerly, then captured and replayed.

    Args:
        function: called with the inputs; see :class:`CudaCapture`. What it reads besides must be
            held by its closure, because the graph outlives the caller.
        example: the inputs' form.
    """

    def __init__(self, function: Callable[..., Any], example: Any) -> None:
        self._function = function
        self._inputs = Inputs(example)
        self._capture: Capture | None = None
        self.capturable = True

    @property
    def captured(self) -> bool:
        """Whether it can be replayed."""
        return self._capture is not None

    def eagerly(self, inputs: Any) -> Any:
        """Run the function on new inputs, in the memory that a capture reads."""
        self._inputs.fill(inputs)
        return self._function(*self._inputs.value)

    def capture(self, make: type[Capture], pool: Any) -> None:
        """Record the function; nothing is computed."""
        self._capture = make(lambda: self._function(*self._inputs.value), pool)

    def forget(self) -> None:
        """Free the recording; a later one is possible."""
        self._capture = None

    def replay(self, inputs: Any) -> Any:
        """Run the recording on new inputs; its result lasts until the next replay.

        Raises:
            RuntimeError: nothing is recorded.
        """
        if self._capture is None:
            raise RuntimeError("expected a captured call, got one that isn't")
        self._inputs.fill(inputs)
        self._capture.replay()
        return self._capture.result


class CapturedStep:
    """Replays ``step(*buffers)`` on new values.

    The step may read and write any tensors, as long as it does so in place and in the same memory
    each time: parameters, optimiser state, gradients and batch statistics live in tensors that
    outlive the graph. It must not synchronise with the host (see :class:`CudaCapture`). Random
    numbers come from a :class:`pfrnn.kernels.noise.NoiseKey`, whose ``step`` tensor is one of the
    buffers or is advanced inside the step.

    Example:
        ``train = CapturedStep(update, [x, y])``, then for every batch ``train(x_new, y_new)``.
    """

    def __init__(
        self, step: Callable[..., None], buffers: Sequence[Tensor], warm_up: int = 2
    ) -> None:
        """Run the step ``warm_up`` times, then capture it.

        Args:
            step: called with the buffers.
            buffers: example inputs; copied, so the caller's stay free.
            warm_up: real runs before the capture (kernels compile, workspaces are made). They
                change what the step changes: save and restore that state around this call.
        """
        self.buffers = [buffer.clone() for buffer in buffers]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(warm_up):
                step(*self.buffers)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            step(*self.buffers)

    def __call__(self, *values: Tensor) -> None:
        """Copy new values in and replay.

        Raises:
            ValueError: not as many values as buffers.
        """
        for buffer, value in zip(self.buffers, values, strict=True):
            buffer.copy_(value, non_blocking=True)
        self.graph.replay()
