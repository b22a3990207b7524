"""The interpreter that patches once a launch computes, and leaves the language as it was."""

from __future__ import annotations

import os

import pytest
import torch

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

import triton
import triton.language as tl
from triton.runtime import interpreter

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="kernels are compiled here, not interpreted"
)


@triton.jit
def doubled(x):
    return x + x


@triton.jit
def four_and_sum(out, values, SIZE: tl.constexpr, WRONG: tl.constexpr):
    place = tl.arange(0, SIZE)
    x = tl.load(values + place)
    tl.static_assert(not WRONG)
    tl.store(out + place, doubled(doubled(x)) + tl.sum(x))


def test_every_launch_patches_anew_and_undoes_it() -> None:
    values, out = torch.arange(4.0), torch.zeros(4)
    language = tl.range, tl.arange, tl.load, tl.tensor.__add__, tl.static_assert
    for _ in range(2):
        four_and_sum[(1,)](out.zero_(), values, 4, False)
        assert torch.equal(out, 4 * values + 6)
        assert interpreter._patched_before == set()
        now = tl.range, tl.arange, tl.load, tl.tensor.__add__, tl.static_assert
        assert now == language
    with pytest.raises(interpreter.InterpreterError):
        four_and_sum[(1,)](out, values, 4, True)
    assert interpreter._patched_before == set()
    four_and_sum[(1,)](out.zero_(), values, 4, False)
    assert torch.equal(out, 4 * values + 6)


def test_a_device_function_is_patched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    patched = []
    builtin = interpreter._patch_builtin
    monkeypatch.setattr(
        interpreter,
        "_patch_builtin",
        lambda lang, *rest: (patched.append(lang), builtin(lang, *rest)),
    )
    four_and_sum[(1,)](torch.zeros(4), torch.arange(4.0), 4, False)
    # By the launch; a second time with the language's core, which tl.sum's own module names.
    # Triton itself does it at each of the four calls.
    assert 1 <= patched.count(tl) <= 2
    assert patched.count(tl.core) == 1
