"""A population's products in kernels against float64, and the bits that a member has alone."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

from pfrnn.errors import ConfigError
from pfrnn.functional.linear import affine, products
from pfrnn.kernels import linear
from pfrnn.kernels.linear import MAX_INPUTS, fits, population_affine, product
from pfrnn.kernels.linear_run import Sizes, rows_of

# Products of nearly float32 and sums of float32 against float64: largest error over largest value.
BOUND = 1e-5
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Case(NamedTuple):
    """Sizes of a product; without time where ``steps`` is None."""

    steps: int | None
    members: int
    sequences: int
    inputs: int
    outputs: int
    bias: bool = True
    members_first: bool = False


class Found(NamedTuple):
    """A product and its gradients."""

    out: Tensor
    x: Tensor | None
    weight: Tensor | None
    bias: Tensor | None


CASES = [
    Case(1, 1, 1, 8, 1),
    Case(3, 3, 5, 8, 64, members_first=True),
    Case(3, 1, 5, 33, 52, bias=False),
    Case(1, 3, 5, 64, 241),
    Case(3, 3, 5, 64, 321, members_first=True),
    Case(3, 3, 1, 100, 1, bias=False, members_first=True),
    Case(3, 3, 5, 100, 52),
    Case(None, 3, 5, 64, 64),
    Case(None, 1, 1, 33, 241, bias=False),
    # Several programs, and shares of several blocks.
    Case(45, 2, 7, 8, 1),
    Case(41, 1, 5, 64, 321, members_first=True),
]


def laid_out(x: Tensor, members_first: bool) -> Tensor:
    """Memory of (T, M, N, D) or of (M, T, N, D), seen as (T, M, N, D)."""
    return x.transpose(0, 1).contiguous().transpose(0, 1) if members_first else x


def draw(case: Case, device: str) -> list[Tensor | None]:
    """Return x, weight, bias or None, and the result's gradient."""
    generator = torch.Generator().manual_seed(case.inputs + case.outputs)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    time = () if case.steps is None else (case.steps,)
    x = normal(*time, case.members, case.sequences, case.inputs)
    weight = normal(case.members, case.inputs, case.outputs) / case.inputs**0.5
    bias = normal(case.members, case.outputs) if case.bias else None
    grad = normal(*time, case.members, case.sequences, case.outputs)
    if case.steps is None:
        return [x, weight, bias, grad]
    # The fused loops give gradients with members first.
    return [laid_out(x, case.members_first), weight, bias, laid_out(grad, True)]


def evaluate(function: Any, drawn: list[Tensor | None]) -> Found:
    """Multiply, forwards and backwards."""
    leaves = [None if one is None else one.detach().requires_grad_() for one in drawn[:3]]
    out = function(*leaves)
    given = [leaf for leaf in leaves if leaf is not None]
    grads = iter(torch.autograd.grad(out, given, drawn[3]))
    return Found(out.detach(), *(None if leaf is None else next(grads) for leaf in leaves))


def check(drawn: list[Tensor | None]) -> Found:
    """Compare with the reference in float64."""
    found = evaluate(population_affine, drawn)
    expected = evaluate(affine, [None if one is None else one.double() for one in drawn])
    for name, got, wanted in zip(Found._fields, found, expected, strict=True):
        assert (got is None) == (wanted is None), name
        if got is not None and wanted is not None:
            assert got.shape == wanted.shape, name
            error = (got.double() - wanted).abs().max() / wanted.abs().max()
            assert float(error) < BOUND, name
    return found


def same(first: Found, second: Found) -> bool:
    """Whether all bits are equal."""
    pairs = zip(first, second, strict=True)
    return all(a is b is None or torch.equal(a, b) for a, b in pairs)


def member_of(drawn: list[Tensor | None], place: int, members_first: bool = False) -> list[Any]:
    """One member's tensors, in memory of their own."""
    x, weight, bias, grad = drawn
    one = slice(place, place + 1)
    x, grad = (t.narrow(-3, place, 1).contiguous().clone() for t in (x, grad))
    if x.dim() == 4:
        x, grad = laid_out(x, members_first), laid_out(grad, True)
    return [x, weight[one].clone(), None if bias is None else bias[one].clone(), grad]


