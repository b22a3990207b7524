"""Triton's interpreter with a GPU's rounding.

The interpreter computes elementary functions to the last bit and every product in float32. A GPU
does neither; what the PTX ISA's manual allows each instruction is drawn here at random within the
stated bound, and the factors of a TF32 product lose the 13 bits that tensor cores don't read. So a
bound that holds under this can be expected to hold on a card, and one that doesn't is too tight.

bf16 products need this to mean anything: NumPy has no such type, the interpreter keeps the numbers'
bits as uint16, and its product multiplies those integers. It also cuts float32 off where a GPU
rounds to the nearest (the manual, ``cvt.rn.bf16.f32``), an error twice as large and always towards
zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

ULP = 2.0**-23
# The PTX ISA's manual, "floating point instructions", of each instruction's .approx.ftz.f32 form.
RELATIVE = {"exp2": 2 * ULP, "rsqrt": 2.0**-22.9, "sqrt": ULP, "fdiv": 2 * ULP}
ABSOLUTE = {"sin": 2.0**-20.5, "cos": 2.0**-20.5, "log2": 2.0**-22}


def shortened(x: np.ndarray) -> np.ndarray:
    """Keep what a tensor core reads of float32: a TF32 number, the rest cut off."""
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def widened(x: TensorHandle) -> TensorHandle:
    """Turn bf16 bits into the float32 numbers that they stand for."""
    if x.dtype.scalar != tl.bfloat16:
        return x
    return TensorHandle((x.data.astype(np.uint32) << 16).view(np.float32), tl.float32)


def narrowed(x: np.ndarray) -> np.ndarray:
    """Round float32 numbers to the nearest bf16, ties to even; returns its bits."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    nearest = bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)
    return (np.where(np.isnan(x), bits | np.uint32(0x400000), nearest) >> 16).astype(np.uint16)


class _Rounding:
    """Errors of one run; the seed makes them the same in every run."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def near(
        self, x: np.ndarray, relative: Any, absolute: float = 0.0, exact: Any = False
    ) -> np.ndarray:
        if x.dtype != np.float32:
            return x
        error = np.where(exact, 0.0, self.random.uniform(-1, 1, x.shape))
        with np.errstate(invalid="ignore"):
            return (x + error * (relative * np.abs(x) + absolute)).astype(np.float32)


@contextmanager
def rounding(seed: int) -> Iterator[None]:
    """Kernels that run inside compute as roughly as a GPU may."""
    draw = _Rounding(seed)
    patches: dict[str, Any] = {}

    def patch(name: str, relative: float, absolute: float) -> None:
        plain = getattr(InterpreterBuilder, f"create_{name}")

        def rough(self: Any, *operands: Any) -> Any:
            found = plain(self, *operands)
            # The manual's tables: 2 to the power 0 is 1; and x / 1 is never computed.
            exact = operands[-1].data == {"exp2": 0, "fdiv": 1}.get(name, np.nan)
            value = draw.near(found.data, relative, absolute, exact)
            return TensorHandle(value, found.dtype.scalar)

        patches[f"create_{name}"] = rough

    for name, bound in RELATIVE.items():
        patch(name, bound, 0.0)
    for name, bound in ABSOLUTE.items():
        patch(name, 0.0, bound)

    def exp(self: Any, arg: Any) -> Any:
        # Compiled as exp2(x log2 e): the argument's rounding is an error that grows with it.
        found = np.exp(arg.data)
        with np.errstate(invalid="ignore"):
            size = np.where(np.isfinite(arg.data), np.abs(arg.data), 0.0)
        value = draw.near(found, (2 + size) * ULP, 0.0, arg.data == 0)
        return TensorHandle(value, arg.dtype.scalar)

    patches["create_exp"] = exp
    dot = InterpreterBuilder.create_dot

    def product(self: Any, a: Any, b: Any, d: Any, precision: Any, limit: Any) -> Any:
        if a.data.dtype == np.float32 and str(precision).endswith(".TF32"):
            a, b = (TensorHandle(shortened(x.data), x.dtype.scalar) for x in (a, b))
        return dot(self, widened(a), widened(b), d, precision, limit)

    patches["create_dot"] = product
    cast = InterpreterBuilder.cast_impl

    def rounded(self: Any, source: Any, to: Any) -> Any:
        if (source.dtype.scalar, to.scalar) == (tl.float32, tl.bfloat16):
            return TensorHandle(narrowed(source.data), tl.bfloat16)
        return cast(self, source, to)

    patches["cast_impl"] = rounded
    with mock.patch.multiple(InterpreterBuilder, **patches):
        yield
