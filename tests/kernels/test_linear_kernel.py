"""A population's products in kernels against float64."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

from pfrnn.functional.linear import affine, products
from pfrnn.kernels.linear import MAX_INPUTS, product

# Products of nearly float32 and sums of float32 against float64: largest error over largest value.
BOUND = 1e-5
CASES = [  # steps, members, sequences, inputs, outputs, bias, whether memory begins with members
    (1, 1, 1, 8, 1, True, False),
    (3, 3, 5, 8, 64, True, True),
    (3, 1, 5, 33, 52, False, False),
    (1, 3, 5, 64, 241, True, False),
    (3, 3, 1, 100, 1, False, True),
    # Several programs, and shares of several blocks.
    (45, 2, 7, 8, 1, True, False),
    (41, 1, 5, 64, 321, True, True),
]


def laid_out(x, members_first):
    """Memory of (T, M, N, D) or of (M, T, N, D), seen as (T, M, N, D)."""
    return x.transpose(0, 1).contiguous().transpose(0, 1) if members_first else x


def draw(case, device):
    steps, members, sequences, inputs, outputs, bias, members_first = case
    generator = torch.Generator().manual_seed(inputs + outputs)

    def normal(*shape):
        return torch.randn(*shape, generator=generator).to(device)

    x = laid_out(normal(steps, members, sequences, inputs), members_first)
    weight = normal(members, inputs, outputs) / inputs**0.5
    grad = laid_out(normal(steps, members, sequences, outputs), True)
    return [x, weight, normal(members, outputs) if bias else None], grad


def evaluate(function, drawn, grad):
    leaves = [None if one is None else one.detach().requires_grad_() for one in drawn]
    out = function(*leaves)
    given = [leaf for leaf in leaves if leaf is not None]
    return [out, *torch.autograd.grad(out, given, grad)]


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_the_references(device, case):
    drawn, grad = draw(case, device)
    found = evaluate(product, drawn, grad)
    wide = [None if one is None else one.double() for one in drawn]
    for got, wanted in zip(found, evaluate(affine, wide, grad.double()), strict=True):
        error = (got.double() - wanted).abs().max() / wanted.abs().max()
        assert float(error) < BOUND
    assert found[0].transpose(0, 1).is_contiguous()
    again = evaluate(product, drawn, grad)
    assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True))


def test_affine_takes_them_inside_products(device):
    drawn, _ = draw(CASES[1], device)
    with products(product):
        assert torch.equal(affine(*drawn), product(*drawn))


def test_what_is_left_to_the_library(device):
    x, weight = torch.ones(2, 3, 4, 8, device=device), torch.ones(3, 8, 5, device=device)
    assert product(x[0], weight, None) is NotImplemented
    assert product(x.double(), weight.double(), None) is NotImplemented
    assert product(x[:, :, :0], weight, None) is NotImplemented
    wide = torch.ones(1, 1, 1, MAX_INPUTS + 1, device=device)
    assert product(wide, torch.ones(1, MAX_INPUTS + 1, 2, device=device), None) is NotImplemented


def test_second_derivatives_are_refused(device):
    (x, weight, _), _ = draw(CASES[1], device)
    x.requires_grad_()
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(product(x, weight, None).square().sum(), x, create_graph=True)