def part_of(found: Found, place: int) -> Found:
    """One member's part of a population's result."""
    out, x = (t.narrow(-3, place, 1) for t in found[:2])
    one = slice(place, place + 1)
    return Found(out, x, found.weight[one], None if found.bias is None else found.bias[one])


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_the_references(device: str, case: Case) -> None:
    drawn = draw(case, device)
    found = check(drawn)
    assert found.x.stride() == drawn[0].stride()
    if case.steps is not None:
        assert found.out.transpose(0, 1).is_contiguous()


@pytest.mark.parametrize("case", [CASES[4], CASES[6], CASES[7], CASES[9]])
def test_a_member_has_the_bits_that_it_has_alone(device: str, case: Case) -> None:
    drawn = draw(case, device)
    together = evaluate(population_affine, drawn)
    for place in range(case.members):
        for members_first in (False, True):
            alone = evaluate(population_affine, member_of(drawn, place, members_first))
            assert same(alone, part_of(together, place))
    # Members turned round: the third axis from the end, of a bias the first.
    turned = [one if one is None else one.flip(-3 if one.dim() > 2 else 0) for one in drawn]
    other = evaluate(population_affine, turned)
    assert same(part_of(other, case.members - 1), part_of(together, 0))
    assert same(evaluate(population_affine, drawn), together)


def test_a_broken_member_leaves_the_others_alone(device: str) -> None:
    drawn = draw(CASES[4], device)
    sound = evaluate(population_affine, drawn)
    drawn[0][1, 1, 2, 3], drawn[3][2, 1, 4, 320] = torch.nan, torch.inf
    found = evaluate(population_affine, drawn)
    for place in (0, 2):
        assert same(part_of(found, place), part_of(sound, place))
    broken = part_of(found, 1)
    assert broken.out[1, 0, 2].isnan().all()
    assert broken.out.isnan().sum() == 321
    assert not broken.x[2, 0, 4].isfinite().any()
    assert broken.weight[0, 3].isnan().all()
    assert not broken.weight[0, :, 320].isfinite().any()
    assert broken.bias[0, 320] == torch.inf
    assert broken.bias.isfinite().sum() == 320


@pytest.mark.parametrize("case", [CASES[3], CASES[4], CASES[9]])
def test_everything_is_written(device: str, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = draw(case, device)
    expected = evaluate(population_affine, drawn)
    empty, like = torch.Tensor.new_empty, torch.empty_like
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda *a, **k: empty(*a, **k).fill_(torch.nan))
    monkeypatch.setattr(torch, "empty_like", lambda x: like(x).fill_(torch.nan))
    assert same(evaluate(population_affine, drawn), expected)


