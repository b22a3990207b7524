"""The fused plain RNNs against the float64 reference, forward and every gradient."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

from pfrnn.functional.rnn import GRUWeights, LSTMWeights, gru_step, lstm_step, run_rnn
from pfrnn.functional.types import RNNOutput, RNNState, RNNSwitches
from pfrnn.kernels.ground import rnn_refusal
from pfrnn.kernels.rnn import MAX_SEQUENCES, run_rnn_fused

# float32 products and sums against float64: the largest error over the largest value.
BOUND = 1e-5
BN_RELU = RNNSwitches("relu", "feature")


class Case(NamedTuple):
    """Sizes and options of a case."""

    gru: bool = False
    steps: int = 3
    members: int | None = 2
    sequences: int = 5
    units: int = 20
    switches: RNNSwitches = RNNSwitches()
    padded: bool = False
    bptt: int | None = None
    given: str = ""


def draw(case: Case) -> dict[str, Any]:
    """Draw a case's tensors in float64, on the CPU."""
    generator = torch.Generator().manual_seed(case.steps + case.units)
    lead = () if case.members is None else (case.members,)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    size, blocks = case.units, 3 if case.gru else 4
    steps, rows = case.steps, case.sequences
    weights = {"recurrent": normal(*lead, size, (blocks - case.gru) * size) / size**0.5}
    if case.gru:
        weights["candidate"] = normal(*lead, size, size) / size**0.5
    if case.switches.batch_norm != "none":
        weights |= {"norm_gain": 1 + normal(*lead, size), "norm_shift": normal(*lead, size)}
    drawn = {
        "projected": normal(steps, *lead, rows, blocks * size),
        "weights": weights,
        "hidden": normal(*lead, rows, size),
        "weigh": normal(steps, *lead, rows, size),
    }
    if not case.gru:
        drawn |= {"cell": normal(*lead, rows, size), "weigh_cell": normal(*lead, rows, size)}
    if case.padded:
        # The first sequence is whole; the others end, one of them before it began.
        lengths = torch.arange(rows).flip(0).clamp(max=steps)
        valid = torch.arange(steps)[:, None] < lengths
        drawn["valid"] = valid.view(steps, *[1] * len(lead), rows).expand(steps, *lead, rows)
    if case.given:
        shape = ((steps,) if case.given == "steps" else ()) + (*lead, size)
        drawn["statistics"] = normal(*shape), normal(*shape).square() + 0.5
    return drawn


def evaluate(
    case: Case, drawn: dict[str, Any], device: str, fused: bool
) -> tuple[RNNOutput, dict[str, Tensor]]:
    """Run a case forwards and backwards; returns the output and all gradients."""
    dtype = torch.float32 if fused else torch.float64

    def here(x: Tensor) -> Tensor:
        return x.to(device if fused else "cpu", dtype).detach()

    leaves = {name: here(drawn[name]).requires_grad_() for name in ("projected", "hidden")}
    leaves |= {name: here(x).requires_grad_() for name, x in drawn["weights"].items()}
    if not case.gru:
        leaves["cell"] = here(drawn["cell"]).requires_grad_()
    kind = GRUWeights if case.gru else LSTMWeights
    valid = drawn.get("valid")
    statistics = drawn.get("statistics")
    output = (run_rnn_fused if fused else run_rnn)(
        gru_step if case.gru else lstm_step, leaves["projected"],
        RNNState(leaves["hidden"], leaves.get("cell")),
        kind(**{name: leaves[name] for name in drawn["weights"]}), case.switches,
        statistics=None if statistics is None else tuple(here(x) for x in statistics),
        valid=None if valid is None else valid.to(device if fused else "cpu"), bptt=case.bptt,
    )  # fmt: skip
    loss = (output.hidden * here(drawn["weigh"])).sum()
    if not case.gru:
        assert output.final.cell is not None
        loss = loss + (output.final.cell * here(drawn["weigh_cell"])).sum()
    loss.backward()
    return output, {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}


