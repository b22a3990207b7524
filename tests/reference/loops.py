"""The paper's equations written out for one particle at a time, in plain float64 torch.

Nothing here calls the package. Weights are the package's (in, out) matrices, split by hand.
"""

from __future__ import annotations

import math

import torch

EPS = 1e-5


def act(x, name):
    if name == "relu":
        return torch.where(x > 0, x, torch.zeros_like(x))
    if name == "leaky_relu":
        return torch.where(x > 0, x, 0.01 * x)
    return (x.exp() - (-x).exp()) / (x.exp() + (-x).exp())


def sigmoid(x):
    return 1 / (1 + torch.exp(-x))


def softplus(x):
    return torch.log(1 + torch.exp(x))


def batch_norm(rows, gain, shift, mode, given, valid):
    """rows[n][k]: vectors (H,). Returns the same, normalised, and (mean, biased variance)."""
    N, K, H = len(rows), len(rows[0]), rows[0][0].numel()
    if mode == "none":
        return rows, None
    live = [n for n in range(N) if valid is None or bool(valid[n])]
    if given is not None:
        mean, var = given
    elif mode == "feature":
        values = [rows[n][k] for n in live for k in range(K)]
        mean = sum(values) / len(values)
        var = sum((v - mean) ** 2 for v in values) / len(values)
    else:
        mean = torch.stack(
            [sum(rows[n][k].sum() for n in live) / (len(live) * H) for k in range(K)]
        )
        var = torch.stack(
            [
                sum(((rows[n][k] - mean[k]) ** 2).sum() for n in live) / (len(live) * H)
                for k in range(K)
            ]
        )
    out = []
    for n in range(N):
        line = []
        for k in range(K):
            if mode == "feature":
                line.append((rows[n][k] - mean) / torch.sqrt(var + EPS) * gain + shift)
            else:
                value = (rows[n][k] - mean[k]) / torch.sqrt(var[k] + EPS)
                line.append(value * gain[k] + shift[k])
        out.append(line)
    return out, (mean, var)


def draw(probabilities, u):
    """Invert the cumulative distribution; the last particle of positive weight catches the rest."""
    total, last = 0.0, 0
    for i, p in enumerate(probabilities):
        if p > 0:
            last = i
        total += p
        if total > u:
            return i
    return last


def resample(lw, u, s):
    """lw: list of K normalised log-weights (0-d). Returns ancestors and new log-weights."""
    K = len(lw)
    w = [x.exp() for x in lw]
    ess = 1 / sum(x.item() ** 2 for x in w)
    skip = s.resampling == "none"
    skip = skip or (s.ess_threshold is not None and not ess < s.ess_threshold * K)
    if skip:
        return list(range(K)), lw, ess
    if s.resampling == "soft" and s.alpha < 1:
        q = [s.alpha * x + (1 - s.alpha) / K for x in w]
        a = [draw([x.item() for x in q], float(u[j])) for j in range(K)]
        raw = [w[i] / q[i] for i in a]
        total = sum(raw)
        return a, [torch.log(x / total) for x in raw], ess
    p = [x.item() for x in w]
    if s.resampling == "systematic":
        a = [draw(p, (float(u[0]) + j) / K) for j in range(K)]
    else:
        a = [draw(p, float(u[j])) for j in range(K)]
    constant = torch.tensor(-math.log(K), dtype=lw[0].dtype)
    return a, [constant for _ in a], ess


def weigh(lw_old, new_h, w_obs, x_obs):
    lw = [lw_old[k] + (new_h[k] * w_obs).sum() + x_obs for k in range(len(new_h))]
    total = torch.log(sum(x.exp() for x in lw))
    return [x - total for x in lw]


def transition_lstm(h, c, x, eps, weights, s):
    """Raw noisy candidate of one particle, and a function from the normed candidate to (h, c)."""
    H = h.numel()
    z = [h @ weights.recurrent[:, j * H : (j + 1) * H] + x[j * H : (j + 1) * H] for j in range(5)]
    scale = z[4] if s.noise_scale == "linear" else softplus(z[4])

    def finish(normed):
        new_c = sigmoid(z[1]) * c + sigmoid(z[0]) * act(normed, s.activation)
        return sigmoid(z[2]) * act(new_c, "tanh"), new_c

    return z[3] + eps * scale, finish


def transition_gru(h, c, x, eps, weights, s):
    H = h.numel()
    z = sigmoid(h @ weights.recurrent[:, :H] + x[:H])
    r = sigmoid(h @ weights.recurrent[:, H : 2 * H] + x[H : 2 * H])
    if s.reset_after:
        n = r * (h @ weights.candidate[:, :H] + weights.candidate_bias) + x[2 * H : 3 * H]
    else:
        n = (r * h) @ weights.candidate[:, :H] + x[2 * H : 3 * H]
    if s.gru_noise == "reset":
        raw = (r * h) @ weights.candidate[:, H:]
    else:
        raw = h @ weights.recurrent[:, 2 * H :]
    raw = raw + x[3 * H : 4 * H]
    scale = raw if s.noise_scale == "linear" else softplus(raw)

    def finish(normed):
        return (1 - z) * act(normed, s.activation) + z * h, None

    return n + eps * scale, finish


def run(
    transition, projected, state, noise, uniforms, weights, s, given=None, valid=None, cut=None
):
    """All steps. Returns hidden, log-weights, ancestors, ess as nested stacks, and statistics."""
    T, N, K = projected.shape[0], projected.shape[1], noise.shape[2]
    h = [[state.hidden[n, k] for k in range(K)] for n in range(N)]
    c = [[None if state.cell is None else state.cell[n, k] for k in range(K)] for n in range(N)]
    lw = [[state.log_weights[n, k] for k in range(K)] for n in range(N)]
    hs, lws, ancs, esss, stats = [], [], [], [], []
    for t in range(T):
        if cut is not None and t > 0 and t % cut == 0:
            h = [[v.detach() for v in line] for line in h]
            c = [[None if v is None else v.detach() for v in line] for line in c]
            lw = [[v.detach() for v in line] for line in lw]
        now = None if valid is None else valid[t]
        moved = [
            [
                transition(h[n][k], c[n][k], projected[t, n], noise[t, n, k], weights, s)
                for k in range(K)
            ]
            for n in range(N)
        ]
        raw = [[moved[n][k][0] for k in range(K)] for n in range(N)]
        normed, own = batch_norm(
            raw, weights.norm_gain, weights.norm_shift, s.batch_norm, given, now
        )
        stats.append(own)
        anc_t, ess_t = [], []
        for n in range(N):
            if now is not None and not bool(now[n]):
                anc_t.append(list(range(K)))
                ess_t.append(1 / sum(x.exp().item() ** 2 for x in lw[n]))
                continue
            pairs = [moved[n][k][1](normed[n][k]) for k in range(K)]
            weighed = weigh(lw[n], [p[0] for p in pairs], weights.observation, projected[t, n, -1])
            a, new, ess = resample(weighed, uniforms[t, n], s)
            h[n] = [pairs[i][0] for i in a]
            c[n] = [pairs[i][1] for i in a]
            lw[n] = new
            anc_t.append(a)
            ess_t.append(ess)
        hs.append(torch.stack([torch.stack(line) for line in h]))
        lws.append(torch.stack([torch.stack(line) for line in lw]))
        ancs.append(anc_t)
        esss.append(ess_t)
    return (
        torch.stack(hs),
        torch.stack(lws),
        torch.tensor(ancs),
        torch.tensor(esss, dtype=projected.dtype),
        stats,
    )
