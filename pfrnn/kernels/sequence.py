"""The fused filter behind the signature of the reference ``run_pf``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pfrnn.functional.batch_norm import pool
from pfrnn.functional.belief import weighted_mean
from pfrnn.functional.sequence import check_lengths, read_particles
from pfrnn.functional.shapes import check_inputs
from pfrnn.functional.types import FilterOutput, FilterSwitches, PFState, Readout
from pfrnn.kernels.filter import fused_filter
from pfrnn.kernels.form import ACTIVATION, RESAMPLING, check_precision
from pfrnn.kernels.ground import MAX_OUTPUTS
from pfrnn.kernels.noise import NoiseKey
from pfrnn.kernels.run_forward import Given, Leaves
from pfrnn.kernels.shapes import check_shapes
from pfrnn.kernels.tuning import Tuning, encoded

Statistics = tuple[Tensor, Tensor]


def run_pf_fused(
    projected: Tensor,
    state: PFState,
    noise: Tensor | NoiseKey | None,
    uniforms: Tensor | NoiseKey | None,
    weights: Any,
    switches: FilterSwitches,
    *,
    statistics: Statistics | None = None,
    valid: Tensor | None = None,
    bptt: int | None = None,
    particles: bool = True,
    belief: bool = False,
    readout: Readout | None = None,
    extras: bool = True,
    precision: str = "tf32",
    tuning: Tuning | None = None,
) -> FilterOutput:
    """Run a PF-LSTM or PF-GRU over T steps, one kernel a step.

    The same function as the reference with ``pf_lstm_step`` or ``pf_gru_step`` (chosen by the type
    of the weights); the uniforms' values are never looked at. Arguments as there, and:

    Args:
        projected: (T, N, P), or (T, M, N, P) for a population; float32, on the GPU.
        state: the state before the first step.
        noise: (T, ..., N, K, H), or the key of numbers drawn inside the kernels, or None.
        uniforms: (T, ..., N, K), or a key (the noise's, if that is one), or None without
            resampling.
        weights: a PFLSTMWeights or PFGRUWeights.
        switches: static choices; :func:`pfrnn.kernels.dispatch.refusal` says which it can't do.
        statistics: given batch-norm statistics.
        valid: (T, ..., N) bool.
        bptt: cut the gradient of the carried state before every ``bptt``-th step.
        particles: whether ``hidden`` is returned.
        belief: whether the mean particle of each step is returned.
        readout: a linear head: ``read`` is returned. Up to four outputs are computed inside the
            kernels, without the bias; more by torch, from the particles.
        extras: as there. Without it ancestors are int32, and where nothing is padded ``step_count``
            is a number.
        precision: of the products: ``tf32`` or ``ieee``; sums are float32.
        tuning: tile sizes; None takes the measured ones.

    Randomness:
        None beside the tensors or keys given.

    Raises:
        ConfigError: a precision that doesn't exist.
        ValueError: shapes that don't fit each other; weights, input or head of a shape or type
            that the kernels don't read.
    """
    check_lengths(projected.shape[0], bptt)
    check_inputs(projected, state, noise, uniforms, valid)
    check_precision(precision)
    if projected.dim() == 3:
        output = run_pf_fused(
            projected.unsqueeze(1), PFState(*(_lead(x, 0) for x in state)), _lead(noise, 1),
            _lead(uniforms, 1), type(weights)(*(_lead(x, 0) for x in weights)), switches,
            statistics=_lead_given(statistics), valid=_lead(valid, 1), bptt=bptt,
            particles=particles, belief=belief, readout=_lead_head(readout), extras=extras,
            precision=precision, tuning=tuning,
        )  # fmt: skip
        return _drop_lead(output)
    steps, members, sequences, _ = projected.shape
    count, units = state.hidden.shape[-2:]
    check_shapes(projected, units, weights, readout)
    mode = RESAMPLING[switches.resampling]
    if switches.resampling == "soft" and switches.alpha >= 1.0:
        mode = RESAMPLING["multinomial"]
    norm = switches.batch_norm == "feature"
    inside = readout is not None and readout.weight.shape[-1] <= MAX_OUTPUTS
    options = (
        noise is not None, mode, switches.alpha, switches.noise_scale == "softplus",
        ACTIVATION[switches.activation], norm, switches.norm_eps, bptt or 0, precision,
        encoded(tuning),
    )  # fmt: skip
    last, saved = fused_filter(
        _given(noise, uniforms if mode else None, statistics, valid),
        _leaves(projected, state, weights, readout.weight if readout and inside else None),
        extras, options,
    )  # fmt: skip
    hidden, log_weights = (x[:, 1:].transpose(0, 1) for x in (saved.hidden, saved.log_weights))
    read = None
    if readout is not None and not inside:
        read = read_particles(hidden, readout)
    elif readout is not None and saved.outputs is not None:
        read = saved.outputs.transpose(0, 1)
        if readout.bias is not None:
            read = read + readout.bias[:, None, None, :]
    cell = last if extras and state.cell is not None else None
    # Slices of the whole, not of a slice: each fills a tensor of zeros in the backward pass.
    final = PFState(saved.hidden[:, -1], cell, saved.log_weights[:, -1])
    pooled: tuple[Any, ...] = (None,) * 6
    if norm and statistics is None:
        mean, variance = saved.mean.transpose(0, 1), saved.variance.transpose(0, 1)
        if valid is not None:
            counts: Any = valid.sum(-1).to(mean.dtype) * count
        elif extras:
            counts = mean.new_full((steps, members), float(sequences * count))
        else:
            counts = float(sequences * count)
        whole = pool(mean, variance, counts) if extras else (None, None, None)
        pooled = (*whole, mean, variance, counts)
    ancestors = saved.ancestors[:, 1:].transpose(0, 1)
    return FilterOutput(
        hidden if particles else None,
        log_weights,
        ancestors.long() if extras else ancestors,
        saved.ess.transpose(0, 1),
        final,
        *pooled,
        weighted_mean(hidden, log_weights.exp()) if belief else None,
        read,
    )


def _given(
    noise: Tensor | NoiseKey | None, uniforms: Tensor | NoiseKey | None,
    statistics: Statistics | None, valid: Tensor | None,
) -> Given:  # fmt: skip
    seeds = step = None
    for key in (noise, uniforms):
        if isinstance(key, NoiseKey):
            seeds, step = key
    return Given(
        noise if isinstance(noise, Tensor) else None,
        uniforms if isinstance(uniforms, Tensor) else None,
        seeds,
        step,
        valid,
        *(statistics or (None, None)),
    )


def _leaves(projected: Tensor, state: PFState, weights: Any, head: Tensor | None) -> Leaves:
    observation, device = weights.observation, projected.device
    lead = (*projected.shape[1:3], *state.hidden.shape[-2:])
    # A state may be one for all, and come from elsewhere.
    hidden, cell = (
        None if x is None else x.to(device).expand(lead) for x in (state.hidden, state.cell)
    )
    return Leaves(
        projected,
        hidden,
        cell,
        state.log_weights.to(device).expand(lead[:-1]),
        weights.recurrent,
        getattr(weights, "candidate", None),
        observation,
        torch.ones_like(observation) if weights.norm_gain is None else weights.norm_gain,
        torch.zeros_like(observation) if weights.norm_shift is None else weights.norm_shift,
        head,
    )


def _lead(x: Any, axis: int) -> Any:
    return x.unsqueeze(axis) if isinstance(x, Tensor) else x


def _lead_given(statistics: Statistics | None) -> Given | None:
    if statistics is None:
        return None
    return statistics[0].unsqueeze(-2), statistics[1].unsqueeze(-2)


def _lead_head(readout: Readout | None) -> Readout | None:
    return None if readout is None else Readout(*(_lead(x, 0) for x in readout))


_TIMED = {"hidden", "log_weights", "ancestors", "ess", "belief", "read", "step_mean",
          "step_variance", "step_count"}  # fmt: skip


def _drop_lead(output: FilterOutput) -> FilterOutput:
    dropped: dict[str, Any] = {}
    for name, value in output._asdict().items():
        if name == "final":
            dropped[name] = PFState(*(None if x is None else x.squeeze(0) for x in value))
        elif isinstance(value, Tensor):
            dropped[name] = value.squeeze(1 if name in _TIMED else 0)
    return output._replace(**dropped)
