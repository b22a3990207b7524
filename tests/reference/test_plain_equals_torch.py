"""Plain LSTM and GRU equal torch's; K = 1 filters without noise equal them too."""

from __future__ import annotations

import pytest
import torch

from pfrnn.functional import (
    FilterSwitches,
    GRUWeights,
    LSTMWeights,
    PFGRUWeights,
    PFLSTMWeights,
    PFState,
    RNNState,
    RNNSwitches,
    affine,
    gru_step,
    lstm_step,
    pf_gru_step,
    pf_lstm_step,
    run_pf,
    run_rnn,
)

T, N, D, H = 100, 3, 4, 5
TIGHT = {"rtol": 1e-10, "atol": 1e-12}
PLAIN = FilterSwitches(resampling="none", activation="tanh", batch_norm="none")


@pytest.fixture(params=["lstm", "gru"])
def case(request):
    torch.manual_seed(0)
    cls = torch.nn.LSTM if request.param == "lstm" else torch.nn.GRU
    return request.param, cls(D, H).double(), torch.randn(T, N, D, dtype=torch.float64)


def swap(matrix, order):
    """Reorder blocks of H rows and transpose to (in, out)."""
    return torch.cat([matrix[j * H : (j + 1) * H] for j in order]).t()


def test_plain_equals_torch(case):
    name, ref, x = case
    w_x, w_h = ref.weight_ih_l0.t(), ref.weight_hh_l0.t()
    zeros = torch.zeros(N, H, dtype=x.dtype)
    if name == "lstm":
        projected = affine(x, w_x, ref.bias_ih_l0 + ref.bias_hh_l0)
        out = run_rnn(lstm_step, projected, RNNState(zeros, zeros), LSTMWeights(w_h), RNNSwitches())
    else:
        bias = ref.bias_ih_l0.clone()
        bias[: 2 * H] += ref.bias_hh_l0[: 2 * H]
        weights = GRUWeights(
            w_h[:, : 2 * H], w_h[:, 2 * H :], candidate_bias=ref.bias_hh_l0[2 * H :]
        )
        switches = RNNSwitches(reset_after=True)
        projected = affine(x, w_x, bias)
        out = run_rnn(gru_step, projected, RNNState(zeros, None), weights, switches)
    torch.testing.assert_close(out.hidden, ref(x)[0], **TIGHT)


def test_one_quiet_particle_equals_torch(case):
    name, ref, x = case
    zeros, log_w = torch.zeros(N, 1, H, dtype=x.dtype), torch.zeros(N, 1, dtype=x.dtype)
    blank = torch.zeros(D, H + 1, dtype=x.dtype)  # noise scale and f_obs read nothing
    observation = torch.randn(H, dtype=x.dtype)
    bias = torch.zeros(4 * H, dtype=x.dtype)
    if name == "lstm":
        order = (0, 1, 3, 2)  # torch: i f g o; here: i f o g
        bias = ref.bias_ih_l0 + ref.bias_hh_l0
        bias = torch.cat([bias[j * H : (j + 1) * H] for j in order] + [bias.new_zeros(H + 1)])
        projected = affine(x, torch.cat([swap(ref.weight_ih_l0, order), blank], 1), bias)
        recurrent = torch.cat([swap(ref.weight_hh_l0, order), blank.new_zeros(H, H)], 1)
        weights, step = PFLSTMWeights(recurrent, observation), pf_lstm_step
        state, switches = PFState(zeros, zeros, log_w), PLAIN
    else:
        order = (1, 0, 2)  # torch: r z n; here: z r n
        bias_x, bias_h = ref.bias_ih_l0, ref.bias_hh_l0
        parts = [bias_x[H : 2 * H] + bias_h[H : 2 * H], bias_x[:H] + bias_h[:H], bias_x[2 * H :]]
        bias = torch.cat([*parts, bias_x.new_zeros(H + 1)])
        projected = affine(x, torch.cat([swap(ref.weight_ih_l0, order), blank], 1), bias)
        both = swap(ref.weight_hh_l0, order)
        recurrent = torch.cat([both[:, : 2 * H], blank.new_zeros(H, H)], 1)
        weights = PFGRUWeights(
            recurrent, both[:, 2 * H :], observation, candidate_bias=bias_h[2 * H :]
        )
        step, state = pf_gru_step, PFState(zeros, None, log_w)
        switches = PLAIN._replace(reset_after=True)
    noise = torch.randn(T, N, 1, H, dtype=x.dtype)
    out = run_pf(step, projected, state, noise, None, weights, switches, belief=True)
    torch.testing.assert_close(out.belief, ref(x)[0], **TIGHT)


