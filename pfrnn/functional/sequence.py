"""The filter over a sequence: a loop over time around one step function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pfrnn.errors import ConfigError
from pfrnn.functional.arguments import check_count
from pfrnn.functional.batch_norm import pool
from pfrnn.functional.belief import weighted_mean
from pfrnn.functional.linear import affine
from pfrnn.functional.shapes import check_inputs
from pfrnn.functional.types import FilterOutput, FilterSwitches, PFState, Readout, StepInfo

Step = Callable[..., tuple[PFState, StepInfo]]
Given = tuple[Tensor, Tensor]
Optional = Tensor | None
Pooled = tuple[Optional, Optional, Optional, Optional, Optional, Optional]


def run_pf(
    step: Step,
    projected: Tensor,
    state: PFState,
    noise: Tensor | None,
    uniforms: Tensor | None,
    weights: Any,
    switches: FilterSwitches,
    *,
    statistics: Given | None = None,
    valid: Tensor | None = None,
    bptt: int | None = None,
    particles: bool = True,
    belief: bool = False,
    readout: Readout | None = None,
    extras: bool = True,
) -> FilterOutput:
    """Run a particle filter RNN over T steps.

    Args:
        step: :func:`pf_lstm_step`, :func:`pf_gru_step` or a function with the same signature.
        projected: (T, ..., N, P), the input's share, computed for all steps at once.
        state: the state before the first step.
        noise: (T, ..., N, K, H) standard normal, or None (no noise).
        uniforms: (T, ..., N, K) in [0, 1), or None (no resampling).
        weights: the step's weights.
        switches: static choices.
        statistics: batch-norm mean and variance (evaluation), of shape (..., C), or (T, ..., C)
            when each step has its own; None (training) takes each step's own.
        valid: (T, ..., N) bool; False for padding.
        bptt: cut the gradient of the carried state before every ``bptt``-th step; None never.
        particles: return all particles of every step (``hidden``).
        belief: return the weighted mean particle of every step.
        readout: a linear head, whose outputs for every particle are returned (``read``).
        extras: whether what no training step reads is computed too: the pooled statistics (else
            None) and, by a fast loop, the final cell (else None) and ancestors of type int64.

    Returns:
        See :class:`FilterOutput`.

    Randomness:
        None: noise and uniforms are given.

    Raises:
        ConfigError: T is 0, or bptt is not an int of at least 1.
        ValueError: shapes that don't fit each other.
    """
    steps = projected.shape[0]
    check_lengths(steps, bptt)
    check_inputs(projected, state, noise, uniforms, valid)
    inputs = time_slices(projected, steps)
    noises, draws = time_slices(noise, steps), time_slices(uniforms, steps)
    masks = time_slices(valid, steps)
    hidden, weight_list, means, infos = [], [], [], []
    for t in range(steps):
        if bptt is not None and t > 0 and t % bptt == 0:
            state = state.detach()
        state, info = step(
            state,
            inputs[t],
            noises[t],
            draws[t],
            weights,
            switches,
            at_step(statistics, t, projected.dim() - 3),
            masks[t],
        )
        infos.append(info)
        weight_list.append(state.log_weights)
        if particles or readout is not None:
            hidden.append(state.hidden)
        if belief:
            mean = weighted_mean(state.hidden, state.log_weights.exp())
            means.append(mean.to(projected.dtype))
    states = torch.stack(hidden) if hidden else None
    return FilterOutput(
        states if particles else None,
        torch.stack(weight_list),
        torch.stack([info.ancestors for info in infos]),
        torch.stack([info.ess for info in infos]),
        state,
        *pooled_statistics(infos, extras),
        belief=torch.stack(means) if belief else None,
        read=None if states is None or readout is None else read_particles(states, readout),
    )


def read_particles(hidden: Tensor, readout: Readout) -> Tensor:
    """Apply a linear head to particles: (T, ..., N, K, H) -> (T, ..., N, K, C)."""
    flat = affine(hidden.flatten(-3, -2), *readout)
    return flat.view(*flat.shape[:-2], *hidden.shape[-3:-1], flat.shape[-1])


def time_slices(x: Tensor | None, steps: int) -> Sequence[Any]:
    """Return the slices of all steps, or as many Nones.

    One unbind has one stack as its backward; indexing each step would fill a zero tensor of the
    whole sequence for each of them.
    """
    return (None,) * steps if x is None else x.unbind(0)


def check_lengths(steps: int, bptt: int | None) -> None:
    """Raise for an empty sequence and for a truncation below one step."""
    if steps == 0:
        raise ConfigError("expected a sequence of at least one step, got 0 steps")
    if bptt is not None:
        check_count("bptt", bptt)


def at_step(statistics: Given | None, t: int, lead: int) -> Given | None:
    """Pick a step's statistics when they carry a time axis in front of the leading axes."""
    if statistics is None or statistics[0].dim() == lead + 1:
        return statistics
    return statistics[0][t], statistics[1][t]


def pooled_statistics(infos: list[Any], pooled: bool = True) -> Pooled:
    """Stack the steps' statistics and pool them: mean, variance, count, then each step's."""
    if infos[0].mean is None:
        return (None, None, None, None, None, None)
    means = torch.stack([info.mean for info in infos])
    variances = torch.stack([info.variance for info in infos])
    counts = torch.stack([info.count for info in infos])
    if not pooled:
        return (None, None, None, means, variances, counts)
    return (*pool(means, variances, counts), means, variances, counts)
