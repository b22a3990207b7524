"""A filter's losses in kernels against the definition in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

from pfrnn.functional.losses import combined_loss, elbo_loss, prediction_loss
from pfrnn.kernels.loss import Weights, filter_loss, fits

# T, M, N, K, C: one of all, an odd one, several blocks of rows, several programs a member.
SIZES = [(1, 1, 1, 1, 1), (5, 3, 7, 6, 3), (6, 2, 16, 30, 4), (9, 2, 64, 33, 1)]
BOTH = Weights(1.0, 1.0)


class Drawn:
    """Random guesses, weights, targets and mask."""

    def __init__(self, size, device, masked, scale=1.0):
        steps, members, sequences, _, columns = size
        generator = torch.Generator().manual_seed(sum(size))

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator).to(device)

        self.guesses = normal(*size) * scale
        self.log_weights = normal(*size[:4]).log_softmax(-1)
        # As a batch is gathered: members, sequences, steps.
        self.target = normal(members, sequences, steps, columns).permute(2, 0, 1, 3)
        self.mask = None
        if masked:
            known = torch.rand(members, sequences, steps, generator=generator) < 0.6
            known[:, 0] = False  # a sequence without any output
            self.mask = known.to(device).permute(2, 0, 1)


def definition(drawn: Drawn, weights: Weights, dtype=torch.float64):
    """Loss and both gradients, in float64."""
    leaves = [x.to(dtype).requires_grad_() for x in (drawn.guesses, drawn.log_weights)]
    target = drawn.target.to(dtype)
    mean = (leaves[1].exp().unsqueeze(-1) * leaves[0]).sum(-2)
    loss = combined_loss(
        prediction_loss(mean, target, "regression", mask=drawn.mask),
        elbo_loss(leaves[0], target, "regression", mask=drawn.mask),
        *weights,
    )
    return loss, leaves


def weighted(loss: Tensor, leaves: list[Tensor]) -> list[Tensor | None]:
    factors = torch.arange(1, len(loss) + 1, device=loss.device).to(loss.dtype)
    return list(torch.autograd.grad(loss, leaves, factors, allow_unused=True))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("weights", [BOTH, Weights(0.0, 0.7), Weights(2.0, 0.1)])
def test_losses_and_gradients(device, size, masked, weights):
    drawn = Drawn(size, device, masked)
    expected, leaves = definition(drawn, weights)
    gradients = weighted(expected, leaves)
    mine = [x.clone().requires_grad_() for x in (drawn.guesses, drawn.log_weights)]
    found = filter_loss(*mine, drawn.target, drawn.mask, weights)
    torch.testing.assert_close(found.double(), expected, rtol=2e-6, atol=1e-6)
    for one, exact in zip(weighted(found, mine), gradients, strict=True):
        if one is None:
            assert weights.prediction == 0
            continue
        largest = float(exact.abs().max())
        assert float((one.double() - exact).abs().max()) <= 3e-6 * max(largest, 1e-6)


def test_by_hand(device):
    """One row: guesses 1 and 3 with weights 1/4 and 3/4, target 1."""
    guesses = torch.tensor([1.0, 3.0], device=device).view(1, 1, 1, 2, 1)
    log_weights = torch.tensor([0.25, 0.75], device=device).log().view(1, 1, 1, 2)
    target = torch.ones(1, 1, 1, 1, device=device)
    found = filter_loss(guesses, log_weights, target, None, BOTH)
    elbo = math.log(2) - math.log(1 + math.exp(-2))
    assert found.item() == pytest.approx(1.5**2 + elbo, rel=1e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_a_member_alone_has_the_bits_that_it_has_in_a_population(device, masked):
    drawn = Drawn((9, 3, 64, 20, 2), device, masked)
    mine = [x.clone().requires_grad_() for x in (drawn.guesses, drawn.log_weights)]
    found = filter_loss(*mine, drawn.target, drawn.mask, BOTH)
    gradients = torch.autograd.grad(found.sum(), mine)
    for m in range(3):
        cut = [x[:, m : m + 1].clone().requires_grad_() for x in mine]
        mask = None if drawn.mask is None else drawn.mask[:, m : m + 1].contiguous()
        alone = filter_loss(*cut, drawn.target[:, m : m + 1].contiguous(), mask, BOTH)
        assert torch.equal(alone[0], found[m])
        for one, whole in zip(torch.autograd.grad(alone.sum(), cut), gradients, strict=True):
            assert torch.equal(one[:, 0], whole[:, m])


def test_padding_spreads_nothing_and_has_no_gradient(device):
    drawn = Drawn((5, 2, 8, 6, 2), device, True)
    expected = filter_loss(
        drawn.guesses, drawn.log_weights, drawn.target, drawn.mask, BOTH
    )  # fmt: skip
    unknown = ~drawn.mask
    drawn.guesses[unknown], drawn.log_weights[unknown] = math.nan, math.inf
    drawn.target[unknown] = math.nan
    mine = [x.clone().requires_grad_() for x in (drawn.guesses, drawn.log_weights)]
    found = filter_loss(*mine, drawn.target, drawn.mask, BOTH)
    assert torch.equal(found, expected)
    for gradient in torch.autograd.grad(found.sum(), mine):
        assert gradient.isfinite().all()
        assert (gradient[unknown] == 0).all()


def test_a_guess_at_the_target_has_the_subgradient_zero(device):
    guesses = torch.full((1, 1, 1, 2, 2), 2.0, device=device, requires_grad=True)
    log_weights = torch.full((1, 1, 1, 2), -math.log(2), device=device)
    target = torch.full((1, 1, 1, 2), 2.0, device=device)
    found = filter_loss(guesses, log_weights, target, None, BOTH)
    assert found.item() == pytest.approx(0.0, abs=1e-6)
    (gradient,) = torch.autograd.grad(found.sum(), guesses)
    assert (gradient == 0).all()


def test_far_guesses_neither_overflow_nor_vanish(device):
    drawn = Drawn((3, 2, 4, 6, 2), device, False, scale=1e4)
    expected, leaves = definition(drawn, BOTH)
    mine = [x.clone().requires_grad_() for x in (drawn.guesses, drawn.log_weights)]
    found = filter_loss(*mine, drawn.target, None, BOTH)
    torch.testing.assert_close(found.double(), expected, rtol=2e-6, atol=0)
    exact = weighted(expected, leaves)
    for one, other in zip(weighted(found, mine), exact, strict=True):
        assert float((one.double() - other).abs().max()) <= 3e-6 * float(other.abs().max())


def test_memory_in_another_order(device):
    """Guesses that begin with members, as a head inside the kernels leaves them."""
    drawn = Drawn((5, 3, 7, 6, 3), device, True)
    mine = [x.transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
            for x in (drawn.guesses, drawn.log_weights)]  # fmt: skip
    plain = [x.clone().requires_grad_() for x in (drawn.guesses, drawn.log_weights)]
    found = [filter_loss(*x, drawn.target, drawn.mask, BOTH) for x in (mine, plain)]
    assert torch.equal(*found)
    pairs = [torch.autograd.grad(f.sum(), x) for f, x in zip(found, (mine, plain), strict=True)]
    for one, other in zip(*pairs, strict=True):
        assert torch.equal(one, other)


def test_what_is_refused():
    drawn = Drawn((2, 2, 3, 4, 2), "cpu", True)
    given = [drawn.guesses, drawn.log_weights, drawn.target, drawn.mask]
    assert fits(*given)
    for place, wrong in (
        (0, drawn.guesses[0]), (0, drawn.guesses.expand(2, 2, 3, 4, 2).double()),
        (1, drawn.log_weights[..., :3]), (2, drawn.target[..., :1]), (3, drawn.mask.float()),
    ):  # fmt: skip
        other = [*given]
        other[place] = wrong
        assert not fits(*other)
        with pytest.raises(ValueError, match="expected float32 guesses"):
            filter_loss(*other, BOTH)
