"""One step of the PF-LSTM: stochastic memory update, weight update, soft resampling."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pfrnn.functional.arguments import check_in_step, check_switches
from pfrnn.functional.batch_norm import Statistics, apply_batch_norm
from pfrnn.functional.fused import fusable
from pfrnn.functional.fused_lstm import fused_lstm_update
from pfrnn.functional.linear import activate, split, tanh
from pfrnn.functional.transition import add_noise, observe_and_resample, particle_product
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
        uniforms: (..., N, K) in [0, 1), not looked at (:func:`run_pf` does for all steps at once);
            may be None without resampling.
        weights: see :class:`PFLSTMWeights`.
        switches: static choices.
        statistics: batch-norm mean and variance (evaluation); None takes the step's own.
        valid: (..., N) bool; padded sequences keep their state and enter no statistics.

    Returns:
        The new state and what happened (:class:`StepInfo`).

    Gradients:
        Through everything but the choice of ancestors. Of first order, unless inside
        :func:`twice_differentiable`.

    Raises:
        TypeError: switches of the wrong type.
        ConfigError: switches out of range, or no uniforms where particles are resampled.
        ValueError: a state without a cell.
    """
    check_in_step(switches, check_switches)
    if state.cell is None:
        raise ValueError("a PF-LSTM state needs a cell tensor, got None")
    x_blocks, x_observed = split(projected, (5 * state.hidden.shape[-1], 1))
    hidden, cell, own = _update(
        state.hidden, state.cell, x_blocks, noise, weights, switches, statistics, valid
    )
    return observe_and_resample(
        state, hidden, cell, x_observed, weights.observation, uniforms, switches, own, valid
    )


def _update(
    hidden: Tensor,
    cell: Tensor,
    x_blocks: Tensor,
    noise: Tensor | None,
    weights: PFLSTMWeights,
    switches: FilterSwitches,
    statistics: tuple[Tensor, Tensor] | None,
    valid: Tensor | None,
) -> tuple[Tensor, Tensor, Statistics | None]:
    """Update the memory of every particle: new hidden, new cell, statistics of the step."""
    recurrent, gain, shift = weights.recurrent, weights.norm_gain, weights.norm_shift
    if noise is not None and fusable(hidden, noise, cell, x_blocks, recurrent, gain, shift):
        return fused_lstm_update(
            hidden, cell, x_blocks, noise, recurrent, gain, shift, switches, statistics, valid
        )
    size = hidden.shape[-1]
    blocks = particle_product(hidden, recurrent) + x_blocks.unsqueeze(-2)
    raw_gates, raw, raw_scale = split(blocks, (3 * size, size, size))
    gate_in, forget, out = split(torch.sigmoid(raw_gates), (size, size, size))
    noisy = add_noise(raw, raw_scale, noise, switches.noise_scale)
    normed, own = apply_batch_norm(
        noisy, gain, shift, switches.batch_norm, switches.norm_eps, statistics, valid
    )
    candidate = activate(normed, switches.activation)
    new_cell = torch.addcmul(forget * cell, gate_in, candidate)
    return out * tanh(new_cell), new_cell, own
