"""docs/api.md is what the docstrings say, and every public name has its sections."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
_spec = importlib.util.spec_from_file_location("render_api", DOCS / "render_api.py")
render_api = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(render_api)


def test_the_page_is_up_to_date():
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    assert text == render_api.render(), "run `python docs/render_api.py`"


@pytest.mark.parametrize("module", render_api.MODULES)
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
