"""A training step as a CUDA graph: captured once, replayed without launching from Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class CapturedStep:
    """Replays ``step(*buffers)`` on new values.

    The step may read and write any tensors, as long as it does so in place and in the same memory
    each time: parameters, optimiser state, gradients and batch statistics live in tensors that
    outlive the graph. It must not synchronise with the host (no ``.item()``, no shape that depends
    on data). Random numbers come from a :class:`pfrnn.kernels.noise.NoiseKey`, whose ``step``
    tensor is one of the buffers or is advanced inside the step.

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
