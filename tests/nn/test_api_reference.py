"""Every public name of the library has a docstring with its sections; the docs site shows them."""

from __future__ import annotations

import importlib
import inspect

import pytest


@pytest.mark.parametrize("module", ["pfrnn.nn", "pfrnn.functional"])
def test_every_public_name_is_documented(module):
    loaded = importlib.import_module(module)
    for name in loaded.__all__:
        value = getattr(loaded, name)
        if not callable(value):
            continue
        text = inspect.getdoc(value)
        assert text, name
        # A NamedTuple without a docstring of its own has its signature instead.
        assert not text.startswith(f"{name}("), name
        if inspect.isfunction(value) and len(inspect.signature(value).parameters) > 2:
            assert "Args:" in text or "Arguments:" in text, name
