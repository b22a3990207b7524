"""The list of data sets, found by looking into ``pfrnn/study/data/sets``."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pfrnn.study.data.sets
from pfrnn.errors import ConfigError, suggestion
from pfrnn.study.config import validate
from pfrnn.study.data.base import Dataset, Protocol


def dataset_names() -> tuple[str, ...]:
    """Return the names of all data sets, sorted; modules that start with ``_`` are not sets."""
    modules = pkgutil.iter_modules(pfrnn.study.data.sets.__path__)
    return tuple(sorted(module.name for module in modules if not module.name.startswith("_")))


def dataset(name: str) -> Dataset:
    """Look a data set up by name.

    Raises:
        ConfigError: there is no such data set.
    """
    names = dataset_names()
    if name not in names:
        raise ConfigError(f"unknown data set {name!r}{suggestion(name, names)}")
    found: Dataset = importlib.import_module(f"pfrnn.study.data.sets.{name}").DATASET
    return found


def protocol(name: str, values: dict[str, Any]) -> Protocol:
    """Validate a data set's part of params.yaml with its own model."""
    return validate(dataset(name).protocol, values, f"datasets.{name}")
