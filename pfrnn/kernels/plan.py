"""Static choices of a launch: codes of the switches, tile sizes, precision."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from pfrnn.kernels import tiles

RESAMPLING = {
    "none": tiles.RESAMPLE_NONE,
    "soft": tiles.RESAMPLE_SOFT,
    "multinomial": tiles.RESAMPLE_MULTINOMIAL,
    "systematic": tiles.RESAMPLE_SYSTEMATIC,
}
ACTIVATION = {"relu": tiles.RELU, "leaky_relu": tiles.LEAKY_RELU, "tanh": tiles.TANH}
PRECISIONS = ("ieee", "tf32x3", "tf32", "bf16")


class Tuning(NamedTuple):
    """What was chosen by measurement; none of it depends on the number of members.

    Attributes:
        forward_rows: particles that a program of the forward kernel owns (R).
        backward_rows: likewise of the backward kernel.
        split: the backward step as two launches of smaller kernels instead of one.
        forward_inner: longest sum that a product takes in one piece (BK).
        backward_inner: likewise of the backward kernel.
        forward_warps: of the forward kernel; likewise the others.
        ring: time steps of gate gradients kept until the weights' gradient is added up.
        shares: partial sums of the weights' gradient a block.
    """

    forward_rows: int = 64
    backward_rows: int = 32
    split: bool = False
    forward_inner: int = 128
    backward_inner: int = 128
    forward_warps: int = 4
    backward_warps: int = 4
    weight_warps: int = 4
    forward_registers: int | None = 168
    backward_registers: int | None = None
    weight_stages: int = 3
    weight_rows: int = 64
    ring: int = 17
    shares: int = 8


class Plan(NamedTuple):
    """One compiled form of the filter."""

    gru: bool
    mode: int
    alpha: float
    softplus: bool
    activation: int
    norm: bool
    norm_eps: float
    noise: int
    given: bool
    valid: bool
    bptt: int | None
    precision: str
    tuning: Tuning

    def constants(self, units: int, particles: int, rows: int, inner: int) -> dict[str, Any]:
        """Return the compile-time arguments that both kernels share, for tiles of ``rows``.

        Sums longer than ``inner`` are taken in pieces.
        """
        padded = power_of_two(particles)
        rows = max(rows, padded)
        return {
            "GRU": self.gru,
            "SOFTPLUS": self.softplus,
            "NOISE": self.noise,
            "ACT": self.activation,
            "NORM": self.norm,
            "GIVEN": self.given,
            "VALID": self.valid,
            "MODE": self.mode,
            "H": units,
            "HP": padded_units(units),
            "K": particles,
            "KP": padded,
            "R": rows,
            "BK": min(inner, padded_units(units)),
            "PB": 32,
            "PREC": self.precision,
        }


def power_of_two(n: int) -> int:
    """Return the least power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def padded_units(units: int) -> int:
    """Return the width of a tile: tensor cores want at least 16."""
    return max(16, power_of_two(units))


def strides(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the strides of (T, M, ...); the rest must be contiguous."""
    return tensor.stride(0), tensor.stride(1)


def inner_contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """Return (T, M, ...) whose axes after M are contiguous; copies only if they are not."""
    expected = 1
    for size, stride in zip(reversed(tensor.shape[2:]), reversed(tensor.stride()[2:]), strict=True):
        if size != 1 and stride != expected:
            return tensor.contiguous()
        expected *= size
    return tensor
