"""The list of data sets, found by looking into ``pfrnn/data/sets``."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pfrnn.data.sets
from pfrnn.config import validate
from pfrnn.data.base import Dataset, Protocol
from pfrnn.errors import ConfigError, suggestion


def dataset_names() -> tuple[str, ...]:
    """Return the names of all data sets, sorted; modules that start with ``_`` are not sets."""
    modules = pkgutil.iter_modules(pfrnn.data.sets.__path__)
    return tuple(sorted(module.name for module in modules if not module.name.startswith("_")))


def dataset(name: str) -> Dataset:
    """Look a data set up by name.

    Raises:
        ConfigError: there is no such data set.
    """
    names = dataset_names()
    if name not in names:
        raise ConfigError(f"unknown data set {name!r}{suggestion(name, names)}")
    found: Dataset = importlib.import_module(f"pfrnn.data.sets.{name}").DATASET
    return found


def protocol(name: str, values: dict[str, Any]) -> Protocol:
    """Validate a data set's part of params.yaml with its own model."""
    return validate(dataset(name).protocol, values, f"datasets.{name}")
