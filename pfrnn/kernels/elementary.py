"""Elementary functions in few instructions: hardware approximations with flushed denormals.

Errors stay near 1e-7 absolute. Triton's own exp, division and square root spend several
instructions each on denormals, which none of these arguments needs. The interpreter, which can't
run inline assembly, takes the plain functions.
"""

from __future__ import annotations

import os

import triton
import triton.language as tl

PLAIN = tl.constexpr(os.environ.get("TRITON_INTERPRET", "0") == "1")


@triton.jit
def exp2(x):
    """2 to the power x."""
    if PLAIN:
        return tl.exp2(x)
    else:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def log2(x):
    """Base-2 logarithm."""
    if PLAIN:
        return tl.log2(x)
    else:
        return tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def reciprocal(x):
    """1 / x for x in [2^-126, 2^126]; 0 for larger x."""
    if PLAIN:
        return 1.0 / x
    else:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def root(x):
    """Square root of x >= 0."""
    if PLAIN:
        return tl.sqrt(x)
    else:
        return tl.inline_asm_elementwise(
            "sqrt.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def sine(x):
    """Sine of x in [-pi, pi], to 5e-7 absolute."""
    if PLAIN:
        return tl.sin(x)
    else:
        return tl.inline_asm_elementwise(
            "sin.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def cosine(x):
    """Cosine of x in [-pi, pi], to 5e-7 absolute."""
    if PLAIN:
        return tl.cos(x)
    else:
        return tl.inline_asm_elementwise(
            "cos.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x))."""
    return reciprocal(1.0 + exp2(-1.4426950408889634 * x))


@triton.jit
def tanh(x):
    """Hyperbolic tangent."""
    return 2.0 * reciprocal(1.0 + exp2(-2.8853900817779268 * x)) - 1.0


@triton.jit
def softplus(x):
    """log(1 + exp(x))."""
    tail = log2(1.0 + exp2(-1.4426950408889634 * tl.abs(x)))
    return tl.maximum(x, 0.0) + 0.6931471805599453 * tail
