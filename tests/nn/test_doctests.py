"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib

import pytest
import torch

MODULES = [
    "pfrnn.functional.belief",
    "pfrnn.functional.linear",
    "pfrnn.functional.losses",
    "pfrnn.functional.predictive",
    "pfrnn.functional.weights",
    "pfrnn.nn.cells",
    "pfrnn.nn.layers",
    "pfrnn.nn.plain",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(name), extraglobs={"torch": torch})
    assert result.attempted > 0
    assert result.failed == 0
