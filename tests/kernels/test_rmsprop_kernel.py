"""The update in kernels against the reference's, and the bits that a member has alone."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

from pfrnn.functional.sums import sums
from pfrnn.kernels.rmsprop import clipped
from pfrnn.kernels.rmsprop import rmsprop as kernels
from pfrnn.kernels.sums import total
from pfrnn.study.train.flat import Flat, FlatRMSprop, KernelUpdate
from pfrnn.study.train.optimiser import Hyper, rmsprop

# More than a program's share, less than an alignment, and single numbers.
SHAPES = {"weight": (64, 33), "bias": (33,), "single": (1, 1), "table": (700, 5), "head": (64, 1)}
DECAY, EPSILON = 0.99, 1e-8


def drawn(members: int, seed: int, device: str, scale: float = 1.0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: (torch.randn(members, *shape, generator=generator) * scale).to(device)
        for name, shape in SHAPES.items()
    }


def take(stack: dict[str, Tensor], place: int) -> dict[str, Tensor]:
    return {name: value[place : place + 1].clone() for name, value in stack.items()}


def settings(members: int, device: str) -> Hyper:
    numbers = torch.arange(members, dtype=torch.float32, device=device)
    # The first is clipped at every step, the last never. Columns of a table, as a training's are.
    table = torch.stack([1e-3 * (1 + numbers), 0.3 * 50**numbers, 1e-4 * (1 + numbers)], 1)
    return Hyper(*table.unbind(1))


class Run:
    """A few updates in kernels, and the same in float64 by the reference."""

    def __init__(self, values, squares, hyper, alive, decays=lambda name: True):
        self.flat = Flat(values)
        self.squares = Flat(squares)
        self.optimiser = FlatRMSprop(self.flat, self.squares, hyper, decays)
        self.alive = alive

    def step(self, gradients):
        with sums(total):
            update = self.optimiser.update(gradients, DECAY, EPSILON, self.alive)
            assert isinstance(update, KernelUpdate)
            self.optimiser.write(update)
        return update


def decays(name: str) -> bool:
    return name not in ("bias", "single")


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("partly", [False, True])
def test_updates_are_the_references_to_rounding(device, members, partly):
    told = decays if partly else lambda name: True
    hyper = settings(members, device)
    alive = torch.ones(members, dtype=torch.bool, device=device)
    run = Run(drawn(members, 1, device), drawn(members, 2, device, 0.0), hyper, alive, told)
    values = {k: v.double() for k, v in drawn(members, 1, device).items()}
    squares = {k: v.double() for k, v in drawn(members, 2, device, 0.0).items()}
    double = Hyper(*(value.double() for value in hyper))
    for step in range(4):
        gradients = drawn(members, 10 + step, device, 10.0 ** (step - 2))
        wide = {name: value.double() for name, value in gradients.items()}
        expected = rmsprop(values, wide, squares, double, DECAY, EPSILON, alive, told)
        values, squares = expected.parameters, expected.square_average
        before = {name: value.clone() for name, value in gradients.items()}
        found = run.step(gradients)
        torch.testing.assert_close(found.gradient_norm.double(), expected.gradient_norm,
                                   rtol=1e-6, atol=0)  # fmt: skip
        assert torch.equal(found.moves, expected.moves)
        assert all(torch.equal(before[name], value) for name, value in gradients.items())
        for name, value in values.items():
            torch.testing.assert_close(run.flat[name].double(), value, rtol=2e-6, atol=2e-7)
            torch.testing.assert_close(
                run.squares[name].double(), squares[name], rtol=2e-6, atol=1e-12
            )


def test_one_step_by_hand(device):
    """Gradient (3, 4) clipped to norm 1, L2 0.1 on a parameter of (1, -1), rate 0.5, rho 0.9."""
    hyper = Hyper(*(torch.tensor([value], device=device) for value in (0.5, 1.0, 0.1)))
    flat = Flat({"w": torch.tensor([[1.0, -1.0]], device=device)})
    squares = Flat({"w": torch.zeros(1, 2, device=device)})
    optimiser = FlatRMSprop(flat, squares, hyper)
    alive = torch.ones(1, dtype=torch.bool, device=device)
    with sums(total):
        gradient = {"w": torch.tensor([[3.0, 4.0]], device=device)}
        optimiser.write(optimiser.update(gradient, 0.9, 1e-8, alive))
    g = torch.tensor([0.6 + 0.1, 0.8 - 0.1])
    torch.testing.assert_close(squares["w"][0].cpu(), 0.1 * g**2)
    step = 0.5 * g / (0.1**0.5 * g.abs())
    torch.testing.assert_close(flat["w"][0].cpu(), torch.tensor([1.0, -1.0]) - step)


def test_a_member_alone_has_the_bits_that_it_has_in_a_population(device):
    members = 3
    hyper = settings(members, device)
    alive = torch.ones(members, dtype=torch.bool, device=device)
    values, squares = drawn(members, 3, device), drawn(members, 4, device, 0.0)
    whole = Run(values, squares, hyper, alive, decays)
    alone = [
        Run(take(values, m), take(squares, m), hyper.take(torch.tensor([m], device=device)),
            alive[:1], decays)
        for m in range(members)
    ]  # fmt: skip
    for step in range(3):
        gradients = drawn(members, 20 + step, device)
        found = whole.step(gradients)
        for m, one in enumerate(alone):
            mine = one.step(take(gradients, m))
            assert torch.equal(mine.gradient_norm[0], found.gradient_norm[m])
            for name, value in one.flat.items():
                assert torch.equal(value[0], whole.flat[name][m]), (step, m, name)
                assert torch.equal(one.squares[name][0], whole.squares[name][m])


@pytest.mark.parametrize("what", ["dead", "nan", "inf"])
def test_who_does_not_move_keeps_every_bit(device, what):
    hyper, members = settings(3, device), 3
    alive = torch.tensor([True, what != "dead", True], device=device)
    run = Run(drawn(members, 5, device), drawn(members, 6, device, 0.0), hyper, alive)
    run.flat["bias"][1, 0] = -0.0
    before = run.flat.whole.clone(), run.squares.whole.clone()
    gradients = drawn(members, 7, device)
    if what != "dead":
        gradients["table"][1, 699, 4] = math.nan if what == "nan" else -math.inf
    found = run.step(gradients)
    assert found.moves.tolist() == [True, False, True]
    assert torch.equal(alive.cpu(), torch.tensor([True, what != "dead", True]))
    kept = Flat(drawn(members, 5, device))
    kept.whole.copy_(before[0])
    for name, value in run.flat.items():
        bits, old = value.view(torch.int32), kept[name].view(torch.int32)
        assert torch.equal(bits[1], old[1])
        assert not torch.equal(bits[0], old[0])
    assert run.squares["weight"][1].abs().sum() == 0
    # Gaps between tensors stay zeros.
    used = torch.zeros_like(run.flat.whole, dtype=torch.bool)
    for value in run.flat.values():
        start = value.storage_offset()
        used[start : start + value.numel()] = True
    assert (run.flat.whole[~used] == 0).all()


def test_a_network_without_any_l2(device):
    hyper, alive = settings(2, device), torch.ones(2, dtype=torch.bool, device=device)
    values, squares, gradients = (drawn(2, seed, device) for seed in (8, 9, 1))
    squares = {name: value.square() for name, value in squares.items()}
    run = Run(values, squares, hyper, alive, lambda name: False)
    run.step(gradients)
    wide = [{k: v.double() for k, v in one.items()} for one in (values, gradients, squares)]
    double = Hyper(*(value.double() for value in hyper))
    expected = rmsprop(*wide, double, DECAY, EPSILON, alive, lambda name: False)
    for name, value in expected.parameters.items():
        torch.testing.assert_close(run.flat[name].double(), value, rtol=2e-6, atol=2e-7)


def test_views_with_gaps_are_refused(device):
    hyper = settings(2, device)
    alive = torch.ones(2, dtype=torch.bool, device=device)
    optimiser = FlatRMSprop(Flat(drawn(2, 1, device)), Flat(drawn(2, 2, device, 0.0)), hyper)
    whole, places = optimiser.parameters.whole, optimiser.places()
    assert not hyper.clip.is_contiguous()
    with pytest.raises(ValueError, match="clip: expected a contiguous tensor"):
        clipped(whole, places, hyper.clip, alive, 1e-6)
    found = clipped(whole, places, hyper.clip.clone(), alive, 1e-6)
    with pytest.raises(ValueError, match="rate: expected a contiguous tensor"):
        kernels(whole, whole, whole, places, found, *hyper[::2], None, 0.9, 1e-8)


def test_float64_is_left_to_torch():
    values, squares = drawn(2, 8, "cpu"), drawn(2, 9, "cpu", 0.0)
    alive, hyper = torch.ones(2, dtype=torch.bool), settings(2, "cpu")
    wide = [{k: v.double() for k, v in one.items()} for one in (values, squares)]
    optimiser = FlatRMSprop(*map(Flat, wide), Hyper(*(x.double() for x in hyper)))
    with sums(total):
        found = optimiser.update({k: v.double() for k, v in values.items()}, 0.9, 1e-8, alive)
    assert not isinstance(found, KernelUpdate)
