"""The choice between fused, compiled and plain, and its reason."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from pfrnn.errors import ConfigError
from pfrnn.functional.pf_gru import pf_gru_step
from pfrnn.functional.pf_lstm import pf_lstm_step
from pfrnn.functional.types import FilterSwitches
from pfrnn.kernels import dispatch
from pfrnn.kernels.dispatch import Problem, choose, refusal

TRITON = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)


@pytest.fixture(autouse=True)
def _no_override(monkeypatch):
    monkeypatch.delenv(dispatch.VARIABLE, raising=False)


def problem(**changes):
    base = Problem(pf_lstm_step, FilterSwitches(), 30, 64, torch.device("cpu"))
    return base._replace(**changes)


@pytest.mark.parametrize("interpreter", ["0", "1"])
def test_a_cpu_takes_the_plain_way(monkeypatch, interpreter):
    monkeypatch.setenv("TRITON_INTERPRET", interpreter)
    choice = choose(problem())
    assert choice.name == "plain"
    assert "cpu" in choice.reason or "triton" in choice.reason


def test_the_variable_overrides(monkeypatch):
    monkeypatch.setenv(dispatch.VARIABLE, "plain")
    assert choose(problem()).reason == "PFRNN_KERNELS=plain"
    monkeypatch.setenv(dispatch.VARIABLE, "quick")
    with pytest.raises(ConfigError, match="auto, fused, compiled, plain"):
        choose(problem())


def test_asking_for_fused_where_it_cannot_be_is_an_error(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.setenv(dispatch.VARIABLE, "fused")
    with pytest.raises(ConfigError, match="refuse"):
        choose(problem())


@TRITON
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtype": torch.float64}, "float32"),
        ({"particles": 129}, "129 particles"),
        ({"units": 512}, "512 hidden units"),
        ({"step": print}, "step only"),
        ({"switches": FilterSwitches(batch_norm="particle_slot")}, "particle slot"),
        ({"switches": FilterSwitches(ess_threshold=0.5)}, "effective sample size"),
        ({"step": pf_gru_step, "switches": FilterSwitches(gru_noise="reset")}, "reset hidden"),
        ({"step": pf_gru_step, "switches": FilterSwitches(reset_after=True)}, "reset gate"),
    ],
)
def test_what_the_kernels_refuse(monkeypatch, changes, words):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert words in refusal(problem(**changes))


@TRITON
def test_what_the_kernels_take(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert refusal(problem()) is None
    assert refusal(problem(step=pf_gru_step, particles=1, units=33)) is None
    monkeypatch.setenv(dispatch.VARIABLE, "fused")
    choice = choose(problem(), precision="ieee")
    assert choice.name == "fused"
    assert "ieee" in choice.reason


@TRITON
def test_a_precision_is_judged_before_anything_runs(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv(dispatch.VARIABLE, "fused")
    with pytest.raises(ConfigError, match=r"tf31.*tf32"):
        choose(problem(), precision="tf31")
