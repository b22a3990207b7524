"""Given uniforms outside [0, 1) are refused on the CPU, and not looked at where that would cost."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pfrnn.functional import (
    FilterSwitches,
    multinomial_resample,
    normalize,
    pf_gru_step,
    resample,
    run_pf,
    soft_resample,
    systematic_resample,
)
from pfrnn.functional.uniforms import check_uniforms
from pfrnn.nn import PFGRU, PFLSTM, PFGRUCell, PFLSTMCell

T, N, K, D, H = 3, 2, 4, 3, 5
WRONG = [(1.0, "0.5 to 1;"), (-0.25, "-0.25 to 0.5;"), (7.0, "0.5 to 7;"), (float("nan"), "nan")]
wrong_values = pytest.mark.parametrize(("value", "came"), WRONG, ids=str)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_rounds_to_one(dtype):
    """bfloat16 has nothing between 0.998 and 1, so torch.rand rounded to it reaches 1."""
    check_uniforms(torch.tensor([0.0, 0.9999], dtype=torch.float32).to(dtype))
    for value in (1.01, -0.01, float("nan")):
        with pytest.raises(ValueError, match=r"expected numbers in \[0, 1\)"):
            check_uniforms(torch.tensor([0.5, value]).to(dtype))
    with pytest.raises(ValueError, match=r"expected numbers in \[0, 1\)"):
        check_uniforms(torch.tensor([0.5, 1.0]))


def uniforms_with(value, *shape):
    uniforms = torch.full(shape, 0.5)
    uniforms.view(-1)[-1] = value
    return uniforms


def refused(came):
    return pytest.raises(ValueError, match=rf"uniforms: expected numbers in \[0, 1\), got .*{came}")


@wrong_values
@pytest.mark.parametrize(
    "draw",
    [
        partial(soft_resample, alpha=0.5),
        partial(soft_resample, alpha=1.0),
        multinomial_resample,
        systematic_resample,
        *(partial(resample, method=name) for name in ("soft", "multinomial", "systematic")),
    ],
)
def test_resamplers(draw, value, came):
    log_weights = normalize(torch.randn(N, K))
    draw(log_weights, uniforms_with(0.0, N, K))
    draw(log_weights, uniforms_with(1 - 2.0**-24, N, K))  # the largest below 1 in float32
    with refused(came):
        draw(log_weights, uniforms_with(value, N, K))


@wrong_values
@pytest.mark.parametrize("cls", [PFLSTM, PFGRU])
def test_layers_leave_everything_as_it_was(cls, value, came):
    layer, x = cls(D, H, num_layers=2, num_particles=K), torch.randn(T, N, D)
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    for call in (layer, layer.filter):
        with refused(came):
            call(x, uniforms=uniforms_with(value, 2, T, N, K))
    for name, tensor in layer.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    layer(x, uniforms=uniforms_with(0.0, 2, T, N, K))


@wrong_values
@pytest.mark.parametrize("cls", [PFLSTMCell, PFGRUCell])
def test_cells(cls, value, came):
    cell = cls(D, H, num_particles=K)
    with refused(came):
        cell(torch.randn(N, D), uniforms=uniforms_with(value, N, K))
    with refused(came):
        cell.unroll(torch.randn(T, N, D), uniforms=uniforms_with(value, T, N, K))


def test_a_run_of_the_functional_core():
    cell = PFGRUCell(D, H, num_particles=K)
    state, projected = cell.initial_state(N), cell.project(torch.randn(T, N, D))
    uniforms = uniforms_with(1.5, T, N, K)
    rest = (state, torch.randn(T, N, K, H), uniforms, cell.weights(), FilterSwitches())
    with refused("0.5 to 1.5;"):
        run_pf(pf_gru_step, projected, *rest)
    # A caller that has drawn them may say so; then, as where nobody looks, 1.5 is nearly 1.
    kept = run_pf(pf_gru_step, projected, *rest, trusted=True)
    assert torch.all((kept.ancestors >= 0) & (kept.ancestors < K))


def test_numbers_without_values_are_not_looked_at():
    wrong = uniforms_with(2.0, N, K)
    log_weights = normalize(torch.randn(N, K))
    for meaningless in (None, ("a", "key"), torch.empty(N, K, device="meta"), torch.empty(0, K)):
        check_uniforms(meaningless)
    with FakeTensorMode():
        check_uniforms(torch.empty(N, K))
    # A look would fail there: "data-dependent control flow".
    drawn = torch.func.vmap(lambda u: resample(log_weights, u, "soft").ancestors)(wrong[None])
    assert drawn.shape == (1, N, K)

    compiled = torch.compile(
        partial(soft_resample, log_weights, alpha=0.5), backend="eager", fullgraph=True
    )
    clamped = soft_resample(log_weights, wrong.clamp(0, 1 - 2.0**-24), 0.5)
    assert torch.equal(compiled(wrong).ancestors, clamped.ancestors)
