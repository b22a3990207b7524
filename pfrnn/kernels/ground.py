"""What any file of the kernels may import: limits, sizes, strides, refusals. No Triton."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pfrnn.functional.rnn import RNNStep, gru_step, lstm_step
from pfrnn.functional.types import RNNSwitches

MAX_PARTICLES = 128
# A wider layer's weight blocks don't fit the shared memory at the tile sizes measured so far.
MAX_UNITS = 128
# A head with more outputs is applied outside the kernels: loops over them are unrolled.
MAX_OUTPUTS = 4
PRECISIONS = ("tf32", "ieee")


def interpreted() -> bool:
    """Whether Triton runs kernels in its interpreter, on the CPU (tests)."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


@functools.cache
def device_refusal(device: torch.device) -> str | None:
    """Say why no kernel runs on a device; None where they do."""
    if device.type != "cuda":
        return f"the kernels run on a CUDA GPU, not on {device.type}"
    if torch.version.hip is not None:
        return "the kernels are written for NVIDIA GPUs"
    major, minor = torch.cuda.get_device_capability(device)
    if major < 8:
        return f"compute capability {major}.{minor} is below 8.0"
    return None


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def basic_refusal(dtype: torch.dtype) -> str | None:
    """Say why no kernel runs at all: no Triton, or another type than float32."""
    if not _has_triton():
        return "triton is not installed"
    if dtype != torch.float32:
        return f"the kernels compute in float32, not {dtype}"
    return None


def rnn_refusal(step: RNNStep, switches: RNNSwitches, dtype: torch.dtype) -> str | None:
    """Say why the kernels can't run a plain RNN on any device; None when they can.

    Args:
        step: ``lstm_step`` or ``gru_step``.
        switches: its static choices.
        dtype: of the tensors.
    """
    if (why := basic_refusal(dtype)) is not None:
        return why
    if step not in (lstm_step, gru_step):
        return "the kernels know the LSTM's and the GRU's step only"
    if switches.reset_after:
        return "a GRU with its reset gate after the product"
    return None


def first_order(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the backward of a ``torch.autograd.Function`` that has no second derivative.

    torch's ``once_differentiable`` puts its error at the end of the new graph, which
    ``torch.autograd.grad`` with inputs may never reach. Here building that graph is the error.

    Raises:
        RuntimeError: called with ``create_graph=True``.
    """

    @functools.wraps(backward)
    def checked(ctx: Any, *gradients: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(NO_SECOND_DERIVATIVE)
        return backward(ctx, *gradients)

    return checked


NO_SECOND_DERIVATIVE = (
    "create_graph=True: the kernels have no second derivatives; set PFRNN_KERNELS=plain, or use "
    "torch.func, which sees the plain code"
)


def power_of_two(n: int) -> int:
    """Return the least power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def padded_units(units: int) -> int:
    """Return the width of a tile: tensor cores want at least 16."""
    return max(16, power_of_two(units))


def strides(tensor: Tensor) -> tuple[int, int]:
    """Return the strides of (T, M, ...); the rest must be contiguous."""
    return tensor.stride(0), tensor.stride(1)


def inner_contiguous(tensor: Tensor) -> Tensor:
    """Return (T, M, ...) whose axes after M are contiguous; copies only if they are not."""
    expected = 1
    for size, stride in zip(reversed(tensor.shape[2:]), reversed(tensor.stride()[2:]), strict=True):
        if size != 1 and stride != expected:
            return tensor.contiguous()
        expected *= size
    return tensor
