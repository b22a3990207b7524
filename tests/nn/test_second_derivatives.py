"""Gradients of gradients: refused where a backward is written by hand, right in their context.

They were zeros, or a part of what they should be, without a word.
"""

from __future__ import annotations

import pytest
import torch

from pfrnn import PFGRU, PFLSTM
from pfrnn.functional import twice_differentiable

DOUBLE = torch.float64


def scalar(layer, noise, uniforms):
    """The outputs' squares as a function of the input alone."""
    return lambda x: layer(x, noise=noise, uniforms=uniforms)[0].square().sum()


@pytest.fixture(params=[PFLSTM, PFGRU])
def world(request):
    """A function of x in evaluation mode, and x."""
    layer = request.param(2, 3, num_particles=2, activation="tanh", dtype=DOUBLE).eval()
    noise = torch.randn(1, 2, 2, 2, 3, dtype=DOUBLE)
    uniforms = torch.rand(1, 2, 2, 2, dtype=DOUBLE)
    return scalar(layer, noise, uniforms), torch.randn(2, 2, 2, dtype=DOUBLE)


def test_a_graph_of_gradients_is_refused(world):
    function, x = world
    leaf = x.clone().requires_grad_()
    assert torch.autograd.grad(function(leaf), leaf)[0].abs().max() > 0
    with pytest.raises(RuntimeError, match="twice_differentiable"):
        torch.autograd.grad(function(leaf), leaf, create_graph=True)
    with pytest.raises(RuntimeError, match="twice_differentiable"):
        torch.autograd.functional.hessian(function, x)


def test_inside_the_context_they_are_torch_funcs(world):
    function, x = world
    with twice_differentiable():
        found = torch.autograd.functional.hessian(function, x)
    exact = torch.func.hessian(function)(x)
    assert exact.abs().max() > 1e-3
    torch.testing.assert_close(found, exact, rtol=1e-9, atol=1e-12)
    assert torch.autograd.grad(function(x.requires_grad_()), x)[0].abs().max() > 0
