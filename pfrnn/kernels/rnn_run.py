"""What the forward and the backward loop of a plain RNN share: sizes, launches, memory.

Memory is member first, so that weights' gradients need no copies: hidden, cell (M, T+1, N, H);
blocks (M, T, N, G H), what the backward pass reads: activated gates, and the candidate after its
activation, or before its batch norm where there is one. A step's product (M, N, G H) lies
elsewhere: threads may hold copies of a small tile, and one must not store what another has yet to
read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from pfrnn.kernels.ground import power_of_two

_UNITS = 16


class Loop(NamedTuple):
    """Static choices and sizes of a run.

    Attributes:
        gru: else an LSTM.
        steps: T.
        members: M.
        sequences: N.
        units: H.
        activation: its code.
        norm: whether the candidate is normalised.
        measured: by the batch's own statistics.
        eps: of the batch norm.
        bptt: steps between cuts of the gradient, or None.
    """

    gru: bool
    steps: int
    members: int
    sequences: int
    units: int
    activation: int
    norm: bool
    measured: bool
    eps: float
    bptt: int | None

    @property
    def rows(self) -> int:
        """Sequences that a program owns (R)."""
        return power_of_two(self.sequences) if self.measured else 32

    def cut(self, t: int) -> bool:
        """Whether the gradient of the state before step t is cut."""
        return self.bptt is not None and 0 < t < self.steps and t % self.bptt == 0


class Extra(NamedTuple):
    """Tensors without a gradient: valid (T, M, N) and given statistics (M, H) or (T, M, H)."""

    valid: Tensor | None
    mean: Tensor | None
    variance: Tensor | None


class Run:
    """What launches of one run share: its grid, arguments and batch-norm memory."""

    def __init__(
        self, loop: Loop, extra: Extra, like: Tensor, gain: Tensor | None, shift: Tensor | None,
        measured: tuple[Tensor, Tensor] | None = None,
    ) -> None:  # fmt: skip
        self.loop, self.dummy = loop, like
        self.grid = (-(-loop.sequences // loop.rows), -(-loop.units // _UNITS), loop.members)
        if measured is None:
            size = (loop.members, loop.steps, loop.units) if loop.norm else (0,)
            measured = like.new_empty(size), like.new_empty(size)
        self.mean, self.variance = measured
        given = extra.mean is not None
        valid = extra.valid.view(torch.uint8) if extra.valid is not None else like
        self.sizes = {"t": 0, "T": loop.steps, "N": loop.sequences}
        self.tiles = {"H": loop.units, "R": loop.rows, "BU": _UNITS, "grid": self.grid}
        self.shared = {
            "valid_": valid,
            "valid_t": 0 if extra.valid is None else valid.stride(0),
            "valid_m": 0 if extra.valid is None else valid.stride(1),
            "mean_": extra.mean if given else self.mean,
            "var_": extra.variance if given else self.variance,
            "given_t": _step_stride(extra.mean),
            "gain_": like if gain is None else gain.contiguous(),
            "shift_": like if shift is None else shift.contiguous(),
            "eps": loop.eps,
            "ACT": loop.activation, "NORM": loop.norm, "GIVEN": given,
            "VALID": extra.valid is not None,
        }  # fmt: skip
        self.held = extra.valid is not None or loop.gru

    def sums(self) -> tuple[Tensor, Tensor]:
        """Memory of the programs' sums for the batch norm's gradients."""
        loop = self.loop
        size = (loop.members, loop.steps, self.grid[0], loop.units) if loop.norm else (0,)
        return self.dummy.new_empty(size), self.dummy.new_empty(size)

    def launch(self, kernel: Any, t: int, plain: bool = False, **arguments: Any) -> None:
        """Launch a step's kernel; ``plain`` ones know no batch norm and no padding."""
        shared = {} if plain else self.shared
        kernel.run(
            **arguments, **shared, **(self.sizes | {"t": t}), **self.tiles, num_warps=4,
            warmup=False,
        )  # fmt: skip


def _step_stride(given: Tensor | None) -> int:
    return given.stride(0) if given is not None and given.dim() == 3 else 0


def rows_of(x: Tensor) -> Tensor:
    """Fold time into the rows of each member: (M, T, N, C) -> (M, T N, C), no copy."""
    return x.flatten(1, 2)


def states(loop: Loop, start: Tensor) -> Tensor:
    """Memory of a state before and after every step, (M, T+1, N, H), with its start."""
    size = (loop.members, loop.steps + 1, loop.sequences, loop.units)
    states = start.new_empty(size)
    states[:, 0] = start
    return states


def through(out: Tensor, gates: Tensor, weight: Tensor, add: bool) -> None:
    """Take gates' gradients through their product: out = gates weight^T, or add it to out."""
    if add:
        out.baddbmm_(gates, weight.mT)
    else:
        torch.bmm(gates, weight.mT, out=out)


def whole(parts: Tensor, loop: Loop) -> Tensor | None:
    """Add up the programs' and steps' sums: (M, T, programs, H) -> (M, H)."""
    return parts.sum((1, 2)) if loop.norm else None
