"""Gradients by finite differences, permutation of particles, padding, extreme inputs."""

from __future__ import annotations

import math
import re
from functools import partial

import pytest
import torch
from scipy import stats

from pfrnn.errors import ConfigError
from pfrnn.functional import (
    FilterSwitches,
    PFGRUWeights,
    PFLSTMWeights,
    PFState,
    effective_sample_size,
    filter_update,
    normalize,
    pf_gru_step,
    pf_lstm_step,
    resample,
    run_pf,
    soft_resample,
    systematic_resample,
)
from pfrnn.functional.resampling import ancestors_of
from pfrnn.kernels.sequence import run_pf_fused
from pfrnn.nn import PFGRUCell, PFLSTMCell

N, K, H = 2, 4, 3
DOUBLE = torch.float64
STEPS = {"lstm": (pf_lstm_step, 5 * H + 1), "gru": (pf_gru_step, 4 * H + 1)}
RESAMPLERS = ["soft", "multinomial", "systematic", "none"]


def build(cell, switches, seed=0, sequences=N):
    g = torch.Generator().manual_seed(seed)

    def randn(*shape):
        return torch.randn(*shape, generator=g, dtype=DOUBLE)

    channels = K if switches.batch_norm == "particle_slot" else H
    norm = (None, None)
    if switches.batch_norm != "none":
        norm = (1 + 0.3 * randn(channels), 0.3 * randn(channels))
    if cell == "lstm":
        weights = PFLSTMWeights(randn(H, 5 * H), randn(H), *norm)
    else:
        weights = PFGRUWeights(randn(H, 3 * H), randn(H, H), randn(H), *norm)
    state = PFState(
        randn(sequences, K, H),
        randn(sequences, K, H) if cell == "lstm" else None,
        normalize(randn(sequences, K)),
    )
    uniforms = torch.rand(sequences, K, generator=g, dtype=DOUBLE)
    return weights, state, randn(sequences, STEPS[cell][1]), randn(sequences, K, H), uniforms


@pytest.mark.parametrize("resampling", RESAMPLERS)
@pytest.mark.parametrize("batch_norm", ["feature", "particle_slot", "none"])
@pytest.mark.parametrize("cell", STEPS)
def test_gradcheck_through_a_whole_step(cell, batch_norm, resampling):
    switches = FilterSwitches(
        resampling=resampling, batch_norm=batch_norm, activation="tanh", noise_scale="softplus"
    )
    weights, state, projected, noise, uniforms = build(cell, switches)
    flat = [x for x in (*weights, *state, projected) if x is not None]

    def step(*leaves):
        it = iter(leaves)
        w = type(weights)(*[None if x is None else next(it) for x in weights])
        s = PFState(*[None if x is None else next(it) for x in state])
        new, _ = STEPS[cell][0](s, next(it), noise, uniforms, w, switches)
        return tuple(x for x in new if x is not None and x.requires_grad)

    assert torch.autograd.gradcheck(step, [x.clone().requires_grad_() for x in flat])


def test_soft_resampling_passes_gradient_below_alpha_one_only():
    log_w = torch.randn(N, K, dtype=DOUBLE).log_softmax(-1).requires_grad_()
    # From the first particle to the last: of copies of a single one all weights are equal.
    uniforms = torch.linspace(0.01, 0.99, K, dtype=DOUBLE).expand(N, K)
    probe = torch.arange(float(K), dtype=DOUBLE)
    (grad,) = torch.autograd.grad((soft_resample(log_w, uniforms, 0.5)[1] * probe).sum(), log_w)
    assert torch.any(grad != 0)
    assert not soft_resample(log_w, uniforms, 1.0).log_weights.requires_grad


def midpoints(probabilities, ancestors):
    """Uniforms for which inverting the cumulative distribution gives these ancestors."""
    right = probabilities.cumsum(-1)
    return (right - probabilities / 2).gather(-1, ancestors)


