"""Static choices of a launch: codes of the switches, tile sizes, precision."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import torch

from pfrnn.errors import ConfigError, suggestion
from pfrnn.kernels import tiles
from pfrnn.kernels.dispatch import interpreted

RESAMPLING = {
    "none": tiles.RESAMPLE_NONE,
    "soft": tiles.RESAMPLE_SOFT,
    "multinomial": tiles.RESAMPLE_MULTINOMIAL,
    "systematic": tiles.RESAMPLE_SYSTEMATIC,
}
ACTIVATION = {"relu": tiles.RELU, "leaky_relu": tiles.LEAKY_RELU, "tanh": tiles.TANH}
PRECISIONS = ("ieee", "tf32x3", "tf32", "bf16")
# Set to 1, it lets bf16 products run on a GPU.
BF16_VARIABLE = "PFRNN_BF16"


class Tuning(NamedTuple):
    """What was chosen by measurement.

    The defaults are for up to 32 particles and 64 units; :func:`tuning_for` is for any size.

    Attributes:
        forward_rows: particles that a program of the forward kernel owns (R).
        backward_rows: likewise of the backward kernel.
        split: the backward step as two launches of smaller kernels instead of one.
        crowd: whether a large population takes :func:`crowded`'s choices instead.
        forward_inner: longest sum that a product takes in one piece (BK).
        backward_inner: likewise of the backward kernel.
        forward_warps: of the forward kernel; likewise the others.
        ring: time steps of gate gradients kept until the weights' gradient is added up.
        shares: partial sums of the weights' gradient a block.
        forward_early_from: a forward launch begins while the one before it ends
            (:mod:`pfrnn.kernels.early`) where it has more than so many programs a multiprocessor;
            0: always, None: never. The bits are the same. Measured on an H200, at up to two a
            multiprocessor beginning early cost 1 to 17 % of a whole step; with three it gained
            half a percent.
        backward_early: whether a backward launch does, whatever it has: it reads much before it
            waits.
        forward_fetch: the forward kernel's weight blocks come to shared memory by the tensor copy
            engine (:mod:`pfrnn.kernels.fetch`) where the card and their size allow it. Likewise
            ``backward_fetch``.
        backward_registers: the most that a thread of the backward kernel may have, but for a split
            step's launch that ends the step, which takes fewer by itself.
        lean_ends: in that launch, of a PF-LSTM, fetched weight blocks come just before their
            products, one after the other into the same shared memory: six of its programs fit a
            multiprocessor instead of four. A PF-GRU's has too many registers for that, and with
            fewer it gained nothing.
        late_loads: the backward kernel reads what is small just before its use, not at its start:
            fewer registers are held, and more is waited for.
        ticket: the partial sums behind the batch norm are added up by the program of a member that
            ends last, once, instead of by each of the next launch. Same order, same bits.
        narrow: what the weights' gradient is made from is kept as float16 (:meth:`Plan.stored`).
            On an H200 12 and 36 members gain 7 to 10 %, one loses 1 %.
    """

    forward_rows: int = 64
    backward_rows: int = 32
    split: bool = False
    crowd: bool = True
    forward_inner: int = 128
    # Factors of 128 units, several at a time, don't fit the shared memory.
    backward_inner: int = 64
    forward_warps: int = 4
    backward_warps: int = 4
    weight_warps: int = 4
    forward_registers: int | None = 168
    backward_registers: int | None = None
    lean_ends: bool = False
    weight_stages: int = 3
    weight_rows: int = 64
    ring: int = 17
    shares: int = 8
    forward_early_from: int | None = 2
    backward_early: bool = True
    forward_fetch: bool = False
    backward_fetch: bool = False
    late_loads: bool = False
    ticket: bool = True
    narrow: bool = True


# Eight warps have the registers for tiles of 128 units, which four spill; no cap fits them.
_WIDE = {
    "forward_warps": 8, "backward_warps": 8, "weight_warps": 8, "forward_inner": 32,
    "forward_registers": None,
}  # fmt: skip
CROWDED: dict[str, Any] = {
    "split": True, "backward_registers": 168, "late_loads": True, "backward_fetch": True,
    "forward_fetch": True, "lean_ends": True,
}  # fmt: skip
# Programs of the backward kernel that a multiprocessor of compute capability 9.0 holds at once, by
# the registers and the shared memory that the compiler counts (bench/compiled.py): of CROWDED's
# kernels the fewer, and of a whole step's.
_FIT, _FIT_WHOLE = 3, 2


def tuning_for(particles: int, units: int) -> Tuning:
    """Return what was chosen for a layer's size, before :func:`crowded` looks at the population.

    Timed on an H200 (PF-LSTM of 12 members, TF32, ms a model and step): 60 particles of 64 units
    took 2.14 with split backward steps instead of 3.12, 30 of 128 units 3.10 with eight warps
    instead of 6.10. Both together, for 33 to 64 particles of more than 64 units, are a choice
    by spills alone, and no such size is timed. Nowhere do they need more shared memory than the
    defaults, so that what fitted a card still does.

    >>> tuning_for(30, 64) == Tuning()
    True
    """
    width = padded_units(units)
    changes: dict[str, Any] = dict(_WIDE) if width == 128 else {}
    # Up to 32 units the L1 cache holds what a whole step spills; 128 particles are untried.
    if power_of_two(particles) == 64 and width >= 64:
        changes["split"] = True
    # Other sizes' kernels have other registers, with which nothing is timed.
    return Tuning(**changes, crowd=width == 64 and particles <= 32)


def crowded(tuning: Tuning, programs: int, card: int) -> Tuning:
    """Return the tuning for backward launches of so many programs: smaller kernels, if they pay.

    A whole backward step has 255 registers a thread, and two programs share a multiprocessor; of
    the two smaller kernels of a split step three and four do. They cost a launch more a step, and
    pay where the card then takes fewer turns for all programs. Below are ms a model and step on an
    H200 (132 multiprocessors, 64 programs a member; docs/performance.md), and the turns:

    ============== ==== ==== ==== ==== ==== ==== ====
    members           1    2    4    6    8   12   36
    PF-LSTM whole  3.88 2.22 1.22 1.24 1.03 0.94    -
    PF-LSTM split  4.29 2.49 1.38 1.05 1.07 0.87 0.84
    PF-GRU whole   3.29 1.89 1.03 1.06 0.86 0.81    -
    PF-GRU split   3.73 2.21 1.19 0.92 0.85 0.75 0.70
    turns, whole      1    1    1    2    2    3    9
    turns, split      1    1    1    1    2    2    6
    ============== ==== ==== ==== ==== ==== ==== ====

    Outputs and gradients have the same bits either way (docs/performance.md).

    Args:
        tuning: of the layer's size (:func:`tuning_for`).
        programs: of the launch.
        card: the card's multiprocessors; 0 where there is none.

    >>> [crowded(Tuning(), 64 * members, 132).split for members in (1, 2, 4, 6, 8, 12, 36)]
    [False, False, False, True, False, True, True]
    """
    if not tuning.crowd or card == 0:
        return tuning
    fewer = -(-programs // (_FIT * card)) < -(-programs // (_FIT_WHOLE * card))
    return tuning._replace(**CROWDED) if fewer else tuning


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

    @property
    def backward_rows(self) -> int:
        """Particles that a program of the backward kernel owns.

        64 at least for bf16. A gate's gradient goes to shared memory particle by particle; 32 of
        them are 64 bytes, and the tensor cores' descriptor of rows that short starts with a set
        bit. ptxas 12.8 (of Triton 3.6 and 3.7) adds the tile's address to it as a negative 64-bit
        constant and takes the upper half's zero from a register that holds something else. The
        tests look for that in the machine code (``tests/kernels/machine_code.py``).
        """
        return max(self.tuning.backward_rows, 64 if self.precision == "bf16" else 1)

    def stored(self, units: int) -> torch.dtype:
        """Type in which the backward kernel keeps the factors of the weights' gradient.

        TF32 products keep them as float16, whose 11 bits are TF32's: half the memory to write and
        to read again, and float32 sums as before. The gates' gradients are scaled by a power of
        two (:func:`pfrnn.kernels.half_scale.half_scale`); the states are of moderate size.
        Whatever reads the factors for anything else keeps them as float32: products
        that take the gates' gradients in pieces, of more units than ``backward_inner``. So does
        ``weight_rows`` below 64, whose tiles of 16 bits are what :meth:`backward_rows` tells of.
        """
        if self.precision == "bf16":
            return torch.bfloat16
        tuning = self.tuning
        whole = padded_units(units) <= tuning.backward_inner and tuning.weight_rows >= 64
        return torch.float16 if self._narrow() and whole else torch.float32

    def _narrow(self) -> bool:
        return self.tuning.narrow and self.precision == "tf32" and narrows()

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


def narrows() -> bool:
    """Whether factors are kept narrow: not in the interpreter, whose TF32 products are float32."""
    return not interpreted()


def check_precision(precision: str, device: torch.device) -> None:
    """Refuse a precision that doesn't exist or isn't to be trusted.

    ptxas miscompiled bf16 products of the backward kernel (:meth:`Plan.backward_rows`), and an
    illegal address ends a process's use of the card. The form that avoids it has run on a card, on
    small sizes and without an error, but no whole training has.

    Raises:
        ConfigError: unknown, or bf16 on a GPU without PFRNN_BF16=1.
    """
    if precision not in PRECISIONS:
        raise ConfigError(
            f"precision: expected one of {', '.join(PRECISIONS)}, got {precision!r}"
            + suggestion(precision, PRECISIONS)
        )
    if precision == "bf16" and device.type == "cuda" and os.environ.get(BF16_VARIABLE) != "1":
        raise ConfigError(
            "bf16 products have trained nothing on a GPU since the backward kernel was rewritten, "
            "and might end the process's CUDA context; use tf32, or set "
            f"{BF16_VARIABLE}=1 to try them"
        )


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
