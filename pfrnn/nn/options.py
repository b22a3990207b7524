"""The options of a particle cell, and the two fidelities that are presets of them."""

from __future__ import annotations

from typing import Any, NamedTuple

from pfrnn.errors import ConfigError
from pfrnn.functional.arguments import (
    check_choice,
    check_count,
    check_share,
    check_switches,
)
from pfrnn.functional.types import FilterSwitches
from pfrnn.nn.settings import CHANGEABLE


class CellOptions(NamedTuple):
    """Everything that distinguishes one PF cell from another of the same sizes.

    The defaults are the fidelity ``paper``; docs/fidelity.md lists each option's consequence.

    Attributes:
        alpha: mixture of soft resampling, in (0, 1].
        resampling: ``soft``, ``multinomial``, ``systematic`` or ``none``. Where all new weights are
            1/K (``multinomial``, ``systematic``, and ``soft`` at alpha 1, at every step) f_obs gets
            no gradient: its parameter ``weight_observation`` keeps None.
        ess_threshold: resample only below this fraction of K, in (0, 1]; None resamples at every
            step.
        batch_norm: ``feature``, ``particle_slot`` or ``none``.
        activation: of the candidate: ``relu``, ``leaky_relu`` or ``tanh``.
        noise_scale: ``linear`` or ``softplus``.
        initial_state: ``zeros`` or ``uniform`` on [0, 1), also in evaluation.
        gate_features: width, at least 1, of the two small networks u(x) and o(x) in front of the
            gates and of f_obs (LeakyReLU of a linear map); None feeds x itself to both.
        gru_noise: what PF-GRU's noise scale reads: ``hidden`` or ``reset``.
        reset_after: PF-GRU's reset gate after the product, as torch.nn.GRU's.
        statistics: running batch-norm statistics ``pooled`` over time (one update a batch) or
            ``per_time`` (a set for each of the first ``max_steps`` steps, the last one serving
            all later steps). Steps are counted from each call's first: give ``per_time`` whole
            sequences, not pieces with a state passed on.
        max_steps: the number of sets with ``per_time``, at least 1.
        momentum: weight of a new batch in the running statistics, in (0, 1].
        norm_eps: added to the variance, above 0.
    """

    alpha: float = 0.5
    resampling: str = "soft"
    ess_threshold: float | None = None
    batch_norm: str = "feature"
    activation: str = "relu"
    noise_scale: str = "linear"
    initial_state: str = "zeros"
    gate_features: int | None = None
    gru_noise: str = "hidden"
    reset_after: bool = False
    statistics: str = "pooled"
    max_steps: int = 128
    momentum: float = 0.1
    norm_eps: float = 1e-5

    def switches(self) -> FilterSwitches:
        """Return the static choices that a step reads."""
        return FilterSwitches(
            resampling=self.resampling,
            alpha=self.alpha,
            ess_threshold=self.ess_threshold,
            noise_scale=self.noise_scale,
            activation=self.activation,
            batch_norm=self.batch_norm,
            norm_eps=self.norm_eps,
            gru_noise=self.gru_noise,
            reset_after=self.reset_after,
        )


PRESETS: dict[str, CellOptions] = {
    "paper": CellOptions(),
    "authors_code": CellOptions(
        activation="leaky_relu",
        batch_norm="particle_slot",
        noise_scale="softplus",
        initial_state="uniform",
        gate_features=32,
        gru_noise="reset",
    ),
}


def resolve(fidelity: str, explicit: dict[str, Any]) -> CellOptions:
    """Lay explicit options over a fidelity's preset and check them.

    Args:
        fidelity: ``paper`` or ``authors_code``.
        explicit: options by name.

    Raises:
        TypeError: an option of the wrong type.
        ConfigError: an unknown fidelity, option or choice, or a number out of its range.
    """
    check_choice("fidelity", fidelity, tuple(PRESETS))
    unknown = sorted(set(explicit) - set(CellOptions._fields))
    if unknown:
        known = ", ".join(CellOptions._fields)
        raise ConfigError(f"unknown option {unknown[0]!r}; known options: {known}")
    options = PRESETS[fidelity]._replace(**explicit)
    check(options)
    return options


def check(options: CellOptions) -> None:
    """Refuse values outside an option's choices or range, and of another type.

    Raises:
        TypeError: another type; it names the option, what was expected and what came.
        ConfigError: another value, likewise.
    """
    check_switches(options.switches())
    check_choice("initial_state", options.initial_state, ("zeros", "uniform"))
    if options.gate_features is not None:
        check_count("gate_features", options.gate_features)
    check_choice("statistics", options.statistics, ("pooled", "per_time"))
    check_count("max_steps", options.max_steps)
    check_share("momentum", options.momentum)


def check_change(old: CellOptions, new: Any) -> None:
    """Refuse options that a cell built with other ones can't take.

    Raises:
        TypeError: ``new`` is no CellOptions, or has an option of the wrong type.
        ConfigError: a value out of range, or one that the cell's parameters follow from.
    """
    if not isinstance(new, CellOptions):
        raise TypeError(
            f"options should be a CellOptions, got: {type(new).__name__}; "
            "take options._replace(alpha=...)"
        )
    check(new)
    for name, before, after in zip(CellOptions._fields, old, new, strict=True):
        if name not in CHANGEABLE and before != after:
            raise ConfigError(
                f"options: {name} can't change after construction from {before!r} to {after!r}, "
                "for parameters or buffers follow from it; build a new module"
            )


def refuse_unsupported(bidirectional: Any, proj_size: Any) -> None:
    """Take torch.nn.LSTM's defaults of what a particle filter doesn't have; refuse the rest."""
    if not isinstance(bidirectional, bool):
        raise TypeError(
            f"bidirectional should be of type bool, got: {type(bidirectional).__name__}"
        )
    if bidirectional:
        raise ValueError(
            "bidirectional=True is not supported: a filter's belief at a step knows the past only; "
            "run a second layer over the reversed sequence"
        )
    if isinstance(proj_size, bool) or not isinstance(proj_size, int):
        raise TypeError(f"proj_size should be of type int, got: {type(proj_size).__name__}")
    if proj_size != 0:
        raise ValueError(
            f"proj_size={proj_size} is not supported: particles keep their whole hidden state; "
            "put a torch.nn.Linear on the output"
        )