@pytest.mark.parametrize("needs", [(0, 1, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0)])
def test_gradients_that_nobody_asks_for_are_not_computed(
    device: str, needs: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = draw(CASES[1], device)
    whole = evaluate(population_affine, drawn)
    launched = []
    for name in ("input_gradient", "parameter_gradient"):
        launch = getattr(linear, name)

        def spied(*args: Any, launch: Any = launch, name: str = name) -> None:
            if args[-1] is not True:  # only compiled
                launched.append((name, *(a is not None for a in args[3:])))
            launch(*args)

        monkeypatch.setattr(linear, name, spied)
    leaves = [x.detach().requires_grad_(bool(n)) for x, n in zip(drawn, needs, strict=False)]
    out = population_affine(*leaves)
    out.backward(drawn[3])
    for leaf, wanted, gradient in zip(leaves, needs, whole[1:], strict=True):
        assert (leaf.grad is not None) == bool(wanted)
        assert leaf.grad is None or torch.equal(leaf.grad, gradient)
    expected = [("input_gradient", True)] if needs[0] else []
    if needs[1] or needs[2]:
        expected.append(("parameter_gradient", bool(needs[1]), bool(needs[2])))
    assert launched == expected


def test_no_copy_of_what_the_encoders_and_loops_give(device: str) -> None:
    whole = torch.randn(3, 5, 4, 8, device=device)
    for x in (whole, whole.transpose(0, 1), whole[:, 1:].transpose(0, 1), whole[:1], whole[:, :1]):
        assert rows_of(x).tensor is x
        drawn = [x, torch.randn(x.shape[1], 8, 3, device=device), None]
        check([*drawn, torch.randn(*x.shape[:3], 3, device=device)])
    # Other features beside, axes turned, one tensor for all members, a view between rows' starts.
    beside = torch.randn(3, 5, 4, 9, device=device)
    for x in (beside[..., :8], whole.transpose(2, 3), whole[:, :1].expand(3, 5, 4, 8),
              torch.randn(481, device=device)[1:].view(3, 5, 4, 8)):  # fmt: skip
        drawn = [x, torch.randn(5, x.shape[-1], 3, device=device), None]
        check([*drawn, torch.randn(1, device=device).expand(*x.shape[:3], 3)])


def test_shares_of_the_sums_go_by_a_members_sizes() -> None:
    sizes = Sizes(100, 1, 64, 64, 321, "tf32x3")
    assert {sizes._replace(members=members).shares for members in (1, 2, 36, 72)} == {8}
    assert [Sizes(t, 1, n, 8, 1, "ieee").shares for t, n in ((1, 1), (2, 17), (99, 64))] == [
        1,
        2,
        48,
    ]
    assert Sizes(100, 1, 64, 8, 64 * 99, "ieee").shares == 1


def test_refusals(device: str) -> None:
    x, weight, bias, _ = draw(CASES[1], device)
    assert fits(x, weight, bias)
    wide = torch.zeros(2, MAX_INPUTS + 1, 3, device=device)
    refused = [
        (torch.zeros(1, 2, 4, MAX_INPUTS + 1, device=device), wide, None),
        (x.double(), weight.double(), None),
        (x[:0], weight, bias),
        (x, weight[0], None),
        (x[None], weight, bias),
    ]
    for case in refused:
        assert not fits(*case)
        assert product(*case) is NotImplemented
        with pytest.raises(ValueError, match="use affine"):
            population_affine(*case)
    for case in ((x, weight[:2], None), (x[..., 1:], weight, None), (x, weight, bias[:, 1:])):
        with pytest.raises(ValueError, match="weight \\(M, D, E\\)"):
            population_affine(*case)
    with pytest.raises(ConfigError, match="did you mean 'tf32x3'"):
        population_affine(x, weight, bias, "tf32x2")
    # A loop over time multiplies few rows a step.
    assert product(x[0], weight, bias) is NotImplemented
    leaf = x.clone().requires_grad_()
    loss = population_affine(leaf, weight).square().sum()
    with pytest.raises(RuntimeError, match=r"create_graph=True: .* no second derivative"):
        torch.autograd.grad(loss, leaf, create_graph=True)


def test_affine_hands_over_what_is_taken(device: str) -> None:
    x, weight, bias, _ = draw(CASES[1], device)
    asked = []

    def by(*given: Any) -> Any:
        asked.append(given)
        return NotImplemented if given[2] is None else x.new_zeros(3)

    with products(by):
        assert torch.equal(affine(x, weight, bias), x.new_zeros(3))
        assert affine(x, weight).shape == (3, 3, 5, 64)
        affine(x, weight[0], bias[0])  # one model
        affine(x[:, None], weight[None], bias[None])  # a population of populations
        with products(functools.partial(by, x)):
            pass
        assert len(asked) == 2
    assert affine(x, weight, bias).shape == (3, 3, 5, 64)
    with pytest.raises(KeyError), products(by):
        raise KeyError
    affine(x, weight, bias)
    assert len(asked) == 2


@pytest.mark.gpu
@GPU
@pytest.mark.parametrize("members_first", [False, True])
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 321), (8, 64), (100, 52), (64, 1)])
def test_gpu_values_and_bits_at_a_trainings_size(
    inputs: int, outputs: int, members_first: bool
) -> None:
    case = Case(100, 12, 64, inputs, outputs, members_first=members_first)
    drawn = draw(case, "cuda")
    together = check(drawn)
    assert same(evaluate(population_affine, drawn), together)
    for place in (0, 5, 11):
        for first in (False, True):
            alone = evaluate(population_affine, member_of(drawn, place, first))
            assert same(alone, part_of(together, place))