def largest_errors(case: Case, device: str) -> dict[str, float]:
    """Return the largest error over the largest value of each output and gradient."""
    drawn = draw(case)
    fast, fast_grads = evaluate(case, drawn, device, True)
    slow, slow_grads = evaluate(case, drawn, device, False)
    assert fast_grads.keys() == slow_grads.keys()
    pairs = {f"d {name}": (fast_grads[name], slow_grads[name]) for name in slow_grads}
    for name, value in slow._asdict().items():
        other = getattr(fast, name)
        if name == "final":
            both = zip(other, value, strict=True)
            pairs |= {f"final {i}": (a, b) for i, (a, b) in enumerate(both) if b is not None}
        else:
            assert (other is None) == (value is None), name
            if value is not None:
                pairs[name] = other, value
    found = {}
    for name, (got, expected) in pairs.items():
        assert got.shape == expected.shape, name
        scale = expected.detach().abs().max().clamp(min=1e-9)
        found[name] = float((got.detach().cpu().double() - expected.detach()).abs().max() / scale)
    return found


@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
@pytest.mark.parametrize(
    "case",
    [
        Case(),
        Case(members=None, sequences=1, units=16, steps=1),
        Case(sequences=33, units=7, bptt=2, steps=4),
        Case(padded=True, bptt=1),
        Case(switches=RNNSwitches("leaky_relu")),
        Case(switches=BN_RELU, bptt=2),
        # Batch norm over the two values that fewer sequences leave amplifies any rounding.
        Case(switches=BN_RELU, padded=True, steps=4, sequences=12),
        Case(switches=BN_RELU, given="one", sequences=33, members=None),
        Case(switches=BN_RELU, given="steps", padded=True),
        Case(switches=RNNSwitches("tanh", "feature"), members=1),
    ],
    ids=["plain", "one", "cut", "padded", "leaky", "norm", "norm-padded", "given", "given-steps",
         "norm-tanh"],
)  # fmt: skip
def test_equals_the_reference(device, case, gru):
    found = largest_errors(case._replace(gru=gru), device)
    assert max(found.values()) < BOUND, found


@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
def test_twice_the_same_bits(device, gru):
    case = Case(gru, switches=BN_RELU, padded=True)
    drawn = draw(case)
    one, two = (evaluate(case, drawn, device, True) for _ in range(2))
    assert torch.equal(one[0].hidden, two[0].hidden)
    assert all(torch.equal(one[1][name], two[1][name]) for name in one[1])


def test_what_is_no_number_stays_none(device):
    case = Case(switches=BN_RELU)
    drawn = draw(case)
    drawn["projected"][1, 1, 0, 0] = torch.nan
    output, _ = evaluate(case, drawn, device, True)
    assert not output.hidden[2, 1].isfinite().all()
    assert output.hidden[:, 0].isfinite().all()


def test_large_batches_with_batch_norm_take_the_reference(device):
    case = Case(members=1, steps=1, sequences=MAX_SEQUENCES + 1, units=2, switches=BN_RELU)
    assert max(largest_errors(case, device).values()) < BOUND
    # Given statistics need no whole batch in a program: these run in the kernels, in several.
    assert max(largest_errors(case._replace(given="one"), device).values()) < BOUND


def test_refusals():
    def why(switches=RNNSwitches(), dtype=torch.float32, step=gru_step):  # noqa: B008
        return rnn_refusal(step, switches, dtype)

    assert why() is None
    assert "float64" in str(why(dtype=torch.float64))
    assert "reset gate" in str(why(RNNSwitches(reset_after=True)))
    assert "step only" in str(why(step=run_rnn))
    drawn = draw(Case())
    with pytest.raises(ValueError, match=r"float64; use run_rnn"):
        run_rnn_fused(
            lstm_step, drawn["projected"], RNNState(drawn["hidden"], drawn["cell"]),
            LSTMWeights(**drawn["weights"]), RNNSwitches(),
        )  # fmt: skip
