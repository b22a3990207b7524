"""What the kernels refuse to read, and what they must not hide."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

from pfrnn.functional.types import FilterSwitches, Readout
from pfrnn.kernels.sequence import run_pf_fused

from .filter_cases import Case, Drawn, draw, read_out


def run(drawn: Drawn, weights=None, readout=None, activation="relu"):
    return run_pf_fused(
        drawn.projected, drawn.state, drawn.noise, drawn.uniforms, weights or drawn.weights,
        FilterSwitches(activation=activation), precision="ieee", readout=readout,
    )  # fmt: skip


@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
def test_weights_of_another_shape_or_type_are_refused(device, gru):
    """A kernel would read past their end, or another member's."""
    drawn = draw(Case(gru, 2, 2, 3, 4, 8, device))
    for name in drawn.weights._fields:
        value = getattr(drawn.weights, name)
        if value is None:
            continue
        for wrong in (value[:1], value[0], value[..., :-1], value.double()):
            with pytest.raises(ValueError, match=rf"weights.{name}: .*expect"):
                run(drawn, drawn.weights._replace(**{name: wrong}))


def test_a_head_of_another_shape_is_refused(device):
    drawn = draw(Case(False, 2, 2, 3, 4, 8, device))
    head = read_out(drawn, 3)
    for wrong in (head.weight[:1], head.weight[0], head.weight[:, :6], head.weight.half()):
        with pytest.raises(ValueError, match=r"readout.weight: .*expect"):
            run(drawn, readout=Readout(wrong))
    with pytest.raises(ValueError, match=r"readout.bias: .*expect"):
        run(drawn, readout=Readout(head.weight, head.bias[0]))
    with pytest.raises(ValueError, match=r"projected input: .*expect"):
        run(drawn._replace(projected=drawn.projected[..., :-1]))


@pytest.mark.filterwarnings("ignore:All-NaN slice")
@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "tanh"])
@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
def test_what_is_no_number_stays_none(device, gru, activation):
    """A member with a broken weight must not have finite predictions, nor its neighbour others."""
    drawn = draw(Case(gru, 3, 2, 3, 5, 8, device))
    sound = run(drawn, readout=read_out(drawn, 1), activation=activation)
    gain = drawn.weights.norm_gain.clone()
    gain[0] = torch.nan
    broken = run(
        drawn, drawn.weights._replace(norm_gain=gain), read_out(drawn, 1), activation=activation
    )
    assert broken.read[:, 0].isnan().all()
    assert broken.log_weights[:, 0].isnan().all()
    assert torch.equal(broken.read[:, 1], sound.read[:, 1])


def test_second_derivatives_are_refused(device):
    """They don't exist here; a penalty on the gradient must not be lost without a word."""
    drawn = draw(Case(False, 2, 2, 3, 4, 8, device))
    projected = drawn.projected.clone().requires_grad_()
    out = run(drawn._replace(projected=projected))
    with pytest.raises(RuntimeError, match=r"create_graph=True: .* no second derivative"):
        torch.autograd.grad(out.hidden.square().sum(), projected, create_graph=True)