@pytest.mark.parametrize("resampling", ["soft", "none"])
@pytest.mark.parametrize("batch_norm", ["feature", "none", "particle_slot"])
@pytest.mark.parametrize("cell", STEPS)
def test_permuted_particles_give_permuted_results(cell, batch_norm, resampling):
    """With the same ancestors (or none); per-slot batch norm knows the slots, so it must not."""
    switches = FilterSwitches(resampling=resampling, batch_norm=batch_norm)
    step = STEPS[cell][0]
    weights, state, projected, noise, uniforms = build(cell, switches)
    perm = torch.tensor([2, 0, 3, 1])
    moved = PFState(*[None if x is None else x[:, perm] for x in state])
    if resampling == "soft":
        # The permuted run's weights before resampling decide which uniforms repeat the ancestors.
        _, info = step(state, projected, noise, uniforms, weights, switches)
        free = switches._replace(resampling="none")
        weighed, _ = step(moved, projected, noise[:, perm], None, weights, free)
        mixture = 0.5 * weighed.log_weights.exp() + 0.5 / K
        uniforms_moved = midpoints(mixture, perm.argsort()[info.ancestors[:, perm]])
    else:
        uniforms_moved = None
    new, info = step(state, projected, noise, uniforms, weights, switches)
    got, got_info = step(moved, projected, noise[:, perm], uniforms_moved, weights, switches)
    same = torch.allclose(got.hidden, new.hidden[:, perm], rtol=1e-12, atol=1e-12)
    assert same == (batch_norm != "particle_slot")
    if same:
        torch.testing.assert_close(got.log_weights, new.log_weights[:, perm])
        if resampling == "soft":
            assert torch.equal(perm[got_info.ancestors], info.ancestors[:, perm])


def test_permuted_particles_are_equal_in_distribution():
    """The mean particle of many resamplings, permuted or not: z-scores, 1e-6 in all."""
    runs, switches = 20_000, FilterSwitches(batch_norm="none")
    weights, state, projected, _, _ = build("lstm", switches)
    perm = torch.tensor([2, 0, 3, 1])
    means = []
    for seed, order in ((1, torch.arange(K)), (2, perm)):
        g = torch.Generator().manual_seed(seed)
        big = PFState(*[x[:1, order].expand(runs, *x.shape[1:]) for x in state])
        noise = torch.randn(runs, K, H, generator=g, dtype=DOUBLE)
        uniforms = torch.rand(runs, K, generator=g, dtype=DOUBLE)
        rows = projected[:1].expand(runs, -1)
        new, _ = pf_lstm_step(big, rows, noise, uniforms, weights, switches)
        means.append((new.log_weights.exp().unsqueeze(-1) * new.hidden).sum(1))
    error = ((means[0].var(0) + means[1].var(0)) / runs).sqrt()
    z = (means[0].mean(0) - means[1].mean(0)) / error
    assert z.abs().max() < stats.norm.isf(1e-6 / H / 2)


