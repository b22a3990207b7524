"""What every particle cell shares: noise on the candidate, weight update, resampling, padding."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from pfrnn.errors import ConfigError
from pfrnn.functional.arguments import NOISE_SCALES, check_in_step, check_switches
from pfrnn.functional.batch_norm import Statistics
from pfrnn.functional.fused import fusable
from pfrnn.functional.fused_filter import fused_filter
from pfrnn.functional.linear import affine
from pfrnn.functional.resampling import draw, gather, identity_ancestors
from pfrnn.functional.types import FilterSwitches, PFState, StepInfo
from pfrnn.functional.weights import effective_sample_size, lift, normalize


def particle_product(hidden: Tensor, weight: Tensor) -> Tensor:
    """Multiply particles by a weight: (..., N, K, H) with (..., H, out) -> (..., N, K, out)."""
    sequences, particles = hidden.shape[-3], hidden.shape[-2]
    rows = hidden.flatten(-3, -2)
    product = affine(rows, weight)
    return product.view(*product.shape[:-2], sequences, particles, product.shape[-1])


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
    if kind == "linear":
        return torch.addcmul(candidate, noise, raw_scale)
    if kind == "softplus":
        return torch.addcmul(candidate, noise, F.softplus(raw_scale))
    raise ConfigError(f"noise_scale: expected one of {', '.join(NOISE_SCALES)}, got {kind!r}")


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
        uniforms: (..., N, K) in [0, 1); not looked at, as :func:`run_pf` does for all steps; may
            be None without resampling.
        switches: resampling, alpha, ess_threshold are read.
        statistics: passed on into the StepInfo.
        valid: (..., N) bool; False keeps the previous state of a sequence.

    Returns:
        The new state and what happened (:class:`StepInfo`).

    Gradients:
        Through everything but the choice of ancestors.

    Raises:
        TypeError: switches of the wrong type.
        ConfigError: switches out of range, or no uniforms where particles are resampled.
    """
    check_in_step(switches, check_switches)
    return _weigh_and_resample(
        previous, hidden, cell, log_lik, uniforms, switches, statistics, valid
    )


def _weigh_and_resample(
    previous: PFState,
    hidden: Tensor,
    cell: Tensor | None,
    log_lik: Tensor,
    uniforms: Tensor | None,
    switches: FilterSwitches,
    statistics: Statistics | None,
    valid: Tensor | None,
) -> tuple[PFState, StepInfo]:
    log_weights = normalize(lift(previous.log_weights) + log_lik)
    with torch.no_grad():
        ess = effective_sample_size(log_weights)
    drawn = draw(
        log_weights, uniforms, switches.resampling, switches.alpha, switches.ess_threshold, ess
    )
    if switches.resampling != "none":
        hidden = gather(hidden, drawn.ancestors)
        cell = None if cell is None else gather(cell, drawn.ancestors)
    state = PFState(hidden, cell, drawn.log_weights)
    return _finish(previous, state, drawn.ancestors, ess, statistics, valid)


def _finish(
    previous: PFState,
    state: PFState,
    ancestors: Tensor,
    ess: Tensor,
    statistics: Statistics | None,
    valid: Tensor | None,
) -> tuple[PFState, StepInfo]:
    """Undo the step for padded sequences; collect what happened."""
    if valid is not None:
        state = hold(previous, state, valid)
        ancestors = torch.where(valid.unsqueeze(-1), ancestors, identity_ancestors(ancestors))
        with torch.no_grad():
            ess = torch.where(valid, ess, effective_sample_size(lift(previous.log_weights)))
    if statistics is None:
        return state, StepInfo(ancestors, ess, None, None, None)
    return state, StepInfo(ancestors, ess, *statistics)


def observe_and_resample(
    previous: PFState,
    hidden: Tensor,
    cell: Tensor | None,
    observed: Tensor,
    observation: Tensor,
    uniforms: Tensor | None,
    switches: FilterSwitches,
    statistics: Statistics | None,
    valid: Tensor | None,
) -> tuple[PFState, StepInfo]:
    """Weigh moved particles by the learned f_obs, then :func:`filter_update`.

    Args:
        previous: the state before the step.
        hidden: (..., N, K, H), moved.
        cell: (..., N, K, H) or None, moved likewise.
        observed: (..., N, 1), the input's share of f_obs.
        observation: (..., H), the weight of f_obs.
        uniforms: (..., N, K) in [0, 1).
        switches: static choices.
        statistics: passed on into the StepInfo.
        valid: (..., N) bool; False keeps the previous state of a sequence.
    """
    tensors = (previous.log_weights, observed, observation, cell)
    if switches.ess_threshold is not None or not fusable(hidden, hidden, *tensors):
        log_lik = log_likelihood(hidden, observation, observed)
        return _weigh_and_resample(
            previous, hidden, cell, log_lik, uniforms, switches, statistics, valid
        )
    hidden, cell, log_weights, ancestors, ess = fused_filter(
        hidden, cell, previous.log_weights, observed, observation, uniforms, switches
    )
    state = PFState(hidden, cell, log_weights)
    return _finish(previous, state, ancestors, ess, statistics, valid)


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
