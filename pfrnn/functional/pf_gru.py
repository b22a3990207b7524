"""One step of the PF-GRU (the paper's appendix "PF-GRU Network Architecture")."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pfrnn.functional.batch_norm import apply_batch_norm
from pfrnn.functional.linear import activate, split
from pfrnn.functional.transition import (
    add_noise,
    filter_update,
    log_likelihood,
    particle_product,
)
from pfrnn.functional.types import FilterSwitches, PFState, StepInfo


class PFGRUWeights(NamedTuple):
    """The weights that a step reads; the input's share is in ``projected``.

    Attributes:
        recurrent: (..., H, 3H): update gate, reset gate, noise scale; (..., H, 2H), the two
            gates, with ``gru_noise="reset"``.
        candidate: (..., H, H), applied to r * h; (..., H, 2H), candidate and noise scale, with
            ``gru_noise="reset"``.
        observation: (..., H): f_obs on the new hidden state.
        norm_gain: (..., H), or (..., K) per particle slot, or None.
        norm_shift: likewise.
        candidate_bias: (..., H), inside the reset gate; read with ``reset_after`` only.
    """

    recurrent: Tensor
    candidate: Tensor
    observation: Tensor
    norm_gain: Tensor | None = None
    norm_shift: Tensor | None = None
    candidate_bias: Tensor | None = None


def pf_gru_step(
    state: PFState,
    projected: Tensor,
    noise: Tensor | None,
    uniforms: Tensor | None,
    weights: PFGRUWeights,
    switches: FilterSwitches,
    statistics: tuple[Tensor, Tensor] | None = None,
    valid: Tensor | None = None,
) -> tuple[PFState, StepInfo]:
    """Advance the particles of a PF-GRU by one time step.

    n = W_n [r h, x] + b_n + noise * (W_s [h, x] + b_s); h' = (1 - z) act(BN(n)) + z h; then the
    weight update and resampling of :func:`pf_lstm_step`, whose arguments these are (the paper's
    appendix "PF-GRU Network Architecture").

    Args:
        state: particles (..., N, K, H), no cell, and log-weights (..., N, K).
        projected: (..., N, 4H + 1): update, reset, candidate, noise scale, observation.
        noise: standard normal, (..., N, K, H); None means no noise.
        uniforms: (..., N, K) in [0, 1), others count as the nearest in it; may be None without
            resampling.
        weights: see :class:`PFGRUWeights`.
        switches: static choices; ``gru_noise`` and ``reset_after`` are the GRU's own.
        statistics: batch-norm mean and variance (evaluation); None takes the step's own.
        valid: (..., N) bool; padded sequences keep their state and enter no statistics.

    Returns:
        The new state and what happened (:class:`StepInfo`).

    Gradients:
        As :func:`pf_lstm_step`.

    Raises:
        ConfigError: no uniforms where particles are resampled.
    """
    hidden = state.hidden
    x_blocks, x_observed = split(projected, (4 * hidden.shape[-1], 1))
    raw, raw_scale, update = _blocks(hidden, x_blocks, weights, switches)
    noisy = add_noise(raw, raw_scale, noise, switches.noise_scale)
    normed, own = apply_batch_norm(
        noisy,
        weights.norm_gain,
        weights.norm_shift,
        switches.batch_norm,
        switches.norm_eps,
        statistics,
        valid,
    )
    candidate = activate(normed, switches.activation)
    moved = torch.addcmul(candidate, update, hidden - candidate)
    log_lik = log_likelihood(moved, weights.observation, x_observed)
    return filter_update(state, moved, None, log_lik, uniforms, switches, own, valid)


def _blocks(
    hidden: Tensor, projected: Tensor, weights: PFGRUWeights, switches: FilterSwitches
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the raw candidate, the raw noise scale and the update gate."""
    size = hidden.shape[-1]
    x_gates, x_candidate, x_scale = split(projected.unsqueeze(-2), (2 * size, size, size))
    blocks = particle_product(hidden, weights.recurrent)
    scale: Tensor | None = None
    if switches.gru_noise == "hidden":
        blocks, scale = split(blocks, (2 * size, size))
    update, reset = split(torch.sigmoid(blocks + x_gates), (size, size))
    inner = hidden if switches.reset_after else reset * hidden
    raw = particle_product(inner, weights.candidate)
    if scale is None:
        raw, scale = split(raw, (size, size))
    if switches.reset_after:
        bias = weights.candidate_bias
        raw = reset * (raw if bias is None else raw + bias[..., None, None, :])
    return raw + x_candidate, scale + x_scale, update
