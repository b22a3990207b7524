"""Tile sizes and launch choices, chosen by measurement on an H200."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from pfrnn.kernels.dependent_launch import multiprocessors
from pfrnn.kernels.ground import padded_units, power_of_two


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
        dependent_from: a forward launch begins while the one before it ends
            (:mod:`pfrnn.kernels.dependent_launch`) where it has more than so many programs a
            multiprocessor. The bits are the same. Measured on an H200, at up to two a
            multiprocessor this cost 1 to 17 % of a whole step; with three it gained half a
            percent. Backward launches always do: they read much before they wait.
        forward_fetch: the forward kernel's weight blocks come to shared memory by the tensor copy
            engine (:mod:`pfrnn.kernels.fetch`) where the card and their size allow it. Likewise
            ``backward_fetch``.
        forward_registers: the most that a thread of the forward kernel may have; 0: any number.
        backward_registers: likewise of the backward kernel, but for a split step's launch that
            ends the step, which takes fewer by itself.
        lean_ends: in that launch, of a PF-LSTM, fetched weight blocks come just before their
            products, one after the other into the same shared memory: six of its programs fit a
            multiprocessor instead of four. A PF-GRU's has too many registers for that, and with
            fewer it gained nothing.
        late_loads: the backward kernel reads what is small just before its use, not at its start:
            fewer registers are held, and more is waited for.
        ticket: the partial sums behind the batch norm are added up by the program of a member that
            ends last, once, instead of by each of the next launch. Same order, same bits. On an
            H200 12 and 36 members gain 6 %, one loses 2 (PF-LSTM) and 4 % (PF-GRU).
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
    forward_registers: int = 168
    backward_registers: int = 0
    lean_ends: bool = False
    weight_stages: int = 3
    weight_rows: int = 64
    ring: int = 17
    shares: int = 8
    dependent_from: int = 2
    forward_fetch: bool = False
    backward_fetch: bool = False
    late_loads: bool = False
    ticket: bool = False


# Eight warps have the registers for tiles of 128 units, which four spill; no cap fits them.
_WIDE = {
    "forward_warps": 8, "backward_warps": 8, "weight_warps": 8, "forward_inner": 32,
    "forward_registers": 0,
}  # fmt: skip
CROWDED: dict[str, Any] = {
    "split": True, "backward_registers": 168, "late_loads": True, "backward_fetch": True,
    "forward_fetch": True, "lean_ends": True, "ticket": True,
}  # fmt: skip
# Programs of the backward kernel that a multiprocessor of compute capability 9.0 holds at once, by
# the registers and the shared memory that the compiler counts: of CROWDED's
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


def chosen_tuning(
    members: int, sequences: int, particles: int, units: int, precision: str, device: torch.device
) -> Tuning:
    """Return what a run of this size takes on this card unless it is told otherwise."""
    tuning = tuning_for(particles, units)
    if precision != "tf32":
        return tuning  # other products need other registers
    each = max(1, tuning.backward_rows // power_of_two(particles))
    return crowded(tuning, -(-sequences // each) * members, multiprocessors(device))


def encoded(tuning: Tuning | None) -> list[int]:
    """Return a tuning as the filter's operator takes it; nothing for the measured one."""
    return [] if tuning is None else [int(value) for value in tuning]


def decoded(numbers: list[int]) -> Tuning | None:
    """Undo :func:`encoded`."""
    if not numbers:
        return None
    kinds = [type(value) for value in Tuning()]
    return Tuning(*(kind(number) for kind, number in zip(kinds, numbers, strict=True)))
