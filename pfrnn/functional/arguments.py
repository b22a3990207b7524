"""Options that aren't tensors, checked by name: what was expected, what came.

A value of another type is a TypeError; a number out of its range and an unknown choice are a
ConfigError. Nothing is converted: "30" is no number, and True is neither a number nor a size.
"""

from __future__ import annotations

import math
import numbers
import reprlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pfrnn.errors import ConfigError
from pfrnn.functional.autocast import tracing
from pfrnn.functional.types import FilterSwitches, RNNSwitches

METHODS = ("soft", "multinomial", "systematic", "none")
MODES = ("feature", "particle_slot", "none")
ACTIVATIONS = ("relu", "leaky_relu", "tanh")
NOISE_SCALES = ("linear", "softplus")
GRU_NOISES = ("hidden", "reset")


def wrong_type(name: str, expected: str, value: Any) -> TypeError:
    """Return the error about a value of another type.

    Example:
        >>> wrong_type("alpha", "a number in (0, 1]", "0.5")
        TypeError("alpha: expected a number in (0, 1], got '0.5' (str)")
    """
    return TypeError(f"{name}: expected {expected}, got {_text(value)} ({type(value).__name__})")


def _text(value: Any) -> str:
    return " ".join(reprlib.repr(value).split())  # a tensor's has line breaks


def is_number(value: Any) -> bool:
    """Whether a value is a real number; bool isn't."""
    return isinstance(value, int | float | numbers.Real) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number, as torch's sizes are; bool isn't."""
    if isinstance(value, Tensor):
        # What torch.jit.trace gives for a size of a tensor.
        return tracing() and value.dim() == 0 and value.dtype == torch.int64
    return isinstance(value, int | torch.SymInt) and not isinstance(value, bool)


def check_share(name: str, value: Any) -> None:
    """Refuse what is no number in (0, 1]."""
    _check_number(name, value, "a number in (0, 1]", lambda x: 0 < x <= 1)


def check_level(name: str, value: Any) -> None:
    """Refuse what is no number in (0, 1)."""
    _check_number(name, value, "a number in (0, 1)", lambda x: 0 < x < 1)


def check_positive(name: str, value: Any) -> None:
    """Refuse what is no finite number above 0."""
    _check_number(name, value, "a number above 0", lambda x: 0 < x < math.inf)


def check_not_negative(name: str, value: Any) -> None:
    """Refuse what is no finite number from 0."""
    _check_number(name, value, "a number, 0 or more", lambda x: 0 <= x < math.inf)


def check_finite(name: str, value: Any) -> None:
    """Refuse what is no finite number."""
    # math.isfinite is nothing that torch.compile can follow.
    _check_number(name, value, "a finite number", lambda x: -math.inf < x < math.inf)


def _check_number(name: str, value: Any, expected: str, fits: Any) -> None:
    if not is_number(value):
        raise wrong_type(name, expected, value)
    if not fits(value):  # so asked, NaN is refused too
        raise ConfigError(f"{name}: expected {expected}, got {value!r}")


def check_count(name: str, value: Any) -> None:
    """Refuse what is no whole number from 1."""
    if not is_whole(value):
        raise wrong_type(name, "a whole number from 1", value)
    if value < 1:
        raise ConfigError(f"{name}: expected at least 1, got {value!r}")


def check_flag(name: str, value: Any) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool):
        raise wrong_type(name, "True or False", value)


def check_tensor(name: str, value: Any, axes: str) -> None:
    """Refuse what is neither None nor a tensor."""
    if value is not None and not isinstance(value, Tensor):
        raise wrong_type(name, f"a tensor {axes} or None", value)


def check_mask(name: str, value: Any, axes: str) -> None:
    """Refuse what is neither None nor a tensor of bool."""
    check_tensor(name, value, axes)
    if value is not None and value.dtype != torch.bool:
        raise TypeError(f"{name}: expected a tensor {axes} of bool, got one of {value.dtype}")


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Refuse what is none of an option's names; also what is no text is no name of it."""
    if not isinstance(value, str) or value not in choices:
        raise ConfigError(f"{name}: expected one of {', '.join(choices)}, got {_text(value)}")


def check_in_step(switches: Any, check: Callable[[Any], None]) -> None:
    """Check the switches that a step was given, in eager mode: a microsecond.

    A compiled loop would trace it for each of its steps, and has the same switches for all.
    """
    if not torch.compiler.is_compiling():
        check(switches)


def check_switches(switches: Any) -> None:
    """Refuse switches of a filter that it would take for others, or fail on without their name.

    Raises:
        TypeError: no FilterSwitches, or one of another type.
        ConfigError: a number out of range, an unknown choice, or two that exclude each other.
    """
    if not isinstance(switches, FilterSwitches):
        raise wrong_type("switches", "a FilterSwitches", switches)
    check_choice("resampling", switches.resampling, METHODS)
    check_share("alpha", switches.alpha)
    if switches.ess_threshold is not None:
        check_share("ess_threshold", switches.ess_threshold)
    check_choice("noise_scale", switches.noise_scale, NOISE_SCALES)
    check_choice("activation", switches.activation, ACTIVATIONS)
    check_choice("batch_norm", switches.batch_norm, MODES)
    check_positive("norm_eps", switches.norm_eps)
    check_choice("gru_noise", switches.gru_noise, GRU_NOISES)
    check_flag("reset_after", switches.reset_after)
    if switches.reset_after and switches.gru_noise == "reset":
        raise ConfigError(
            "reset_after leaves no reset hidden state for gru_noise='reset' to read; "
            "take gru_noise='hidden'"
        )


def check_rnn_switches(switches: Any) -> None:
    """Refuse switches of a plain RNN, as :func:`check_switches` does a filter's."""
    if not isinstance(switches, RNNSwitches):
        raise wrong_type("switches", "an RNNSwitches", switches)
    check_choice("activation", switches.activation, ACTIVATIONS)
    check_choice("batch_norm", switches.batch_norm, ("none", "feature"))
    check_positive("norm_eps", switches.norm_eps)
    check_flag("reset_after", switches.reset_after)