@pytest.mark.parametrize("resampling", RESAMPLERS)
@pytest.mark.parametrize("value", [1e4, -1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_likelihoods(resampling, value, dtype):
    switches = FilterSwitches(resampling=resampling, ess_threshold=None)
    log_lik = torch.zeros(3, K, dtype=dtype)
    log_lik[0, 1] = value
    log_lik[1] = value
    log_lik[2, 1:] = value
    log_lik.requires_grad_()
    hidden = torch.randn(3, K, H, dtype=dtype)
    state = PFState(hidden, None, torch.full((3, K), -math.log(K), dtype=dtype))
    for _ in range(5):
        uniforms = torch.rand(3, K, dtype=dtype)
        state, info = filter_update(state, hidden, None, log_lik, uniforms, switches)
        assert torch.all(torch.isfinite(state.log_weights))
        torch.testing.assert_close(state.log_weights.exp().sum(-1), torch.ones(3, dtype=dtype))
        assert torch.all((info.ess >= 1) & (info.ess <= K))
    probe = torch.arange(float(K), dtype=dtype)
    if state.log_weights.requires_grad:
        (grad,) = torch.autograd.grad((state.log_weights * probe).sum(), log_lik)
        assert torch.all(torch.isfinite(grad))


@pytest.mark.parametrize("resampling", RESAMPLERS)
@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_weights_of_exactly_zero(resampling, alpha):
    zero = float("-inf")
    raw = torch.tensor([[0.0, zero, zero, 0.0], [zero, 0.0, zero, zero], [zero] * 4])
    raw.requires_grad_()
    log_w = normalize(raw)
    torch.testing.assert_close(
        log_w.exp(), torch.tensor([[0.5, 0, 0, 0.5], [0, 1, 0, 0], [0.25] * 4])
    )
    for u in (0.0, 0.3, 0.99999994):
        result = resample(log_w, torch.full((3, K), u), resampling, alpha)
        assert torch.all(torch.isfinite(result.log_weights))
        if resampling in ("multinomial", "systematic") or (resampling == "soft" and alpha == 1):
            assert torch.all(log_w.gather(-1, result.ancestors).exp() > 0)
        if result.log_weights.requires_grad:
            # A quantity in which weights of zero don't count.
            total = (result.log_weights.exp() * torch.arange(4.0)).sum()
            (grad,) = torch.autograd.grad(total, raw, retain_graph=True)
            assert torch.all(torch.isfinite(grad))
    assert effective_sample_size(log_w).tolist() == pytest.approx([2.0, 1.0, 4.0])


def test_the_last_uniform_stays_inside():
    """Rounding may leave the last cumulative sum below the largest uniform."""
    top = torch.full((1, 1000), 1 - 2.0**-24)
    short = torch.full((1, 1000), 0.9999e-3)
    short[0, -2:] = 0.0
    assert short.sum() < top[0, 0]
    assert torch.all(ancestors_of(short, top) == 997)  # the last particle of positive weight
    log_w = torch.full((1, 1000), -math.log(1000.0))
    assert torch.all(resample(log_w, top, "multinomial").ancestors == 999)
    # Weight zero at the end: the draw must fall on the last particle that has any.
    log_w = torch.cat([log_w, torch.full((1, 3), -1e30)], -1)
    top = torch.full((1, 1003), 1 - 2.0**-24)
    for method in ("multinomial", "systematic"):
        assert resample(log_w, top, method).ancestors.max() == 999


@pytest.mark.parametrize("cls", [PFLSTMCell, PFGRUCell])
def test_smallest_sizes(cls):
    for options in ({}, {"fidelity": "authors_code"}, {"batch_norm": "none"}):
        cell = cls(1, 1, num_particles=1, **options)
        out = cell.unroll(torch.randn(1, 1, 1))
        assert torch.all(torch.isfinite(out.hidden))
        assert torch.all(out.log_weights == 0)
        assert torch.all(out.ess == 1)


@pytest.mark.parametrize("resampling", RESAMPLERS)
@pytest.mark.parametrize("cls", [PFLSTMCell, PFGRUCell])
def test_nan_input_propagates(cls, resampling):
    cell = cls(2, H, num_particles=K, resampling=resampling).eval()
    x = torch.randn(4, N, 2)
    x[1, 0] = float("nan")
    out = cell.unroll(x)
    assert torch.all(torch.isnan(out.hidden[1:, 0]))
    assert torch.all(torch.isfinite(out.hidden[:, 1]))
    assert torch.all((out.ancestors >= 0) & (out.ancestors < K))


def test_empty_batch():
    cell = PFLSTMCell(2, H, num_particles=K)
    out = cell.unroll(torch.zeros(3, 0, 2))
    assert out.hidden.shape == (3, 0, K, H)
    assert torch.all(cell.running.mean == 0)
    assert torch.all(cell.running.variance == 1)


def test_all_steps_padded_changes_nothing():
    cell = PFLSTMCell(2, H, num_particles=K)
    state = PFState(torch.randn(N, K, H), torch.randn(N, K, H), torch.randn(N, K).log_softmax(-1))
    out = cell.unroll(torch.randn(3, N, 2), state, valid=torch.zeros(3, N, dtype=torch.bool))
    assert torch.equal(out.final.hidden, state.hidden)
    assert torch.equal(out.final.log_weights, state.log_weights)
    assert torch.all(cell.running.variance == 1)


def test_ess_threshold_resamples_only_what_needs_it():
    log_w = torch.tensor([[0.97, 0.01, 0.01, 0.01], [0.25] * 4]).log()
    result = resample(log_w, torch.full((2, K), 0.5), "multinomial", ess_threshold=0.5)
    assert result.ancestors.tolist() == [[0] * 4, [0, 1, 2, 3]]
    torch.testing.assert_close(result.log_weights[1], log_w[1])
    for fraction, resampled in ((1e-9, False), (1.0, True)):
        got = resample(log_w, torch.full((2, K), 0.5), "soft", 0.5, fraction)
        assert bool((got.ancestors[0] == 0).all()) == resampled


def test_nonsense_is_an_error():
    weights, state, projected, noise, uniforms = build("lstm", FilterSwitches())
    args = (state, noise.unsqueeze(0), uniforms.unsqueeze(0), weights, FilterSwitches())
    for bptt in (0, 2.5):  # 2.5 would cut where 5 does
        with pytest.raises((TypeError, ConfigError), match="bptt: expected"):
            run_pf(pf_lstm_step, projected.unsqueeze(0), *args, bptt=bptt)
    with pytest.raises(ConfigError, match="at least one step"):
        run_pf(pf_lstm_step, projected.unsqueeze(0)[:0], *args)
    with pytest.raises(ConfigError, match="expected one of soft, multinomial"):
        resample(state.log_weights, uniforms, "sfot")
    for wrong in (None, uniforms[:, :1]):
        with pytest.raises(ValueError, match="uniforms: expected the log-weights' shape"):
            resample(state.log_weights, wrong, "soft")
    for alpha in (0.0, 1.5, float("nan")):
        with pytest.raises(ConfigError, match="alpha: expected a number in"):
            soft_resample(state.log_weights, uniforms, alpha)


@pytest.mark.parametrize("method", RESAMPLERS)
def test_unnormalised_weights_are_normalised(method):
    raw, uniforms = torch.tensor([0.0, 1.0, 2.0, 3.0]), torch.tensor([0.1, 0.4, 0.6, 0.9])
    want, got = (resample(w, uniforms, method, 0.5, 0.9) for w in (raw.log_softmax(-1), raw))
    assert torch.equal(got.ancestors, want.ancestors)
    torch.testing.assert_close(got.log_weights, want.log_weights)


def test_systematic_resampling_at_the_edge_of_float32():
    """u + j rounded up to j + 1 gave [0, 2, 3, 3]."""
    for count in (2, 3, 4, 7, 30, 100):
        log_w = torch.zeros(count)
        found = systematic_resample(log_w, torch.full((count,), 0.99999994)).ancestors
        if count in (2, 4):  # sums of 1 / count are exact
            assert found.tolist() == list(range(count))
        assert torch.bincount(found, minlength=count).max() <= 2


@pytest.mark.parametrize(
    "run", [partial(run_pf, pf_lstm_step), run_pf_fused], ids=["loop", "fused"]
)
def test_a_run_names_the_tensor_whose_shape_is_wrong(run):
    weights, state, projected, noise, uniforms = build("lstm", FilterSwitches())
    valid = torch.ones(1, N, dtype=torch.bool)
    good = {"projected": projected[None], "state": state, "noise": noise[None],
            "uniforms": uniforms[None], "valid": valid}  # fmt: skip
    sequence = f"(1, {N}, {K}, {H})"
    for name, wrong, expected in (
        ("noise", noise, sequence),
        ("noise", noise[None, ..., :1], sequence),
        ("uniforms", uniforms[None, ..., None], f"(1, {N}, {K})"),
        ("valid", valid.T, f"(1, {N})"),
        ("state.hidden", state._replace(hidden=state.hidden[:1]), f"({N}, {K}, {H})"),
        ("state.cell", state._replace(cell=state.cell[0]), f"({N}, {K}, {H})"),
        ("state.log_weights", state._replace(log_weights=state.log_weights.T), f"({N}, {K})"),
        ("projected", projected[0][None], "(T, ..., N, P)"),
    ):
        given = good | {name.partition(".")[0]: wrong}
        order = [given[key] for key in ("projected", "state", "noise", "uniforms")]
        with pytest.raises(ValueError, match=f"{name}: expected shape .*{re.escape(expected)}"):
            run(*order, weights, FilterSwitches(), valid=given["valid"])


@pytest.mark.parametrize("cell", STEPS)
def test_torch_func_grad_works_through_a_step(cell):
    switches = FilterSwitches()
    weights, state, projected, noise, uniforms = build(cell, switches)

    def loss(recurrent):
        new, _ = STEPS[cell][0](
            state, projected, noise, uniforms, weights._replace(recurrent=recurrent), switches
        )
        return new.hidden.square().sum() + new.log_weights.square().sum()

    leaf = weights.recurrent.clone().requires_grad_()
    (want,) = torch.autograd.grad(loss(leaf), leaf)
    torch.testing.assert_close(torch.func.grad(loss)(weights.recurrent), want)
