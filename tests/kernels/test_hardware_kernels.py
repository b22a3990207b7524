"""The bounds of the kernel tests leave room for a GPU's rounding; its sizes are the manual's."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

from pfrnn.functional.types import FilterSwitches
from pfrnn.kernels import plan
from pfrnn.kernels.plan import Plan, Tuning
from pfrnn.kernels.sequence import run_pf_fused

from .filter_cases import Case, draw
from .hardware import narrowed, rounding
from .test_filter_kernels import BF16_BOUND, BOUND, TF32_BOUND, check

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="imitates a GPU where there is none"
)
TANH = FilterSwitches(activation="tanh")
# Tiles small enough for several programs, wide enough for float16 factors.
NARROW = Tuning(forward_rows=16, backward_rows=16, ring=3, shares=2, narrow=True)
PLAN = Plan(
    gru=False, mode=1, alpha=0.5, softplus=False, activation=0, norm=True, norm_eps=1e-5, noise=2,
    given=False, valid=False, bptt=None, precision="tf32", tuning=Tuning(narrow=True),
)  # fmt: skip
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
def test_factors_of_the_weights_gradient_kept_as_float16(gru, monkeypatch):
    """Within the bound of TF32, and only the weights' own gradient sees it."""
    case, options = Case(gru, 3, 2, 3, 7, 32), {"precision": "tf32", "tuning": NARROW}
    plain = check(case, TANH, **options).gradients
    monkeypatch.setattr(plan, "narrows", lambda: True)
    with rounding(1):
        check(case, TANH, bound=TF32_BOUND, **options)
    narrow = check(case, TANH, bound=TF32_BOUND, **options).gradients
    recurrent = {"recurrent", "candidate"} if gru else {"recurrent"}
    assert recurrent < narrow.keys()
    for name, gradient in narrow.items():
        assert torch.equal(gradient, plain[name]) != (name in recurrent), name


@pytest.mark.parametrize(
    ("units", "precision", "changes", "expected"),
    [
        (64, "tf32", {}, torch.float16),
        (64, "tf32", {"narrow": False}, torch.float32),
        # Products read the gates' gradients from memory, in pieces.
        (65, "tf32", {}, torch.float32),
        (64, "tf32", {"backward_inner": 32}, torch.float32),
        (64, "tf32", {"weight_rows": 32}, torch.float32),
        (64, "ieee", {}, torch.float32),
        (64, "tf32x3", {}, torch.float32),
        (128, "bf16", {}, torch.bfloat16),
    ],
)
def test_what_else_reads_the_factors_keeps_them_float32(
    units, precision, changes, expected, monkeypatch
):
    monkeypatch.setattr(plan, "narrows", lambda: True)
    made = PLAN._replace(precision=precision, tuning=Tuning(**{"narrow": True} | changes))
    assert made.stored(units) == expected


LOSSES = {
    "particles": lambda out: out.hidden.square().sum() + out.log_weights.sum(),
    # Its gradient comes in with the last step's cells, and nowhere else.
    "cell": lambda out: out.final.cell.square().sum(),
}


@pytest.mark.parametrize(
    ("gru", "loss"),
    [(False, "particles"), (True, "particles"), (False, "cell")],
    ids=["lstm", "gru", "lstm-cell"],
)
def test_a_loss_of_any_size_has_the_same_gradients(gru, loss, monkeypatch):
    """float16 alone would lose gradients below 6e-8 and overflow past 65504."""
    monkeypatch.setattr(plan, "narrows", lambda: True)
    drawn = draw(Case(gru, 3, 2, 3, 7, 32))

    def gradients(size):
        leaves = [None if w is None else w.clone().requires_grad_() for w in drawn.weights]
        out = run_pf_fused(
            drawn.projected, drawn.state, drawn.noise, drawn.uniforms,
            type(drawn.weights)(*leaves), TANH, precision="tf32", tuning=NARROW,
        )  # fmt: skip
        (size * LOSSES[loss](out)).backward()
        return [leaf.grad / size for leaf in leaves if leaf is not None and leaf.grad is not None]

    expected = gradients(1.0)
    assert (expected[0] != 0).any()
    for size in (2.0**-60, 2.0**60):
        for one, other in zip(gradients(size), expected, strict=True):
            assert torch.equal(one, other)


def test_the_interpreter_keeps_float32():
    """Its TF32 products are float32, and tests ask that of them."""
    assert PLAN.stored(64) == torch.float32


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
