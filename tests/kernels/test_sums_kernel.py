"""A population's sums in kernels against float64, and the bits that a member has alone."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

from pfrnn.functional.losses import elbo_loss, prediction_loss
from pfrnn.functional.sums import member_sums, replaced, sums
from pfrnn.kernels.sums import add_bias, fits, population_sums, shares_of, total

# T, M, N: one program, several, more values than the most programs take at once.
SIZES = [(1, 1, 1), (3, 2, 5), (1, 3, 1023), (7, 3, 300), (1, 2, 25_411), (2, 2, 80_000)]


def drawn(steps: int, members: int, sequences: int, device: str) -> Tensor:
    generator = torch.Generator().manual_seed(steps + sequences)
    return torch.randn(steps, members, sequences, generator=generator).to(device)


@pytest.mark.parametrize("size", SIZES)
def test_sums_against_float64(size, device):
    x = drawn(*size, device).requires_grad_()
    found = population_sums(x)
    exact = x.detach().double().sum((0, 2))
    # Of as many numbers as rounding errors may add up over, the absolute values.
    scale = x.detach().double().abs().sum((0, 2))
    assert ((found.double() - exact).abs() <= 1e-6 * scale).all()
    weights = torch.arange(1.0, size[1] + 1, device=device)
    (gradient,) = torch.autograd.grad(found, x, weights)
    assert torch.equal(gradient, weights.view(1, -1, 1).expand(size))


@pytest.mark.parametrize("size", SIZES)
def test_a_member_alone_has_the_bits_that_it_has_in_a_population(size, device):
    x = drawn(*size, device)
    found = population_sums(x)
    for m in range(size[1]):
        assert torch.equal(population_sums(x[:, m : m + 1].contiguous())[0], found[m])
        # Neither does memory's order count: a view of every member, then members first.
        assert torch.equal(population_sums(x[:, m : m + 1])[0], found[m])
    first = x.transpose(0, 1).contiguous().transpose(0, 1)
    assert torch.equal(population_sums(first), found)
    backwards = x.flip(1)
    assert torch.equal(population_sums(backwards).flip(0), found)


def test_a_loss_repeated_along_an_axis_is_summed_as_it_stands(device):
    x = torch.arange(6.0, device=device).view(1, 2, 3).expand(4, 2, 3)
    assert population_sums(x).tolist() == [12.0, 48.0]


@pytest.mark.parametrize("shape", [(1, 1, 1, 1, 1), (3, 2, 5, 4, 3), (9, 3, 16, 30, 4)])
def test_a_bias_and_its_gradient(shape, device):
    torch.manual_seed(3)
    x, grad = torch.randn(2, *shape, device=device)
    bias = torch.randn(shape[1], shape[4], device=device)
    found = []
    for add in (add_bias, lambda x, bias: x + bias[:, None, None, :]):
        leaves = x.clone().requires_grad_(), bias.clone().requires_grad_()
        out = add(*leaves)
        found.append([out, *torch.autograd.grad(out, leaves, grad)])
    for mine, librarys in zip(*[one[:2] for one in found], strict=True):
        assert torch.equal(mine, librarys)
    scale = grad.double().abs().sum((0, 2, 3))
    exact = grad.double().sum((0, 2, 3))
    assert ((found[0][2].double() - exact).abs() <= 1e-6 * scale).all()
    # Alone, and from memory in another order.
    for m in range(shape[1]):
        alone = bias[m : m + 1].clone().requires_grad_()
        other = grad[:, m : m + 1].transpose(0, 2).contiguous().transpose(0, 2)
        (mine,) = torch.autograd.grad(add_bias(x[:, m : m + 1], alone), alone, other)
        assert torch.equal(mine[0], found[0][2][m])
    assert torch.autograd.grad(add_bias(leaves[0], bias), leaves[0], grad)[0] is not None


def test_what_add_bias_refuses():
    x, bias = torch.ones(2, 3, 4, 5, 1), torch.ones(3, 1)
    for given in ((x[0], bias), (x, bias[:2]), (x.expand(2, 3, 4, 5, 17), torch.ones(3, 17))):
        with pytest.raises(ValueError, match=r"expected x .* and bias"):
            add_bias(*given)
    with pytest.raises(ValueError, match=r"expected float32, got torch.float64"):
        add_bias(x.double(), bias)


def test_programs_go_by_a_members_values():
    assert [shares_of(n) for n in (1, 2048, 2049, 25_411, 1_000_000)] == [1, 1, 2, 13, 64]
    assert shares_of(1000, 3) == 2


def test_what_the_kernels_refuse_is_left_to_the_library():
    double = torch.ones(2, 3, 4, dtype=torch.float64)
    assert not fits(double)
    assert not fits(torch.ones(2, 3))
    assert not fits(torch.ones(2, 0, 3))
    assert total(double) is NotImplemented
    with sums(total):
        assert member_sums(double).tolist() == [8.0, 8.0, 8.0]
        assert member_sums(torch.ones(2, 4)).item() == 8.0
    with pytest.raises(ValueError, match=r"expected float32 .*got \(2, 3, 4\) torch.float64"):
        population_sums(double)


def test_the_function_is_the_libraries_again_afterwards():
    assert not replaced()
    with suppress(RuntimeError), sums(total):
        assert replaced()
        raise RuntimeError
    assert not replaced()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("time", ["sum", "mean"])
@pytest.mark.parametrize("batch", ["sum", "mean"])
def test_losses_and_their_gradients_are_the_librarys_to_rounding(device, masked, time, batch):
    torch.manual_seed(1)
    prediction = torch.randn(6, 3, 5, 2, device=device, requires_grad=True)
    particles = torch.randn(6, 3, 5, 4, 2, device=device, requires_grad=True)
    target = torch.randn(6, 3, 5, 2, device=device)
    mask = torch.rand(6, 3, 5, device=device) < 0.7 if masked else None
    found = []
    for by in (lambda x: NotImplemented, total):
        with sums(by):
            loss = prediction_loss(
                prediction, target, "regression", mask=mask, time=time, batch=batch
            ) + elbo_loss(particles, target, "regression", mask=mask, time=time, batch=batch)
        found.append([loss, *torch.autograd.grad(loss.sum(), (prediction, particles))])
    for library, kernels in zip(*found, strict=True):
        torch.testing.assert_close(kernels, library, rtol=1e-6, atol=1e-6)