@pytest.mark.parametrize("batch_norm", ["none", "feature"])
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_population_and_padding(name, batch_norm):
    g = torch.Generator().manual_seed(1)
    M, steps = 2, 6

    def randn(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    norm = (randn(M, H), randn(M, H)) if batch_norm == "feature" else (None, None)
    switches = RNNSwitches(activation="relu", batch_norm=batch_norm)
    if name == "lstm":
        weights, step, width = LSTMWeights(randn(M, H, 4 * H), *norm), lstm_step, 4 * H
        state = RNNState(randn(M, N, H), randn(M, N, H))
    else:
        weights = GRUWeights(randn(M, H, 2 * H), randn(M, H, H), *norm)
        step, width, state = gru_step, 3 * H, RNNState(randn(M, N, H), None)
    projected = randn(steps, M, N, width)
    valid = torch.arange(steps)[:, None, None] < torch.tensor([[6, 2, 4], [5, 1, 6]])
    both = run_rnn(step, projected, state, weights, switches, valid=valid)
    for m in range(M):
        w = type(weights)(*[None if x is None else x[m] for x in weights])
        s = RNNState(*[None if x is None else x[m] for x in state])
        # Padding is unread: other values there change nothing.
        other = torch.where(valid[:, m, :, None], projected[:, m], 1e3)
        alone = run_rnn(step, other, s, w, switches, valid=valid[:, m])
        torch.testing.assert_close(both.hidden[:, m], alone.hidden, **TIGHT)
        if batch_norm == "feature":
            torch.testing.assert_close(both.mean[m], alone.mean, **TIGHT)
            torch.testing.assert_close(both.variance[m], alone.variance, **TIGHT)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_plain_with_bn_and_relu_equals_one_quiet_particle(name, training):
    """The filter is checked against written-out loops; one particle of it is the plain cell."""
    g = torch.Generator().manual_seed(2)
    steps = 7

    def randn(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    norm, given = (randn(H), randn(H)), None if training else (randn(H), randn(H).square() + 0.5)
    cell, log_w = (randn(N, H) if name == "lstm" else None), torch.zeros(N, 1, dtype=torch.float64)
    hidden, blank = randn(N, H), torch.zeros(H, H, dtype=torch.float64)
    state = PFState(hidden.unsqueeze(1), None if cell is None else cell.unsqueeze(1), log_w)
    filter_switches = FilterSwitches(resampling="none")
    switches = RNNSwitches(activation="relu", batch_norm="feature")
    quiet = torch.zeros(steps, N, H + 1, dtype=torch.float64)
    if name == "lstm":
        i, f, n, o = (randn(H, H) for _ in range(4))
        pi, pf, pn, po = (randn(steps, N, H) for _ in range(4))
        plain = LSTMWeights(torch.cat([i, f, n, o], 1), *norm)
        weights = PFLSTMWeights(torch.cat([i, f, o, n, blank], 1), randn(H), *norm)
        x, wide = torch.cat([pi, pf, pn, po], -1), torch.cat([pi, pf, po, pn, quiet], -1)
        step, pf_step = lstm_step, pf_lstm_step
    else:
        r, z, n = (randn(H, H) for _ in range(3))
        pr, pz, pn = (randn(steps, N, H) for _ in range(3))
        plain = GRUWeights(torch.cat([r, z], 1), n, *norm)
        weights = PFGRUWeights(torch.cat([z, r, blank], 1), n, randn(H), *norm)
        x, wide = torch.cat([pr, pz, pn], -1), torch.cat([pz, pr, pn, quiet], -1)
        step, pf_step = gru_step, pf_gru_step
    valid = torch.arange(steps)[:, None] < torch.tensor([7, 2, 5])
    got = run_rnn(step, x, RNNState(hidden, cell), plain, switches, statistics=given, valid=valid)
    want = run_pf(
        pf_step, wide, state, None, None, weights, filter_switches, statistics=given, valid=valid
    )
    torch.testing.assert_close(got.hidden, want.hidden.squeeze(2), **TIGHT)
    if training:
        torch.testing.assert_close(got.step_mean, want.step_mean, **TIGHT)
        torch.testing.assert_close(got.variance, want.variance, **TIGHT)
