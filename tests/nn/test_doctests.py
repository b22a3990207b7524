"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest
import torch

PACKAGE = Path(__file__).parents[2] / "pfrnn"
MODULES = [
    ".".join(("pfrnn", *path.relative_to(PACKAGE).with_suffix("").parts))
    for path in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


def test_examples_are_found() -> None:
    assert {"pfrnn.nn.rnn", "pfrnn.study.variants", "pfrnn.study.evaluate.statistics"} <= set(
        MODULES
    )


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(name), extraglobs={"torch": torch})
    assert result.attempted > 0
    assert result.failed == 0
