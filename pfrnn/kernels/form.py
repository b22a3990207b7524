"""One compiled form of the filter: what its kernels take as constants."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from pfrnn.errors import ConfigError, suggestion
from pfrnn.kernels import tiles
from pfrnn.kernels.ground import PRECISIONS, interpreted, padded_units, power_of_two
from pfrnn.kernels.tuning import Tuning

RESAMPLING = {
    "none": tiles.RESAMPLE_NONE,
    "soft": tiles.RESAMPLE_SOFT,
    "multinomial": tiles.RESAMPLE_MULTINOMIAL,
    "systematic": tiles.RESAMPLE_SYSTEMATIC,
}
ACTIVATION = {"relu": tiles.RELU, "leaky_relu": tiles.LEAKY_RELU, "tanh": tiles.TANH}


class Form(NamedTuple):
    """Static choices of a run.

    Attributes:
        gru: a PF-GRU, else a PF-LSTM.
        mode: of resampling, a code of :mod:`pfrnn.kernels.tiles`; likewise ``activation`` and
            ``noise``.
        alpha: of soft resampling.
        softplus: whether the noise's scale is a softplus.
        norm: whether the candidate is normalised.
        norm_eps: of the batch norm.
        given: whether its statistics are given.
        valid: whether there is padding.
        bptt: steps between cuts of the gradient; 0: never.
        precision: of the products.
        tuning: tile sizes.
    """

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
    bptt: int
    precision: str
    tuning: Tuning

    def stored(self, units: int) -> torch.dtype:
        """Type in which the backward kernel keeps the factors of the weights' gradient.

        TF32 products keep them as float16, whose 11 bits are TF32's: half the memory to write and
        to read again, and float32 sums as before. The gates' gradients are scaled by a power of
        two (:func:`pfrnn.kernels.run_backward.half_scale`); the states are of moderate size.
        Products that take the gates' gradients in pieces, of more units than ``backward_inner``,
        read them as float32; so does the interpreter, whose TF32 products are float32. Tiles of
        less than 64 rows of 16 bits aren't used: ptxas 12.8 miscompiled them (the tensor cores'
        descriptor of so short rows).
        """
        tuning = self.tuning
        whole = padded_units(units) <= tuning.backward_inner and tuning.weight_rows >= 64
        narrow = self.precision == "tf32" and whole and not interpreted()
        return torch.float16 if narrow else torch.float32

    def constants(self, units: int, particles: int, rows: int, inner: int) -> dict[str, Any]:
        """Return the compile-time arguments that both kernels share, for tiles of ``rows``.

        Sums longer than ``inner`` are taken in pieces.
        """
        padded = power_of_two(particles)
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
            "R": max(rows, padded),
            "BK": min(inner, padded_units(units)),
            "PB": 32,
            "PREC": self.precision,
        }


def check_precision(precision: str) -> None:
    """Raise ConfigError for a precision that doesn't exist."""
    if precision not in PRECISIONS:
        raise ConfigError(
            f"precision: expected one of {', '.join(PRECISIONS)}, got {precision!r}"
            + suggestion(precision, PRECISIONS)
        )
