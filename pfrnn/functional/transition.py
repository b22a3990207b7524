"""What every particle cell shares: noise on the candidate, weight update, resampling, padding."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from pfrnn.functional.batch_norm import Statistics
from pfrnn.functional.linear import affine
from pfrnn.functional.resampling import draw, flat_rows, identity_ancestors, select_rows
from pfrnn.functional.types import FilterSwitches, PFState, StepInfo
from pfrnn.functional.weights import effective_sample_size, ess_of, lift, normalize


def particle_product(hidden: Tensor, weight: Tensor) -> Tensor:
    """Multiply particles by a weight: (..., N, K, H) with (..., H, out) -> (..., N, K, out)."""
    product = affine(hidden.flatten(-3, -2), weight)
    return product.view(*product.shape[:-2], *hidden.shape[-3:-1], product.shape[-1])


def add_noise(candidate: Tensor, raw_scale: Tensor, noise: Tensor | None, kind: str) -> Tensor:
    """Add the learned noise to the candidate (the reparameterisation trick).

    Args:
        candidate: (..., N, K, H).
        raw_scale: (..., N, K, H), W [h, x] + b.
        noise: standard normal, (..., N, K, H); None adds nothing.
        kind: ``linear`` (xi = noise * raw_scale, whose sign is harmless) or ``softplus``.
    """
    if noise is None:
        return candidate
    return torch.addcmul(candidate, noise, raw_scale if kind == "linear" else F.softplus(raw_scale))


def log_likelihood(hidden: Tensor, weight: Tensor, projected: Tensor) -> Tensor:
    """Return log f_obs(o(x), h) of every particle, up to a constant.

    Args:
        hidden: (..., N, K, H), the new particles.
        weight: (..., H).
        projected: (..., N, 1), the input's share.

    Returns:
        (..., N, K), at least float32.
    """
    return lift(particle_product(hidden, weight.unsqueeze(-1)).squeeze(-1)) + lift(projected)


def filter_update(
    previous: PFState,
    hidden: Tensor,
    cell: Tensor | None,
    log_lik: Tensor,
    uniforms: Tensor | None,
    switches: FilterSwitches,
    statistics: Statistics | None = None,
    valid: Tensor | None = None,
) -> tuple[PFState, StepInfo]:
    """Weigh the moved particles, resample, and leave padded sequences as they were.

    This is the particle filter itself (the paper's section "PF-LSTMs and PF-GRUs", its weight
    update and resampling); the transition and the likelihood may be learned or not.

    Args:
        previous: the state before the step.
        hidden: (..., N, K, H), the particles moved by the transition.
        cell: (..., N, K, H) or None, moved likewise.
        log_lik: (..., N, K), log-likelihood of the observation, up to a constant.
        uniforms: (..., N, K) in [0, 1), others count as the nearest in it; may be None without
            resampling.
        switches: resampling, alpha, ess_threshold are read.
        statistics: passed on into the StepInfo.
        valid: (..., N) bool; False keeps the previous state of a sequence.

    Returns:
        The new state and what happened (:class:`StepInfo`).

    Gradients:
        Through everything but the choice of ancestors.

    Raises:
        ConfigError: no uniforms where particles are resampled.
    """
    log_weights = normalize(lift(previous.log_weights) + log_lik)
    ess = ess_of(log_weights.detach().exp())
    ancestors, log_weights = draw(
        log_weights, uniforms, switches.resampling, switches.alpha, switches.ess_threshold, ess
    )
    if switches.resampling != "none":
        rows = flat_rows(ancestors, hidden.shape[-2])
        hidden = select_rows(hidden, rows, hidden.shape)
        cell = None if cell is None else select_rows(cell, rows, cell.shape)
    state = PFState(hidden, cell, log_weights)
    if valid is not None:
        state = hold(previous, state, valid)
        ancestors = torch.where(valid.unsqueeze(-1), ancestors, identity_ancestors(ancestors))
        ess = torch.where(valid, ess, effective_sample_size(previous.log_weights.detach()))
    return state, StepInfo(ancestors, ess, *(statistics or (None, None, None)))


def hold(previous: PFState, state: PFState, valid: Tensor) -> PFState:
    """Take the new state where a sequence is valid and the previous one where it is padding."""
    wide = valid[..., None, None]
    cell = state.cell
    if cell is not None and previous.cell is not None:
        cell = torch.where(wide, cell, previous.cell)
    return PFState(
        torch.where(wide, state.hidden, previous.hidden),
        cell,
        torch.where(valid.unsqueeze(-1), state.log_weights, lift(previous.log_weights)),
    )
