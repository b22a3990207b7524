"""Options of the kernels' tuning: the same numbers by other ways.

In the interpreter every option has the bits of the default. On a GPU a compiler may contract a
product and a sum that another option's code keeps apart, so there it is rounding, and the same bits
twice. The interpreter fetches by descriptors as a card does, but copies at once: that a fetch is
waited for, only a card can show.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

from pfrnn.functional.types import FilterSwitches, Readout
from pfrnn.kernels import fetch, run_backward, run_forward
from pfrnn.kernels.noise import NoiseKey
from pfrnn.kernels.sequence import run_pf_fused
from pfrnn.kernels.tuning import CROWDED, Tuning

from .filter_cases import Case, draw, read_out

ON_GPU = torch.cuda.is_available()
OPTIONS: dict[str, dict[str, Any]] = {
    "fetch": {"forward_fetch": True, "backward_fetch": True},
    "late": {"late_loads": True},
    "ticket": {"ticket": True},
    "split": {"split": True},
    # Large populations' choice.
    "crowded": CROWDED,
}
FETCH = OPTIONS["fetch"]
SMALL = Tuning(forward_rows=16, backward_rows=16, weight_rows=16, ring=3, shares=2)


def train(case: Case, tuning: Tuning | None, **options: Any) -> dict[str, Tensor]:
    """Outputs and gradients of one pass each way, with the kernels' own noise."""
    drawn = draw(case)
    device = drawn.projected.device
    seeds = torch.arange(case.members, device=device) + 7
    key = NoiseKey(seeds, torch.ones(1, dtype=torch.int64, device=device))
    parameters = {k: v for k, v in drawn.weights._asdict().items() if v is not None}
    parameters["head"] = read_out(drawn, 1).weight
    leaves = {"projected": drawn.projected.clone().requires_grad_()}
    leaves |= {name: value.clone().requires_grad_() for name, value in parameters.items()}
    weights = type(drawn.weights)(**{k: leaves[k] for k in drawn.weights._fields if k in leaves})
    # A smooth activation: ReLU's kink turns rounding into a jump of a gradient.
    out = run_pf_fused(
        leaves["projected"], drawn.state, key, key, weights, FilterSwitches(activation="tanh"),
        readout=Readout(leaves["head"]), tuning=tuning, **options,
    )  # fmt: skip
    loss = out.read.square().sum() + out.log_weights.sum()
    if out.hidden is not None:
        loss = loss + out.hidden.square().sum()
    loss.backward()
    values = {"read": out.read, "log_weights": out.log_weights, "ess": out.ess}
    if out.hidden is not None:
        values["hidden"] = out.hidden
    values |= {"mean": out.step_mean, "variance": out.step_variance}
    found = {name: value.detach() for name, value in values.items()}
    return found | {
        f"d {name}": leaf.grad for name, leaf in leaves.items() if leaf.grad is not None
    }


def padding(case: Case) -> Tensor:
    """Every third sequence ends early; the last step has one program without any."""
    lengths = torch.arange(case.sequences) % 3 + case.steps - 2
    valid = torch.arange(case.steps)[:, None] < lengths
    return valid[:, None].expand(-1, case.members, -1).to(case.device)


def launched(case: Case, changes: dict[str, Any]) -> list[tuple[bool, bool]]:
    """Whether the launches of a pass each way fetched, and counted."""
    asked = []

    def watched(kernel: Any) -> Any:
        def run(*arguments: Any, **options: Any) -> Any:
            asked.append((bool(options["FETCH"]), options["TICKET"]))
            return kernel.run(*arguments, **options)

        return mock.Mock(run=run)

    with (
        mock.patch.object(run_forward, "forward_kernel", watched(run_forward.forward_kernel)),
        mock.patch.object(run_backward, "backward_kernel", watched(run_backward.backward_kernel)),
    ):
        train(case, SMALL._replace(**changes))
    return asked


@pytest.mark.skipif(ON_GPU, reason="compares the interpreter's bits")
@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
@pytest.mark.parametrize("changes", OPTIONS.values(), ids=list(OPTIONS))
def test_an_option_has_the_bits_of_the_default(gru: bool, changes: dict[str, Any]) -> None:
    case = Case(gru, 3, 2, 5, 3, 16)
    expected, found = train(case, SMALL), train(case, SMALL._replace(**changes))
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


