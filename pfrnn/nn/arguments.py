"""Arguments of constructors: sizes, types and flags, refused in torch.nn.LSTM's words."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from pfrnn.errors import ConfigError
from pfrnn.functional.arguments import is_number, is_whole


def check_dropout(dropout: Any) -> None:
    """Refuse what is no probability, in torch.nn.LSTM's words."""
    if not is_number(dropout) or not 0 <= dropout <= 1:
        raise ValueError(
            "dropout should be a number in range [0, 1] representing the probability of an "
            "element being zeroed"
        )


def check_bool(name: str, value: Any) -> None:
    """Refuse what is no bool, in torch.nn.LSTM's words."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} should be of type bool, got: {type(value).__name__}")


def check_sizes(
    input_size: Any, hidden_size: Any, num_layers: Any, bias: Any, batch_first: Any, dropout: Any
) -> None:
    """Refuse constructor arguments as torch.nn.LSTM does: same exceptions, same wording."""
    check_dropout(dropout)
    for name, value, kind in (
        ("bias", bias, bool),
        ("batch_first", batch_first, bool),
        ("input_size", input_size, int),
        ("hidden_size", hidden_size, int),
        ("num_layers", num_layers, int),
    ):
        # bool is an int to Python, and no size.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise TypeError(
                f"{name} should be of type {kind.__name__}, got: {type(value).__name__}"
            )
    for name, value in (
        ("input_size", input_size),
        ("hidden_size", hidden_size),
        ("num_layers", num_layers),
    ):
        if value <= 0:
            raise ValueError(f"{name} must be greater than zero")
    if dropout > 0 and num_layers == 1:
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout "
            f"expects num_layers greater than 1, but got dropout={dropout} and "
            f"num_layers={num_layers}",
            stacklevel=3,
        )


def check_cell(input_size: Any, hidden_size: Any, bias: Any, dtype: Any) -> None:
    """Refuse sizes of a cell, and what else its parameters follow from, as a layer refuses them.

    Raises:
        TypeError: an argument of the wrong type.
        ValueError: a size below 1.
    """
    for name, size in (("input_size", input_size), ("hidden_size", hidden_size)):
        if not is_whole(size):
            raise TypeError(f"{name} should be of type int, got: {type(size).__name__}")
        if size <= 0:
            raise ValueError(f"{name} must be greater than zero, got {size}")
    check_bool("bias", bias)
    check_dtype(dtype)


def check_dtype(dtype: Any) -> None:
    """Refuse a type of numbers that no gradient step can be taken in.

    Raises:
        TypeError: neither None nor a real floating-point type.
    """
    real = isinstance(dtype, torch.dtype) and dtype.is_floating_point
    if dtype is not None and not real:
        raise TypeError(
            f"dtype should be a floating-point torch.dtype such as torch.float32, got: {dtype!r}"
        )


def check_sequences(count: Any) -> None:
    """Refuse a number of sequences that isn't one; 0 is one.

    Raises:
        TypeError: not a whole number.
        ConfigError: below 0.
    """
    _check_count("sequences", count, 0)


def check_particles(count: Any) -> None:
    """Refuse a number of particles that isn't one.

    Raises:
        TypeError: not a whole number.
        ConfigError: below 1.
    """
    _check_count("num_particles", count, 1)


def _check_count(name: str, count: Any, least: int) -> None:
    if not is_whole(count):
        raise TypeError(f"{name} should be of type int, got: {type(count).__name__}")
    if count < least:
        at_least = "0 or more" if least == 0 else f"at least {least}"
        raise ConfigError(f"{name}: expected {at_least}, got {count}")
