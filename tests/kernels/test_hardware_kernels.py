"""The bounds of the kernel tests leave room for a GPU's rounding; its sizes are the manual's."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

from pfrnn.functional.types import FilterSwitches

from .filter_cases import Case
from .hardware import narrowed, rounding
from .test_filter_kernels import BF16_BOUND, BOUND, TF32_BOUND, check

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="imitates a GPU where there is none"
)
TANH = FilterSwitches(activation="tanh")
# Of three sequences all, two and none are there.
VALID = torch.tensor(
    [[[1, 1, 1], [1, 0, 1]], [[1, 0, 1], [1, 0, 0]], [[0, 0, 1], [0, 0, 0]]], dtype=torch.bool
)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
def test_float32_with_few_values_behind_the_statistics(gru, seed):
    """The case with the largest errors of all: padding leaves single sequences."""
    with rounding(seed):
        check(Case(gru, 3, 2, 3, 4, 16), valid=VALID)


@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
def test_a_single_particle_has_weight_one_and_no_gradient(gru):
    """Its log-weight is 0, and so the bound is: nothing may round."""
    with rounding(1):
        check(Case(gru, 3, 2, 9, 1, 16))


@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
def test_tf32_products(gru):
    case = Case(gru, 2, 2, 3, 7, 32)
    with rounding(1):
        check(case, TANH, bound=TF32_BOUND, precision="tf32")


@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
def test_bf16_products(gru):
    case = Case(gru, 2, 2, 3, 7, 32)
    with rounding(1):
        check(case, TANH, bound=BF16_BOUND, precision="bf16")


def test_bf16_is_rounded_to_the_nearest_as_torch_does():
    torch.manual_seed(0)
    ties = torch.tensor(
        [1 + 2.0**-8, 1 + 3 * 2.0**-8, -1 - 2.0**-8, 0.0, -0.0, 3.4e38, float("inf")]
    )
    x = torch.cat([torch.randn(1000), torch.randn(1000) * 1e-30, ties])
    expected = x.bfloat16().view(torch.int16)
    assert torch.equal(torch.from_numpy(narrowed(x.numpy()).view("int16")), expected)
    assert narrowed(torch.tensor([float("nan")]).numpy())[0] & 0x7F  # still no number


def test_bf16_rounding_is_seen():
    """A single such error is exceeded: the products were made from rounded factors."""
    with rounding(1), pytest.raises(AssertionError):
        check(Case(False, 2, 2, 3, 7, 32), TANH, bound=2.0**-9, precision="bf16")


def test_rounding_is_seen():
    """The imitation's own test: TF32's factors break float32's bound."""
    with rounding(1), pytest.raises(AssertionError):
        check(Case(False, 1, 1, 2, 3, 16), TANH, bound=BOUND, precision="tf32")
