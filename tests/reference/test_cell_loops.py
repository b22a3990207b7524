"""Whole cells, from the input on: both fidelities against the written-out loops."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from pfrnn.nn import PFGRUCell, PFLSTMCell

_spec = importlib.util.spec_from_file_location("loops", Path(__file__).parent / "loops.py")
loops = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(loops)

T, N, D, K, H = 4, 3, 2, 4, 3
TIGHT = {"rtol": 1e-10, "atol": 1e-10}


def project_by_hand(cell, x):
    """W_x x + b of every step and sequence; the release first maps x to u(x) and o(x)."""
    out = []
    for t in range(T):
        for n in range(N):
            if cell.options.gate_features is None:
                out.append(x[t, n] @ cell.weight_input + cell.bias)
                continue
            u = loops.act(x[t, n] @ cell.weight_control + cell.bias_control, "leaky_relu")
            o = loops.act(x[t, n] @ cell.weight_sense + cell.bias_sense, "leaky_relu")
            gates = u @ cell.weight_input + cell.bias[:-1]
            out.append(torch.cat([gates, o @ cell.weight_sensed + cell.bias[-1:]]))
    return torch.stack(out).view(T, N, -1)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("fidelity", ["paper", "authors_code"])
@pytest.mark.parametrize("cls", [PFLSTMCell, PFGRUCell])
def test_cell_equals_loops(cls, fidelity, training):
    torch.manual_seed(0)
    cell = cls(D, H, num_particles=K, fidelity=fidelity, dtype=torch.float64).train(training)
    if cell.running is not None:
        cell.running.mean.normal_()
        cell.running.variance.uniform_(0.5, 2.0)
    given = None if training else (cell.running.mean.clone(), cell.running.variance.clone())
    x = torch.randn(T, N, D, dtype=torch.float64, requires_grad=True)
    state, (noise, uniforms) = cell.initial_state(N), cell.draw(T, N, K)
    transition = loops.transition_lstm if cls is PFLSTMCell else loops.transition_gru
    weights = cell.weights()
    want = loops.run(
        transition,
        project_by_hand(cell, x),
        state,
        noise,
        uniforms,
        weights,
        cell.switches,
        given,
        None,
        None,
    )
    got = cell.unroll(x, state, noise, uniforms)
    torch.testing.assert_close(got.hidden, want[0], **TIGHT)
    torch.testing.assert_close(got.log_weights, want[1], **TIGHT)
    assert torch.equal(got.ancestors, want[2])
    leaves = [x, *cell.parameters()]
    sums = [(h.square()).sum() + (lw * lw).sum() for h, lw in (got[:2], want[:2])]
    for a, b in zip(*(torch.autograd.grad(s, leaves) for s in sums), strict=True):
        torch.testing.assert_close(a, b, **TIGHT)
