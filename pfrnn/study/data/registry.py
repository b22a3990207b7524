"""The list of data sets, found by looking into ``pfrnn/study/data/sets``."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pfrnn.study.data.sets
from pfrnn.errors import ConfigError, suggestion
from pfrnn.study.config import validate
from pfrnn.study.data.base import Alternative, Dataset, Protocol


def dataset_names() -> tuple[str, ...]:
    """Return the names of all data sets, sorted; modules that start with ``_`` are not sets."""
    modules = pkgutil.iter_modules(pfrnn.study.data.sets.__path__)
    return tuple(sorted(module.name for module in modules if not module.name.startswith("_")))


def dataset(name: str) -> Dataset:
    """Look a data set up by name.

    Raises:
        ConfigError: there is no such data set, or its module has an error.
    """
    names = dataset_names()
    if name not in names:
        raise ConfigError(f"unknown data set {name!r}{suggestion(name, names)}")
    module = f"pfrnn.study.data.sets.{name}"
    try:
        found = importlib.import_module(module).DATASET
    except Exception as error:
        raise ConfigError(f"data set {name}: {module}: {type(error).__name__}: {error}") from error
    if not isinstance(found, Dataset):
        raise ConfigError(f"data set {name}: {module}.DATASET: expected a Dataset")
    return found


def protocol(name: str, values: dict[str, Any]) -> Protocol:
    """Validate a data set's part of params.yaml with its own model."""
    return validate(dataset(name).protocol, values, f"datasets.{name}")


def alternatives(name: str) -> tuple[tuple[Alternative, bool], ...]:
    """Return a data set's named alternative protocols, each with whether it leaks on purpose."""
    found = dataset(name)
    return tuple(
        (each, found.protocol.model_validate(dict(each.values)).leaky)
        for each in found.alternatives
    )
