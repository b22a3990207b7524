"""Kernels compiled side by side: once a process, and never in the way of a launch."""

from __future__ import annotations

from typing import ClassVar

import pytest

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

import triton

from pfrnn.kernels import together


class Mode:
    """Stands in for Triton's; the real one compiles in test_compiles.py."""

    opened: ClassVar[list[bool]] = []

    def __init__(self, pool, *, ignore_errors):
        self.opened.append(ignore_errors)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setattr(together, "_done", set())
    monkeypatch.setattr(Mode, "opened", [])
    monkeypatch.setattr(triton, "AsyncCompileMode", Mode, raising=False)


def test_a_program_is_asked_for_once_and_its_failure_left_to_its_launch():
    asked = []
    for key in ("one", "one", "two"):
        together.compile_together(key, [lambda: asked.append(1), lambda: asked.append(2)])
    assert asked == [1, 2, 1, 2]
    assert Mode.opened == [True, True]


def test_an_older_triton_compiles_at_the_launch(monkeypatch):
    monkeypatch.delattr(triton, "AsyncCompileMode")
    together.compile_together("one", [lambda: pytest.fail("asked")])
