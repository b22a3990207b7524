"""Both cells against the written-out loops: values and gradients to 1e-10 in float64."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path

import pytest
import torch

from pfrnn.functional import (
    FilterSwitches,
    PFGRUWeights,
    PFLSTMWeights,
    PFState,
    normalize,
    pf_gru_step,
    pf_lstm_step,
    run_pf,
)

_spec = importlib.util.spec_from_file_location("loops", Path(__file__).parent / "loops.py")
loops = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(loops)

T, N, K, H = 5, 3, 4, 3
TIGHT = {"rtol": 1e-10, "atol": 1e-10}
STEPS = {
    "lstm": (pf_lstm_step, loops.transition_lstm, 5 * H + 1),
    "gru": (pf_gru_step, loops.transition_gru, 4 * H + 1),
}
PAPER = FilterSwitches()
AUTHORS = FilterSwitches(
    noise_scale="softplus", activation="leaky_relu", batch_norm="particle_slot", gru_noise="reset"
)
CASES = {
    "paper": PAPER,
    "authors": AUTHORS,
    "alpha_0.1": PAPER._replace(alpha=0.1),
    "alpha_1": PAPER._replace(alpha=1.0),
    "multinomial": PAPER._replace(resampling="multinomial"),
    "systematic": PAPER._replace(resampling="systematic"),
    "none": PAPER._replace(resampling="none"),
    "ess": PAPER._replace(ess_threshold=0.85),
    "ess_systematic": PAPER._replace(resampling="systematic", ess_threshold=0.85),
    "nobnrelu": PAPER._replace(activation="tanh", batch_norm="none"),
    "reset_after": PAPER._replace(reset_after=True),
}


def make(cell, switches, seed=0, lead=(), members=None):
    g = torch.Generator().manual_seed(seed)

    def randn(*shape):
        return torch.randn(*lead, *shape, generator=g, dtype=torch.float64)

    def timed(*shape):
        return torch.randn(T, *lead, *shape, generator=g, dtype=torch.float64)

    width = STEPS[cell][2]
    channels = K if switches.batch_norm == "particle_slot" else H
    norm = (1 + 0.3 * randn(channels), 0.3 * randn(channels))
    if switches.batch_norm == "none":
        norm = (None, None)
    if cell == "lstm":
        weights = PFLSTMWeights(0.6 * randn(H, 5 * H), randn(H), *norm)
    else:
        both = switches.gru_noise == "reset"
        weights = PFGRUWeights(
            0.6 * randn(H, (2 if both else 3) * H),
            0.6 * randn(H, (2 if both else 1) * H),
            randn(H),
            *norm,
            randn(H),
        )
    state = PFState(
        randn(N, K, H), randn(N, K, H) if cell == "lstm" else None, normalize(randn(N, K))
    )
    projected, noise = timed(N, width), timed(N, K, H)
    uniforms = torch.rand(T, *lead, N, K, generator=g, dtype=torch.float64)
    return weights, state, projected, noise, uniforms


def leaves(weights, state, projected, noise):
    found = [x for x in (*weights, *state, projected, noise) if x is not None]
    return [x.detach().requires_grad_() for x in found]


def rebuild(weights, state, flat):
    it = iter(flat)
    w = type(weights)(*[None if x is None else next(it) for x in weights])
    s = PFState(*[None if x is None else next(it) for x in state])
    return w, s, next(it), next(it)


def compare(cell, switches, valid=None, given=None, cut=None, seed=0):
    step, transition, _ = STEPS[cell]
    weights, state, projected, noise, uniforms = make(cell, switches, seed)
    flat = leaves(weights, state, projected, noise)
    w, s, x, e = rebuild(weights, state, flat)
    out = run_pf(step, x, s, e, uniforms, w, switches, statistics=given, valid=valid, bptt=cut)
    want = loops.run(transition, x, s, e, uniforms, w, switches, given, valid, cut)
    assert torch.equal(out.ancestors, want[2])
    torch.testing.assert_close(out.hidden, want[0], **TIGHT)
    torch.testing.assert_close(out.log_weights, want[1], **TIGHT)
    torch.testing.assert_close(out.ess, want[3], **TIGHT)
    g = torch.Generator().manual_seed(99)
    probe = torch.randn(out.hidden.shape, generator=g, dtype=torch.float64)
    probe_w = torch.randn(out.log_weights.shape, generator=g, dtype=torch.float64)
    losses = [(h * probe).sum() + (lw * probe_w).sum() for h, lw in (out[:2], want[:2])]
    got, expected = (torch.autograd.grad(v, flat, allow_unused=True) for v in losses)
    for a, b in zip(got, expected, strict=True):
        a = torch.zeros(()) if a is None else a
        b = torch.zeros_like(a) if b is None else b
        torch.testing.assert_close(a.expand_as(b), b, check_dtype=False, **TIGHT)
    return out, want


@pytest.mark.parametrize(("cell", "case"), list(itertools.product(STEPS, CASES)))
def test_filter_equals_loops(cell, case):
    out, want = compare(cell, CASES[case])
    if CASES[case].batch_norm != "none":
        means = torch.stack([s[0] for s in want[4]])
        variances = torch.stack([s[1] for s in want[4]])
        torch.testing.assert_close(out.step_mean, means, **TIGHT)
        torch.testing.assert_close(out.step_variance, variances, **TIGHT)


@pytest.mark.parametrize("cell", STEPS)
@pytest.mark.parametrize("case", ["paper", "authors", "ess", "nobnrelu"])
def test_padded_batch_equals_loops(cell, case):
    lengths = torch.tensor([5, 2, 4])
    compare(cell, CASES[case], valid=torch.arange(T)[:, None] < lengths)


@pytest.mark.parametrize("cell", STEPS)
@pytest.mark.parametrize("case", ["paper", "authors"])
def test_given_statistics_and_cut_gradient(cell, case):
    g = torch.Generator().manual_seed(3)
    channels = K if case == "authors" else H
    given = (
        torch.randn(channels, generator=g, dtype=torch.float64),
        torch.rand(channels, generator=g, dtype=torch.float64) + 0.5,
    )
    out, _ = compare(cell, CASES[case], given=given, cut=2)
    assert out.mean is None


def test_the_gradient_is_really_cut():
    weights, state, projected, noise, uniforms = make("lstm", PAPER)
    projected.requires_grad_()
    out = run_pf(pf_lstm_step, projected, state, noise, uniforms, weights, PAPER, bptt=3)
    (grad,) = torch.autograd.grad(out.hidden[-1].sum() + out.log_weights[-1, 0, 0], projected)
    assert torch.all(grad[:3] == 0)
    assert torch.any(grad[3] != 0)


@pytest.mark.parametrize("cell", STEPS)
@pytest.mark.parametrize("case", ["paper", "authors", "reset_after", "none"])
def test_population_equals_members_alone(cell, case):
    step, _, _ = STEPS[cell]
    M, switches = 3, CASES[case]
    weights, state, projected, noise, uniforms = make(cell, switches, lead=(M,))
    valid = torch.arange(T)[:, None, None] < torch.tensor([[5, 2, 4], [1, 1, 5], [3, 5, 5]])
    both = run_pf(step, projected, state, noise, uniforms, weights, switches, valid=valid)
    for m in range(M):
        alone = run_pf(
            step,
            projected[:, m],
            PFState(*[None if x is None else x[m] for x in state]),
            noise[:, m],
            uniforms[:, m],
            type(weights)(*[None if x is None else x[m] for x in weights]),
            switches,
            valid=valid[:, m],
        )
        torch.testing.assert_close(both.hidden[:, m], alone.hidden, **TIGHT)
        torch.testing.assert_close(both.log_weights[:, m], alone.log_weights, **TIGHT)
        assert torch.equal(both.ancestors[:, m], alone.ancestors)
        torch.testing.assert_close(both.mean[m], alone.mean, **TIGHT)
        torch.testing.assert_close(both.variance[m], alone.variance, **TIGHT)


def test_pooled_statistics_are_those_of_all_valid_values():
    weights, state, projected, noise, uniforms = make("lstm", PAPER)
    valid = torch.arange(T)[:, None] < torch.tensor([5, 2, 4])
    raw = []

    def spy(state, projected, noise, *args):
        z = state.hidden @ weights.recurrent[:, 3 * H :] + projected[:, None, 3 * H : -1]
        raw.append(z[..., :H] + noise * z[..., H:])
        return pf_lstm_step(state, projected, noise, *args)

    out = run_pf(spy, projected, state, noise, uniforms, weights, PAPER, valid=valid)
    values = torch.cat([raw[t][valid[t]].reshape(-1, H) for t in range(T)])
    torch.testing.assert_close(out.mean, values.mean(0), **TIGHT)
    torch.testing.assert_close(out.variance, values.var(0, correction=0), **TIGHT)
    assert out.count == values.shape[0]