@pytest.mark.skipif(ON_GPU, reason="compares the interpreter's bits")
@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
@pytest.mark.parametrize("units", [16, 9])
def test_padding_and_cuts_have_the_bits_of_the_default(gru: bool, units: int) -> None:
    case = Case(gru, 4, 2, 5, 3, units)
    rest = {"valid": padding(case), "bptt": 2}
    expected = train(case, SMALL, **rest)
    found = train(case, SMALL._replace(**CROWDED), **rest)
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


@pytest.mark.skipif(ON_GPU, reason="watches the interpreter")
def test_what_is_asked_for_is_done_where_it_can_be() -> None:
    assert set(launched(Case(False, 2, 1, 5, 3, 16), {})) == {(False, False)}
    assert set(launched(Case(False, 2, 1, 5, 3, 16), {"ticket": True})) == {(False, True)}
    assert set(launched(Case(False, 2, 1, 5, 3, 16), FETCH)) == {(True, False)}
    # Blocks that don't fill their tiles, and sums in pieces, are loaded as ever.
    assert set(launched(Case(False, 2, 1, 5, 3, 17), FETCH)) == {(False, False)}
    pieces = FETCH | {"forward_inner": 16, "backward_inner": 16}
    assert set(launched(Case(False, 2, 1, 5, 3, 32), pieces)) == {(False, False)}


def test_what_can_be_fetched() -> None:
    assert fetch.fetchable(64, 64, 4, 512)
    assert fetch.fetchable(16, 64, 2, 16)
    assert not fetch.fetchable(33, 64, 4, 512)
    assert not fetch.fetchable(8, 64, 4, 512)
    assert not fetch.fetchable(128, 64, 4, 512)
    assert not fetch.fetchable(64, 64, 4, 8)


def test_a_card_that_cannot_fetch_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = torch.zeros(2, 5, 16, 16)
    monkeypatch.setattr(fetch, "can_fetch", lambda device: True)
    made = fetch.block_descriptor(blocks, 64, True)
    assert made is not None
    assert (list(made.shape), made.block_shape) == ([160, 16], [16, 16])
    assert fetch.block_descriptor(blocks, 64, False) is None
    assert fetch.block_descriptor(blocks.transpose(-1, -2), 64, True) is None
    monkeypatch.setattr(fetch, "can_fetch", lambda device: False)
    assert fetch.block_descriptor(blocks, 64, True) is None


# Factors of 11 bits: rounding may move one to its neighbour.
BOUND = 2e-3


@pytest.mark.gpu
@pytest.mark.skipif(not ON_GPU, reason="needs a CUDA device")
@pytest.mark.parametrize("members", [1, 12])
@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
def test_gpu_options_compute_what_the_default_computes(gru: bool, members: int) -> None:
    case = Case(gru, 4, members, 9, 30, 64, "cuda")
    fill = torch.utils.deterministic.fill_uninitialized_memory
    for rest in ({}, {"valid": padding(case), "bptt": 2}):
        expected = train(case, None, **rest)
        for name, changes in OPTIONS.items():
            # Fresh memory is filled with NaN: what is read before it is written would show.
            torch.use_deterministic_algorithms(True, warn_only=True)
            try:
                assert fill
                found = train(case, Tuning(**changes), **rest)
            finally:
                torch.use_deterministic_algorithms(False)
            again = train(case, Tuning(**changes), **rest)
            for value, gradient in expected.items():
                gap = (found[value] - gradient).abs().max() / gradient.abs().max().clamp(min=1e-30)
                assert gap < BOUND, (name, value, float(gap))
                assert torch.equal(found[value], again[value]), (name, value)


@pytest.mark.gpu
@pytest.mark.skipif(not ON_GPU, reason="needs a CUDA device")
@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
def test_gpu_options_of_a_long_chain_repeat(gru: bool) -> None:
    """Programs that count in a different order each time leave the same bits."""
    case, tuning = Case(gru, 40, 12, 64, 30, 64, "cuda"), Tuning(**CROWDED)
    first = train(case, tuning)
    for _ in range(3):
        again = train(case, tuning)
        for name, value in first.items():
            assert torch.equal(again[name], value), name


@pytest.mark.gpu
@pytest.mark.skipif(not ON_GPU, reason="needs a CUDA device")
def test_gpu_widths_that_cannot_be_fetched() -> None:
    case = Case(False, 3, 2, 5, 7, 33, "cuda")
    expected, found = train(case, None), train(case, Tuning(**CROWDED))
    for name, value in expected.items():
        gap = (found[name] - value).abs().max() / value.abs().max().clamp(min=1e-30)
        assert gap < BOUND, (name, float(gap))
