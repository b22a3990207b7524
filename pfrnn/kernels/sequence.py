"""The fused filter behind the signature of the reference ``run_pf``."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from pfrnn.functional.batch_norm import pool
from pfrnn.functional.belief import mean_particle
from pfrnn.functional.sequence import check_lengths, read_particles
from pfrnn.functional.shapes import check_inputs
from pfrnn.functional.types import FilterOutput, FilterSwitches, PFState, Readout
from pfrnn.kernels.dispatch import MAX_OUTPUTS
from pfrnn.kernels.early import multiprocessors
from pfrnn.kernels.filter import FusedFilter
from pfrnn.kernels.noise import NoiseKey, fill_uniform
from pfrnn.kernels.plan import (
    ACTIVATION,
    RESAMPLING,
    Plan,
    Tuning,
    check_precision,
    crowded,
    power_of_two,
    tuning_for,
)
from pfrnn.kernels.run_forward import Inputs
from pfrnn.kernels.shapes import check_shapes
from pfrnn.kernels.sums import add_bias
from pfrnn.kernels.tiles import NOISE_GIVEN, NOISE_NONE, NOISE_PHILOX

Given = tuple[Tensor, Tensor]


class _Blocks(NamedTuple):
    recurrent: Tensor
    candidate: Tensor | None
    observation: Tensor
    gain: Tensor
    shift: Tensor


def run_pf_fused(
    projected: Tensor,
    state: PFState,
    noise: Tensor | NoiseKey | None,
    uniforms: Tensor | NoiseKey | None,
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
        uniforms: (T, ..., N, K), or a key, or None without resampling.
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
        precision: of the products: ``ieee``, ``tf32x3``, ``tf32`` or ``bf16``; sums are float32.
            bf16 is refused on a GPU without PFRNN_BF16=1
            (:func:`pfrnn.kernels.plan.check_precision`).
        tuning: tile sizes; None takes the measured ones.

    Randomness:
        None beside the tensors or keys given.

    Raises:
        ConfigError: a precision that doesn't exist, or bf16 as said above.
        ValueError: shapes that don't fit each other; weights, input or head of a shape or type
            that the kernels don't read.
    """
    check_lengths(projected.shape[0], bptt)
    check_inputs(projected, state, noise, uniforms, valid)
    check_precision(precision, projected.device)
    if projected.dim() == 3:
        output = run_pf_fused(
            projected.unsqueeze(1), PFState(*(_lead(x, 0) for x in state)), _lead(noise, 1),
            _lead(uniforms, 1), type(weights)(*(_lead(x, 0) for x in weights)), switches,
            statistics=_lead_given(statistics), valid=_lead(valid, 1), bptt=bptt,
            particles=particles, belief=belief, readout=_lead_head(readout), extras=extras,
            precision=precision, tuning=tuning,
        )  # fmt: skip
        return _drop_lead(output)
    gru = hasattr(weights, "candidate")
    steps, members, sequences, _ = projected.shape
    count, units = state.hidden.shape[-2:]
    check_shapes(projected, units, weights, readout)
    if tuning is None:
        tuning = chosen_tuning(members, sequences, count, units, precision, projected.device)
    plan = _plan(switches, gru, noise, statistics, valid, bptt, precision, tuning)
    if isinstance(uniforms, NoiseKey):
        uniforms = fill_uniform(uniforms, steps, sequences, count) if plan.mode else None
    inputs = _inputs(noise, uniforms if plan.mode else None, statistics, valid)
    blocks = _blocks(weights, gru)
    fits = readout is not None and readout.weight.shape[-1] <= MAX_OUTPUTS
    hidden, log_weights, cell, read, ancestors, ess, mean, variance = FusedFilter.apply(
        plan,
        extras,
        inputs,
        projected,
        state.hidden,
        state.cell,
        state.log_weights,
        *blocks,
        readout.weight if fits else None,
    )
    if readout is not None and not fits:
        read = read_particles(hidden, readout)
    elif readout is not None and readout.bias is not None:
        read = add_bias(read, readout.bias)
    final = PFState(hidden[-1], cell, log_weights[-1])
    pooled: tuple[Any, ...] = (None,) * 6
    if plan.norm and not plan.given:
        if extras or valid is not None:
            counts: Any = _step_counts(valid, steps, members, sequences, count, mean)
        else:
            counts = float(sequences * count)
        whole = pool(mean, variance, counts) if extras else (None, None, None)
        pooled = (*whole, mean, variance, counts)
    return FilterOutput(
        hidden if particles else None,
        log_weights,
        ancestors.long() if extras else ancestors,
        ess,
        final,
        *pooled,
        mean_particle(hidden, log_weights) if belief else None,
        read,
    )


def chosen_tuning(
    members: int, sequences: int, particles: int, units: int, precision: str, device: torch.device
) -> Tuning:
    """Return what a run of this size takes on this card unless it is told otherwise."""
    tuning = tuning_for(particles, units)
    if precision != "tf32":
        return tuning  # other products need other registers
    each = max(1, tuning.backward_rows // power_of_two(particles))
    return crowded(tuning, -(-sequences // each) * members, multiprocessors(device))


def _plan(
    switches: FilterSwitches, gru: bool, noise: Tensor | NoiseKey | None,
    statistics: Given | None, valid: Tensor | None, bptt: int | None, precision: str,
    tuning: Tuning,
) -> Plan:  # fmt: skip
    mode = RESAMPLING[switches.resampling]
    if switches.resampling == "soft" and switches.alpha >= 1.0:
        mode = RESAMPLING["multinomial"]
    if noise is None:
        source = NOISE_NONE
    else:
        source = NOISE_PHILOX if isinstance(noise, NoiseKey) else NOISE_GIVEN
    return Plan(
        gru=gru,
        mode=mode,
        alpha=switches.alpha,
        softplus=switches.noise_scale == "softplus",
        activation=ACTIVATION[switches.activation],
        norm=switches.batch_norm == "feature",
        norm_eps=switches.norm_eps,
        noise=source,
        given=statistics is not None,
        valid=valid is not None,
        bptt=bptt,
        precision=precision,
        tuning=tuning,
    )


def _inputs(
    noise: Tensor | NoiseKey | None, uniforms: Tensor | None, statistics: Given | None,
    valid: Tensor | None,
) -> Inputs:  # fmt: skip
    key = noise if isinstance(noise, NoiseKey) else None
    given = (None, None) if statistics is None else tuple(x.contiguous() for x in statistics)
    return Inputs(
        noise.contiguous() if isinstance(noise, Tensor) else None,
        None if uniforms is None else uniforms.contiguous(),
        None if key is None else key.seeds,
        None if key is None else key.step,
        None if valid is None else valid.contiguous(),
        *given,
    )


def _blocks(weights: Any, gru: bool) -> _Blocks:
    observation = weights.observation
    gain = torch.ones_like(observation) if weights.norm_gain is None else weights.norm_gain
    shift = torch.zeros_like(observation) if weights.norm_shift is None else weights.norm_shift
    candidate = weights.candidate if gru else None
    return _Blocks(weights.recurrent, candidate, observation, gain, shift)


def _step_counts(
    valid: Tensor | None, steps: int, members: int, sequences: int, count: int, like: Tensor
) -> Tensor:
    if valid is None:
        return like.new_full((steps, members), float(sequences * count))
    return valid.sum(-1).to(like.dtype) * count


def _lead(x: Any, axis: int) -> Any:
    return x.unsqueeze(axis) if isinstance(x, Tensor) else x


def _lead_given(statistics: Given | None) -> Given | None:
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
