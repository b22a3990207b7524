"""A linear head inside the kernels, against the float64 reference: outputs and every gradient."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

from pfrnn.functional.types import FilterSwitches
from pfrnn.kernels.run_backward import run_backward

from .filter_cases import Case, draw, evaluate
from .test_filter_kernels import ONE_PIECE, PAPER, SMALL, TF32_BOUND, check

CELLS = pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])


@CELLS
@pytest.mark.parametrize("particles", [False, True], ids=["alone", "beside"])
@pytest.mark.parametrize(
    ("outputs", "steps", "members", "sequences", "particles_", "units"),
    # The last two: no output is the first step's only, and a step is the first and the last.
    [(1, 3, 2, 3, 7, 33), (4, 2, 1, 1, 30, 16), (3, 3, 2, 9, 1, 16), (2, 1, None, 2, 5, 8)],
)
def test_equals_the_reference(
    device, gru, particles, outputs, steps, members, sequences, particles_, units
):
    case = Case(gru, steps, members, sequences, particles_, units, device, seed=steps)
    fast = check(case, outputs=outputs, particles=particles)
    assert fast.values["read"].shape[-1] == outputs
    assert (fast.output.hidden is None) != particles
    assert bool(fast.gradients["weight"].abs().min() > 0)


@pytest.mark.parametrize("particles", [False, True], ids=["alone", "beside"])
def test_no_gradient_of_all_hidden_states_is_asked_for(device, monkeypatch, particles):
    """The point of it all: with the outputs alone, that tensor is never made."""
    seen = []

    def watched(*arguments):
        seen.append([x is not None for x in arguments[-1]])
        return run_backward(*arguments)

    monkeypatch.setattr("pfrnn.kernels.filter.run_backward", watched)
    drawn = draw(Case(False, 2, 1, 2, 3, 16, device))
    evaluate(drawn, PAPER, True, outputs=1, particles=particles, tuning=ONE_PIECE)
    # Of hidden, log_weights, the last cell, the outputs.
    assert seen == [[particles, True, particles, True]]


@CELLS
@pytest.mark.parametrize("tuning", [SMALL, ONE_PIECE._replace(split=True)], ids=["long", "split"])
def test_long_sums_and_split_launches(device, gru, tuning):
    check(Case(gru, 4, 2, 3, 4, 24, device), outputs=2, particles=False, tuning=tuning)


@CELLS
def test_padding(device, gru):
    """Padded steps repeat the last output, and their gradient reaches that step."""
    valid = torch.tensor([[[1, 1, 1], [1, 0, 1]], [[1, 0, 1], [1, 0, 0]], [[0, 0, 1], [0, 0, 0]]])
    case = Case(gru, 3, 2, 3, 4, 16, device)
    fast = check(case, valid=valid.bool().to(device), outputs=4, particles=False)
    read = fast.values["read"]
    assert torch.equal(read[2, 0, 0], read[1, 0, 0])


@CELLS
@pytest.mark.parametrize("bptt", [1, 2])
def test_truncation_does_not_cut_the_heads_own_gradient(device, gru, bptt):
    check(Case(gru, 4, 2, 2, 3, 16, device), bptt=bptt, outputs=1, particles=False)


@pytest.mark.parametrize("resampling", ["none", "multinomial"])
def test_other_resampling(device, resampling):
    switches = FilterSwitches(resampling=resampling)
    check(Case(False, 2, 2, 3, 4, 16, device), switches, outputs=1, particles=False)


@CELLS
@pytest.mark.parametrize("particles", [False, True], ids=["alone", "beside"])
def test_without_a_head_nothing_changes(device, gru, particles):
    """The same bits of the filter with a head and without."""
    drawn = draw(Case(gru, 2, 2, 3, 4, 16, device))
    keys = ("log_weights", "hidden") if particles else ("log_weights",)
    plain, read = (
        evaluate(drawn, PAPER, True, outputs=n, particles=particles, tuning=ONE_PIECE)
        for n in (0, 1)
    )
    assert plain.output.read is None
    for key in keys:
        assert torch.equal(plain.values[key], read.values[key]), key


def test_a_wide_head_is_applied_outside(device):
    check(Case(False, 2, 2, 2, 3, 16, device), outputs=5, particles=False)


def test_every_output_and_gradient_is_written(device):
    """Fresh memory is filled with NaN: one that nobody wrote would show."""
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.utils.deterministic.fill_uninitialized_memory
        drawn = draw(Case(False, 2, 2, 3, 5, 24, device))
        got = evaluate(drawn, PAPER, True, outputs=3, particles=False, tuning=ONE_PIECE)
    finally:
        torch.use_deterministic_algorithms(False)
    for name, value in (got.values | got.gradients).items():
        assert torch.isfinite(value).all(), name


@pytest.mark.parametrize("name", ["head", "before"])
def test_a_wrong_gradient_would_be_seen(device, name, monkeypatch):
    """The comparison's own test: of the head's weights, and of what lies before it."""
    from pfrnn.kernels import filter as module

    if name == "head":
        wrong = {"head": 1.01}
    else:
        wrong = {"projected": 1.01}
    run = module.run_backward

    def changed(*arguments):
        found = run(*arguments)
        return found._replace(**{k: factor * getattr(found, k) for k, factor in wrong.items()})

    monkeypatch.setattr(module, "run_backward", changed)
    with pytest.raises(AssertionError):
        check(Case(False, 1, 1, 2, 3, 16, device), outputs=1, particles=False)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.parametrize("particles", [False, True], ids=["alone", "beside"])
@CELLS
def test_gpu_tf32_products(gru, particles, outputs):
    """At the full size of a tile, which the interpreter's cases aren't."""
    case = Case(gru, 8, 3, 5, 30, 64, "cuda")
    tanh = FilterSwitches(activation="tanh")
    check(
        case, tanh, TF32_BOUND, precision="tf32", tuning=None, outputs=outputs, particles=particles
    )
