"""Typed models that refuse what they don't know; errors that name the file, the key, the cure."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from pfrnn.errors import ConfigError, suggestion


class Strict(BaseModel):
    """A frozen model that refuses unknown keys, and values of another type.

    Pydantic would read YAML's ``true`` as the number 1, ``"3"`` as 3 and ``1`` as true. Text for a
    number with a fraction passes: YAML reads 1e-4, without a dot, as text.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _convert_nothing(cls, value: Any, info: ValidationInfo) -> Any:
        kinds = _leaf_types(cls.model_fields[str(info.field_name)].annotation)
        for item in value if isinstance(value, list | tuple) else (value,):
            if isinstance(item, bool) and kinds and not kinds & {bool, object}:
                raise ValueError("expected a number or text, not true or false")
            if isinstance(item, str | float) and kinds == {int}:
                raise ValueError("expected a whole number")
            if (
                isinstance(item, str | float | int)
                and kinds == {bool}
                and item not in (True, False)
            ):
                raise ValueError("expected true or false")
        return value


def _leaf_types(annotation: Any) -> set[type]:
    """Types of the values that an annotation's sequences and unions hold; None left out."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _leaf_types(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType, tuple, list):
        parts = (part for part in typing.get_args(annotation) if part is not Ellipsis)
        return set().union(*map(_leaf_types, parts))
    if annotation is Any or origin is not None:
        return {object}
    return {annotation} - {type(None)} if isinstance(annotation, type) else set()


class Layer(NamedTuple):
    """One source of values: its name in messages, and what it says."""

    name: str
    values: Mapping[str, Any]


ModelT = typing.TypeVar("ModelT", bound=BaseModel)


def validate(
    model: type[ModelT],
    values: Mapping[str, Any],
    where: str,
    layers: Sequence[Layer] = (),
) -> ModelT:
    """Validate ``values``; report every fault with its key's path and, for a typo, a proposal.

    Args:
        model: what the values must be.
        values: plain data.
        where: what they are, for the message.
        layers: the sources that ``values`` were merged from, in turn. A fault is then reported
            under the last one that has its key.

    Raises:
        ConfigError: with one line a fault.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        found: dict[str, list[str]] = {}
        for fault in error.errors():
            source = _source(fault["loc"], layers) or where
            found.setdefault(source, []).append(_describe(model, fault))
        text = "\n".join(f"{source}:\n  " + "\n  ".join(lines) for source, lines in found.items())
        raise ConfigError(text) from error


def _source(location: Sequence[Any], layers: Sequence[Layer]) -> str | None:
    """Name of the last layer that says something at ``location``."""
    for layer in reversed(layers):
        name: str = layer.name
        current: Any = layer.values
        for part in location:
            if not isinstance(current, Mapping):
                return name  # inside a list, which a layer replaces whole
            if part not in current:
                break
            current = current[part]
        else:
            return name
    return None


def _describe(model: type[BaseModel], fault: Any) -> str:
    location = fault["loc"]
    path = ".".join(str(part) for part in location)
    if fault["type"] == "extra_forbidden":
        known = _fields_at(model, location[:-1])
        return f"{path}: unknown key{suggestion(str(location[-1]), known, 'known keys')}"
    if fault["type"] == "missing":
        return f"{path}: missing; add it"
    return f"{path}: {fault['msg'].removeprefix('Value error, ')}, got {fault['input']!r}"


def _fields_at(model: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    """Names of the fields of the model that stands at ``location`` inside ``model``."""
    current: Any = model
    for part in location:
        field = getattr(current, "model_fields", {}).get(part)
        current = field.annotation if field is not None else None
    return list(getattr(current, "model_fields", {}))
