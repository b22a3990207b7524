"""One step of the PF-LSTM: stochastic memory update, weight update, soft resampling."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pfrnn.functional.batch_norm import apply_batch_norm
from pfrnn.functional.linear import activate, split, tanh
from pfrnn.functional.transition import (
    add_noise,
    filter_update,
    log_likelihood,
    particle_product,
)
from pfrnn.functional.types import FilterSwitches, PFState, StepInfo


class PFLSTMWeights(NamedTuple):
    """The weights that a step reads; the input's share is in ``projected``.

    Attributes:
        recurrent: (..., H, 5H): input, forget, output gate, candidate, noise scale.
        observation: (..., H): f_obs on the new hidden state.
        norm_gain: (..., H), or (..., K) per particle slot, or None.
        norm_shift: likewise.
    """

    recurrent: Tensor
    observation: Tensor
    norm_gain: Tensor | None = None
    norm_shift: Tensor | None = None


def pf_lstm_step(
    state: PFState,
    projected: Tensor,
    noise: Tensor | None,
    uniforms: Tensor | None,
    weights: PFLSTMWeights,
    switches: FilterSwitches,
    statistics: tuple[Tensor, Tensor] | None = None,
    valid: Tensor | None = None,
) -> tuple[PFState, StepInfo]:
    """Advance the particles of a PF-LSTM by one time step.

    c~ = W_c [h, x] + b_c + xi, xi = noise * (W_s [h, x] + b_s); c' = f c + i act(BN(c~));
    h' = o tanh(c'); log w' = log w + f_obs(x, h'), normalised; then resampling
    (the paper, section "PF-LSTMs and PF-GRUs").

    Args:
        state: particles (..., N, K, H) and log-weights (..., N, K).
        projected: (..., N, 5H + 1), the input's share of the five blocks and of f_obs, biases
            included.
        noise: standard normal, (..., N, K, H); None means no noise.
        uniforms: (..., N, K) in [0, 1), others count as the nearest in it; may be None without
            resampling.
        weights: see :class:`PFLSTMWeights`.
        switches: static choices.
        statistics: batch-norm mean and variance (evaluation); None takes the step's own.
        valid: (..., N) bool; padded sequences keep their state and enter no statistics.

    Returns:
        The new state and what happened (:class:`StepInfo`).

    Gradients:
        Through everything but the choice of ancestors.

    Raises:
        ConfigError: no uniforms where particles are resampled.
        ValueError: a state without a cell.
    """
    if state.cell is None:
        raise ValueError("a PF-LSTM state needs a cell tensor, got None")
    size = state.hidden.shape[-1]
    x_blocks, x_observed = split(projected, (5 * size, 1))
    blocks = particle_product(state.hidden, weights.recurrent) + x_blocks.unsqueeze(-2)
    raw_gates, raw, raw_scale = split(blocks, (3 * size, size, size))
    gate_in, forget, out = split(torch.sigmoid(raw_gates), (size, size, size))
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
    cell = torch.addcmul(forget * state.cell, gate_in, candidate)
    hidden = out * tanh(cell)
    log_lik = log_likelihood(hidden, weights.observation, x_observed)
    return filter_update(state, hidden, cell, log_lik, uniforms, switches, own, valid)
