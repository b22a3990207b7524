"""A population's embeddings in kernels against float64, and the bits that a member has alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

from pfrnn.functional.lookup import embed, lookups
from pfrnn.kernels.lookup import CHUNK, TOGETHER, fits, lookup, population_embed, table_gradient

# T, M, N, vocabulary, width: every row once or never, some often, one more often than the chunks
# that are added at a time hold.
SIZES = [
    (1, 1, 1, 1, 1),
    (3, 2, 5, 40, 3),
    (4, 3, 9, 2, 33),
    (7, 2, 3, 5, 130),
    (5, 2, CHUNK * TOGETHER // 4 + 3, 3, 2),
]


def drawn(size: tuple[int, ...], device: str) -> tuple[Tensor, Tensor, Tensor]:
    steps, members, sequences, vocabulary, width = size
    generator = torch.Generator().manual_seed(steps + sequences)
    tokens = torch.randint(vocabulary, (steps, members, sequences), generator=generator)
    if sequences > CHUNK:
        tokens[torch.rand(tokens.shape, generator=generator) < 0.9] = 1  # as padding is
    weight = torch.randn(members, vocabulary, width, generator=generator)
    grad = torch.randn(steps, members, sequences, width, generator=generator)
    return tokens.to(device), weight.to(device), grad.to(device)


def gradient(tokens: Tensor, weight: Tensor, grad: Tensor) -> Tensor:
    leaf = weight.clone().requires_grad_()
    (found,) = torch.autograd.grad(population_embed(tokens, leaf), leaf, grad)
    return found


@pytest.mark.parametrize("size", SIZES)
def test_rows_and_their_gradient(size, device):
    tokens, weight, grad = drawn(size, device)
    with lookups(lookup):
        assert torch.equal(embed(tokens, weight), population_embed(tokens, weight))
    assert torch.equal(population_embed(tokens, weight), embed(tokens, weight))
    exact, scale = (torch.zeros_like(weight, dtype=torch.float64) for _ in range(2))
    for m in range(size[1]):
        places, values = tokens[:, m].flatten(), grad[:, m].flatten(0, 1).double()
        exact[m].index_add_(0, places, values)
        scale[m].index_add_(0, places, values.abs())
    found = gradient(tokens, weight, grad)
    assert ((found.double() - exact).abs() <= 1e-6 * scale).all()


def test_the_sizes_have_rows_of_every_kind():
    """One occurrence, one chunk, several, and more chunks than are added at a time."""
    counts = torch.cat([
        torch.bincount(drawn(size, "cpu")[0][:, 0].flatten(), minlength=size[3]) for size in SIZES
    ])  # fmt: skip
    assert (counts == 0).any()
    assert (counts == 1).any()
    assert ((counts > 1) & (counts <= CHUNK)).any()
    assert ((counts > CHUNK) & (counts <= CHUNK * TOGETHER)).any()
    assert (counts > CHUNK * TOGETHER).any()


@pytest.mark.parametrize("size", SIZES)
def test_a_member_alone_has_the_bits_that_it_has_in_a_population(size, device):
    tokens, weight, grad = drawn(size, device)
    found = gradient(tokens, weight, grad)
    for m in range(size[1]):
        one = slice(m, m + 1)
        assert torch.equal(gradient(tokens[:, one], weight[one], grad[:, one])[0], found[m])
    backwards = gradient(tokens.flip(1), weight.flip(0), grad.flip(1))
    assert torch.equal(backwards.flip(0), found)


def test_a_gradient_is_read_as_it_lies(device):
    tokens, weight, grad = drawn((4, 3, 9, 2, 33), device)
    found = gradient(tokens, weight, grad)
    first = grad.transpose(0, 1).contiguous().transpose(0, 1)
    last = grad.transpose(2, 3).contiguous().transpose(2, 3)
    for other in (first, last):
        assert not other.is_contiguous()
        assert torch.equal(gradient(tokens, weight, other), found)
    repeated = grad[:1].expand(4, 3, 9, 33)
    assert torch.equal(
        gradient(tokens, weight, repeated), gradient(tokens, weight, repeated.contiguous())
    )


def test_numbers_that_are_none_stay_in_their_row(device):
    """A neighbour in the sorted order is masked, not weighed by zero."""
    tokens, weight, grad = drawn((4, 3, 9, 2, 33), device)
    tokens[:] = 0
    tokens[1, 1, 2] = 1
    grad[1, 1, 2] = torch.inf
    grad[2, 2, 3, 4] = torch.nan
    found = gradient(tokens, weight, grad)
    assert found[1, 1].isinf().all()
    assert found[2, 0].isnan().nonzero().tolist() == [[4]]
    found[1, 1], found[2, 0] = 0, 0
    assert found.isfinite().all()


def test_rows_that_do_not_occur_are_zero_whatever_the_memory_held(device):
    tokens, _, grad = drawn((3, 2, 5, 40, 3), device)
    torch.full((2 * 40, 3), torch.nan, device=device)
    rows = tokens + torch.tensor([0, 40], device=device)[:, None]
    found = table_gradient(grad, rows, 80)
    unseen = torch.ones(80, dtype=torch.bool, device=device)
    unseen[rows.flatten()] = False
    assert (found[unseen] == 0).all()
    assert (found[~unseen] != 0).any(1).all()


def test_what_the_kernels_do_not_take(device):
    tokens, weight, _ = drawn((3, 2, 5, 40, 3), device)
    wide = torch.zeros(2, 4, 257, device=device)
    for ids, table in (
        (tokens, weight.double()),
        (tokens, weight[0]),
        (tokens[:, :1], weight),
        (tokens[0], weight),
        (tokens[:0], weight),
        (tokens, wide),
    ):
        assert not fits(ids, table)
        assert lookup(ids, table) is NotImplemented
        with pytest.raises(ValueError, match=r"expected tokens \(T, M, N\)"):
            population_embed(ids, table)
    assert fits(tokens, weight)
    # The library takes it then, and one model's table always.
    with lookups(lookup):
        assert embed(tokens[:, :1], weight[:1].double()).dtype == torch.float64
        assert embed(tokens[:, 0], weight[0]).shape == (3, 5, 3)


def test_one_derivative_alone(device):
    tokens, weight, _ = drawn((3, 2, 5, 40, 3), device)
    leaf = weight.requires_grad_()
    out = population_embed(tokens, leaf).square().sum()
    with pytest.raises(RuntimeError, match=r"create_graph=True: .* no second derivative"):
        torch.autograd.grad(out, leaf, create_graph=True)
