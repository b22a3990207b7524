"""The options of a particle cell, and the two fidelities that are presets of them."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypedDict

from pfrnn.errors import ConfigError
from pfrnn.functional.arguments import (
    ACTIVATIONS,
    GRU_NOISES,
    METHODS,
    MODES,
    NOISE_SCALES,
    check_choice,
    check_count,
    check_positive,
    check_share,
)
from pfrnn.functional.types import FilterSwitches


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
        return FilterSwitches(*(getattr(self, name) for name in FilterSwitches._fields))


class Options(TypedDict, total=False):
    """The fields of :class:`CellOptions` as keywords of a constructor, for type checkers."""

    alpha: float
    resampling: Literal["soft", "multinomial", "systematic", "none"]
    ess_threshold: float | None
    batch_norm: Literal["feature", "particle_slot", "none"]
    activation: Literal["relu", "leaky_relu", "tanh"]
    noise_scale: Literal["linear", "softplus"]
    initial_state: Literal["zeros", "uniform"]
    gate_features: int | None
    gru_noise: Literal["hidden", "reset"]
    reset_after: bool
    statistics: Literal["pooled", "per_time"]
    max_steps: int
    momentum: float
    norm_eps: float


Fidelity = Literal["paper", "authors_code"]
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
# What only the arithmetic of a step reads. Parameters and buffers follow from the others.
CHANGEABLE = {
    "alpha",
    "resampling",
    "ess_threshold",
    "activation",
    "noise_scale",
    "initial_state",
    "momentum",
    "norm_eps",
}


def resolve(fidelity: str, explicit: Any) -> CellOptions:
    """Lay explicit options over a fidelity's preset and check them.

    Args:
        fidelity: ``paper`` or ``authors_code``.
        explicit: options by name.

    Raises:
        TypeError: an unknown option, or one of the wrong type.
        ConfigError: an unknown fidelity or choice, or a number out of its range.
    """
    check_choice("fidelity", fidelity, tuple(PRESETS))
    unknown = sorted(set(explicit) - set(CellOptions._fields))
    if unknown:
        known = ", ".join(CellOptions._fields)
        raise TypeError(f"unknown option {unknown[0]!r}; known options: {known}")
    options = PRESETS[fidelity]._replace(**explicit)
    check(options)
    return options


def check(options: CellOptions) -> None:
    """Raise for an option of the wrong type or out of range.

    Raises:
        TypeError: another type; it names the option, what was expected and what came.
        ConfigError: another value, likewise.
    """
    check_share("alpha", options.alpha)
    check_share("momentum", options.momentum)
    if options.ess_threshold is not None:
        check_share("ess_threshold", options.ess_threshold)
    check_positive("norm_eps", options.norm_eps)
    check_count("max_steps", options.max_steps)
    if options.gate_features is not None:
        check_count("gate_features", options.gate_features)
    for name, choices in (
        ("resampling", METHODS),
        ("batch_norm", MODES),
        ("activation", ACTIVATIONS),
        ("noise_scale", NOISE_SCALES),
        ("initial_state", ("zeros", "uniform")),
        ("gru_noise", GRU_NOISES),
        ("statistics", ("pooled", "per_time")),
    ):
        check_choice(name, getattr(options, name), choices)
    if options.reset_after and options.gru_noise == "reset":
        raise ConfigError(
            "reset_after leaves no reset hidden state for gru_noise='reset' to read; "
            "take gru_noise='hidden'"
        )


def check_change(old: CellOptions, new: CellOptions) -> None:
    """Raise for options that a cell built with other ones cannot take.

    Raises:
        TypeError: an option of the wrong type.
        ConfigError: a value out of range, or one that the cell's parameters follow from.
    """
    check(new)
    for name in CellOptions._fields:
        if name not in CHANGEABLE and getattr(old, name) != getattr(new, name):
            raise ConfigError(
                f"{name}: expected {getattr(old, name)!r}, from which parameters follow, got "
                f"{getattr(new, name)!r}; build a new module"
            )
