"""The fused filter against the float64 reference, forward and every gradient.

On a machine without a GPU the kernels run in Triton's interpreter, on small sizes.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

from pfrnn.errors import ConfigError
from pfrnn.functional.types import FilterSwitches
from pfrnn.kernels import tuning as module
from pfrnn.kernels.tuning import (
    CROWDED,
    Tuning,
    chosen_tuning,
    crowded,
    decoded,
    encoded,
    tuning_for,
)

from .filter_cases import Case, draw, errors, evaluate

PAPER = FilterSwitches()
# Small tiles, so that small cases still have several programs, shares and rings.
SMALL = Tuning(
    forward_rows=16, backward_rows=16, forward_inner=16, backward_inner=16, weight_rows=16,
    ring=3, shares=2,
)  # fmt: skip
ONE_PIECE = SMALL._replace(forward_inner=128, backward_inner=128)
# float32 products and sums against float64: the largest error over the largest value.
BOUND = 1e-5
# Factors of 11 bits, cut off: 3.2e-3 was the largest error of the GPU tests' cases with such
# products and the PTX manual's errors of the elementary functions.
TF32_BOUND = 5e-3


def check(case: Case, switches: FilterSwitches = PAPER, bound: float = BOUND, **options: Any):
    options = {"precision": "ieee", "tuning": ONE_PIECE} | options
    drawn = draw(case)
    fast = evaluate(drawn, switches, fused=True, **options)
    ancestors = fast.output.ancestors
    slow = evaluate(drawn, switches, fused=False, ancestors=ancestors, **options)
    assert torch.equal(slow.output.ancestors, ancestors)
    found = errors(fast, slow)
    assert max(found.values()) < bound, found
    return fast


@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
@pytest.mark.parametrize(
    ("steps", "members", "sequences", "particles", "units"),
    # One particle of 9 sequences: batch norm over 3 values alone amplifies any rounding.
    [(1, 2, 3, 7, 33), (3, 2, 9, 1, 16), (2, None, 2, 5, 8)],
)
def test_equals_the_reference(device, gru, steps, members, sequences, particles, units):
    check(Case(gru, steps, members, sequences, particles, units, device, seed=steps))


@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
def test_the_tuning_of_large_sizes(device, gru):
    """What the code chooses: launches are split, sums taken in pieces."""
    assert tuning_for(33, 65) == tuning_for(30, 128)._replace(split=True)
    check(Case(gru, 2, 1, 1, 33, 65, device), tuning=None)


def test_the_tuning_goes_by_the_size_alone():
    for units in (1, 33, 64):
        for particles in (1, 20, 32):
            own = Tuning(crowd=units > 32)
            assert tuning_for(particles, units) == own
    assert tuning_for(60, 32) == tuning_for(128, 64) == Tuning(crowd=False)
    assert tuning_for(60, 64) == tuning_for(33, 33) == Tuning(split=True, crowd=False)
    assert tuning_for(30, 128) == tuning_for(30, 65)
    assert tuning_for(30, 128).forward_warps == 8
    assert not tuning_for(30, 128).crowd


# 64 programs a member, as 64 sequences of 17 to 32 particles have; multiprocessors of an H200, of
# a smaller card, of none. Where a card takes fewer turns with three programs a multiprocessor than
# with two:
CROWDS = {
    132: {1: False, 4: False, 5: True, 6: True, 7: False, 8: False, 9: True, 12: True, 36: True},
    60: {1: False, 2: True, 3: False, 4: True, 6: True},
    0: {1: False, 12: False, 36: False},
}


def test_large_populations_take_smaller_kernels_where_that_saves_turns():
    for card, populations in CROWDS.items():
        for members, expected in populations.items():
            found = crowded(Tuning(), 64 * members, card)
            assert found == (Tuning(**CROWDED) if expected else Tuning()), (card, members)
    assert crowded(Tuning(), 264, 132) == Tuning()
    assert crowded(Tuning(), 265, 132) == Tuning(**CROWDED)


def test_an_operator_takes_a_tuning_as_numbers():
    assert encoded(None) == []
    assert decoded([]) is None
    for tuning in (Tuning(), SMALL, Tuning(**CROWDED)):
        assert decoded(encoded(tuning)) == tuning


def test_only_sizes_that_were_timed_are_crowded(monkeypatch):
    monkeypatch.setattr(module, "multiprocessors", lambda device: 132)

    def is_crowded(particles: int, units: int, precision: str = "tf32", members: int = 12) -> bool:
        device = torch.device("cpu")
        found = chosen_tuning(members, 64, particles, units, precision, device)
        own = tuning_for(particles, units)
        assert found in (own, own._replace(**CROWDED))
        return found != own

    assert is_crowded(30, 64)
    assert is_crowded(17, 33)
    # Two sequences share a program: half as many.
    assert is_crowded(10, 64)
    assert not is_crowded(10, 64, members=6)
    assert not is_crowded(1, 64)
    for members in (12, 36):
        assert not is_crowded(30, 64, "ieee", members)
        for particles, units in ((30, 32), (30, 16), (33, 64), (60, 64), (30, 65), (100, 64)):
            assert not is_crowded(particles, units, members=members)


@pytest.mark.slow
@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
def test_equals_the_reference_over_eight_steps(device, gru):
    check(Case(gru, 8, 2, 3, 7, 33, device))


@pytest.mark.parametrize(
    "switches",
    [
        FilterSwitches(resampling="none"),
        FilterSwitches(resampling="multinomial"),
        FilterSwitches(resampling="systematic"),
        FilterSwitches(alpha=1.0),
        FilterSwitches(alpha=0.1, noise_scale="softplus", activation="leaky_relu"),
        FilterSwitches(batch_norm="none", activation="tanh"),
    ],
    ids=lambda s: f"{s.resampling}-{s.alpha}-{s.noise_scale}-{s.activation}-{s.batch_norm}",
)
@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
def test_switches(device, gru, switches):
    check(Case(gru, 2, 2, 3, 4, 16, device), switches)


@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
@pytest.mark.parametrize("tuning", [SMALL, ONE_PIECE._replace(split=True)], ids=["long", "split"])
def test_long_sums_and_split_launches(device, gru, tuning):
    check(Case(gru, 2, 2, 3, 4, 24, device), tuning=tuning)


@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
def test_padding_keeps_the_state_and_enters_no_statistics(device, gru):
    valid = torch.tensor([[[1, 1, 1], [1, 0, 1]], [[1, 0, 1], [1, 0, 0]], [[0, 0, 1], [0, 0, 0]]])
    case = Case(gru, 3, 2, 3, 4, 16, device)
    fast = check(case, valid=valid.bool().to(device))
    hidden = fast.values["hidden"]
    assert torch.equal(hidden[2, 0, 0], hidden[1, 0, 0])
    assert torch.equal(hidden[0, 1, 1], draw(case).state.hidden[1, 1])


@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
@pytest.mark.parametrize("timed", [False, True])
def test_given_statistics(device, gru, timed):
    generator = torch.Generator().manual_seed(5)
    shape = (3, 2, 16) if timed else (2, 16)
    mean = torch.randn(shape, generator=generator).to(device)
    variance = torch.rand(shape, generator=generator).to(device) + 0.5
    check(Case(gru, 3, 2, 3, 4, 16, device), statistics=(mean, variance))


@pytest.mark.parametrize("bptt", [1, 2])
def test_truncation_cuts_the_carried_gradient(device, bptt):
    check(Case(False, 4, 2, 2, 3, 16, device), bptt=bptt)


def test_two_runs_have_the_same_bits(device):
    drawn = draw(Case(True, 2, 2, 3, 4, 16, device))
    first, second = (evaluate(drawn, PAPER, fused=True, tuning=ONE_PIECE) for _ in range(2))
    for name, gradient in first.gradients.items():
        assert torch.equal(gradient, second.gradients[name]), name


def test_every_output_is_written(device):
    """Fresh memory is filled with NaN: one that nobody wrote would show."""
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.utils.deterministic.fill_uninitialized_memory
        drawn = draw(Case(False, 2, 2, 3, 5, 24, device))
        got = evaluate(drawn, PAPER, fused=True, tuning=ONE_PIECE)
    finally:
        torch.use_deterministic_algorithms(False)
    for name, value in (got.values | got.gradients).items():
        assert torch.isfinite(value).all(), name


@pytest.mark.parametrize("factor", [1.01, 0.99])
def test_a_wrong_gradient_would_be_seen(device, factor, monkeypatch):
    """The comparison's own test: a gradient off by a hundredth fails."""
    from pfrnn.kernels import run_backward

    original = run_backward._columns
    monkeypatch.setattr(run_backward, "_columns", lambda blocks: original(blocks * factor))
    with pytest.raises(AssertionError):
        check(Case(False, 1, 1, 2, 3, 16, device))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
def test_gpu_float32_products(gru):
    check(Case(gru, 8, 3, 5, 30, 64, "cuda"), precision="ieee", tuning=None)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
@pytest.mark.parametrize(
    ("steps", "particles", "units"),
    # The usual size, and those with a tuning of their own: many particles, wide layers, both.
    [(1, 30, 64), (8, 30, 64), (8, 60, 64), (8, 30, 128), (8, 33, 65), (8, 60, 128)],
)
def test_gpu_tf32_products(steps, particles, units, gru):
    """With a smooth activation: ReLU's kink turns a rounding error into a jump of a gradient."""
    switches = FilterSwitches(activation="tanh")
    case = Case(gru, steps, 3, 5, particles, units, "cuda")
    fast = check(case, switches, bound=TF32_BOUND, precision="tf32", tuning=None)
    again = evaluate(draw(case), switches, fused=True, precision="tf32", tuning=None)
    for name, gradient in again.gradients.items():
        assert torch.equal(gradient, fast.gradients[name]), name


def test_an_unknown_precision_is_an_error():
    with pytest.raises(ConfigError, match=r"expected one of tf32, ieee, got 'bf16'"):
        check(Case(False, 1, 1, 1, 2, 16), precision="bf16")
