"""Settings that parameters follow from: fixed once a module is built, and refused in words."""

from __future__ import annotations

import reprlib
from typing import Any

from torch import nn

# What only the arithmetic of a step reads. The others decide which parameters and buffers exist.
CHANGEABLE = frozenset(
    (
        "alpha",
        "resampling",
        "ess_threshold",
        "activation",
        "noise_scale",
        "initial_state",
        "momentum",
        "norm_eps",
    )
)


def same(present: Any, value: Any) -> bool:
    """Whether a value is the present one; 1 isn't True, and 8.0 isn't 8."""
    return type(present) is type(value) and bool(present == value)


class Settled(nn.Module):
    """A module some of whose settings can't change after its constructor.

    torch's modules take any new value in silence, and then obey it where they happen to read it
    again. Here that is an error, but for the value that the setting has already. A subclass names
    the settings in ``_settled``, and sets ``_built`` where its constructor ends; a subclass of that
    one may give attributes of its own any other name.
    """

    _settled: frozenset[str] = frozenset()
    _built = False

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute, unless it is a settled one.

        Raises:
            AttributeError: a settled one to a new value, after construction.
        """
        if self._built and name in self._settled:
            if self._has(name, value):
                return
            raise AttributeError(self._refusal(name, value))
        super().__setattr__(name, value)

    def _has(self, name: str, value: Any) -> bool:
        """Whether a setting (an attribute, or a field of options or switches) has a value."""
        holders = (self, getattr(self, "options", None), getattr(self, "switches", None))
        return any(hasattr(one, name) and same(getattr(one, name), value) for one in holders)

    def _refusal(self, name: str, value: Any) -> str:
        kind = type(self).__name__
        text = f"{kind}.{name} can't change after construction, got {reprlib.repr(value)}; "
        if name in CHANGEABLE and isinstance(getattr(type(self), "options", None), property):
            return text + f"set all options at once: options = options._replace({name}=...)"
        return text + (
            f"build a new {kind} with it, and load the state_dict where it fits (the name is "
            "reserved: a subclass's own attribute needs another one)"
        )
