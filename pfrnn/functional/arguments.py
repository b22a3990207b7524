"""Checks of options that aren't tensors: an error names the option, what it must be, what came."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any

from pfrnn.errors import ConfigError

METHODS = ("soft", "multinomial", "systematic", "none")
MODES = ("feature", "particle_slot", "none")
ACTIVATIONS = ("relu", "leaky_relu", "tanh")
NOISE_SCALES = ("linear", "softplus")
GRU_NOISES = ("hidden", "reset")


def check_number(name: str, value: Any, expected: str, fits: Callable[[Any], bool]) -> None:
    """Raise unless a value is a real number in a range.

    Raises:
        TypeError: not a number; True and False aren't.
        ConfigError: a number out of range, or NaN.
    """
    real = isinstance(value, int | float | numbers.Real) and not isinstance(value, bool)
    if not real:
        raise TypeError(f"{name}: expected {expected}, got {value!r} ({type(value).__name__})")
    if not fits(value):
        raise ConfigError(f"{name}: expected {expected}, got {value!r}")


def check_share(name: str, value: Any) -> None:
    """Raise unless a value is a number in (0, 1]."""
    check_number(name, value, "a number in (0, 1]", lambda x: 0 < x <= 1)


def check_level(name: str, value: Any) -> None:
    """Raise unless a value is a number in (0, 1)."""
    check_number(name, value, "a number in (0, 1)", lambda x: 0 < x < 1)


def check_positive(name: str, value: Any) -> None:
    """Raise unless a value is a finite number above 0."""
    check_number(name, value, "a number above 0", lambda x: 0 < x < math.inf)


def check_count(name: str, value: Any) -> None:
    """Raise unless a value is an int of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name}: expected an int, got {value!r} ({type(value).__name__})")
    if value < 1:
        raise ConfigError(f"{name}: expected at least 1, got {value}")


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise unless a value is one of the names."""
    if not isinstance(value, str) or value not in choices:
        raise ConfigError(f"{name}: expected one of {', '.join(choices)}, got {value!r}")
