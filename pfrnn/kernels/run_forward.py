"""Running all steps forwards: buffers, launches, and what the backward pass needs."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from pfrnn.kernels.begin import Begun, begin
from pfrnn.kernels.early import can_begin_early, fills, multiprocessors
from pfrnn.kernels.fetch import block_descriptor
from pfrnn.kernels.forward import forward_kernel
from pfrnn.kernels.plan import Plan, strides
from pfrnn.kernels.together import compile_together


class Inputs(NamedTuple):
    """Everything that the kernels read and that has no gradient.

    Attributes:
        noise: (T, M, N, K, H) or None (drawn in the kernel, or none at all).
        uniforms: (T, M, N, K) or None (no resampling).
        seeds: (M,) int64, for noise drawn in the kernel, or None.
        step: (1,) int64, the training step, likewise.
        valid: (T, M, N) bool or None.
        mean: (M, H) or (T, M, H), given batch-norm statistics, or None.
        variance: of the same shape.
    """

    noise: Tensor | None = None
    uniforms: Tensor | None = None
    seeds: Tensor | None = None
    step: Tensor | None = None
    valid: Tensor | None = None
    mean: Tensor | None = None
    variance: Tensor | None = None


class Shape(NamedTuple):
    """Sizes of a run."""

    steps: int
    members: int
    sequences: int
    particles: int
    units: int


class Saved(NamedTuple):
    """What the forward pass leaves behind (:mod:`pfrnn.kernels.forward`, ``begin``)."""

    hidden: Tensor
    cell: Tensor
    log_weights: Tensor
    raw: Tensor
    prior: Tensor
    mean: Tensor
    variance: Tensor
    ancestors: Tensor
    ess: Tensor
    count: Tensor
    total: Tensor
    weights: Tensor
    turned: Tensor


def programs(shape: Shape, constants: dict[str, Any]) -> int:
    """Programs a member: each owns R // KP sequences."""
    return int(-(-shape.sequences // (constants["R"] // constants["KP"])))


def _counts(
    valid: Tensor | None, shape: Shape, count: int, each: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Values behind each program's sums, (T, M, P), and behind each step's, (T, M), at least 1.

    Without padding they are known on the host; :func:`pfrnn.kernels.begin.begin` writes them into
    the memory returned here.
    """
    lead = (shape.steps, shape.members)
    if valid is None:
        counts, total = torch.empty(1, 1, count, device=device), torch.empty(1, 1, device=device)
        return counts.expand(*lead, count), total.expand(lead)
    ones = F.pad(valid.float(), (0, count * each - shape.sequences))
    counts = ones.unflatten(-1, (count, each)).sum(-1) * shape.particles
    total = counts.sum(-1).clamp(min=1.0)
    return counts.expand(*lead, count), total.expand(lead)


def factors(plan: Plan, blocks: Tensor) -> Tensor:
    """Return weight blocks as the products read them: half as wide for bf16."""
    return blocks.to(torch.bfloat16 if plan.precision == "bf16" else torch.float32).contiguous()


def optional(tensor: Tensor | None, dummy: Tensor) -> tuple[Tensor, int, int]:
    """Return (T, M, ...) and its two strides, or a pointer that nobody reads."""
    return (dummy, 0, 0) if tensor is None else (tensor, *strides(tensor))


def shared_arguments(plan: Plan, inputs: Inputs, turned: Tensor, dummy: Tensor) -> dict[str, Any]:
    """Arguments that the forward and the backward kernel share."""
    noise, noise_t, noise_m = optional(inputs.noise, dummy)
    valid, valid_t, valid_m = optional(
        None if inputs.valid is None else inputs.valid.view(torch.uint8), dummy
    )
    given = inputs.mean
    per_step = given is not None and given.dim() == 3
    return {
        "w_": factors(plan, turned),
        "noise_": noise, "noise_t": noise_t, "noise_m": noise_m,
        "seed_": dummy if inputs.seeds is None else inputs.seeds,
        "step_": dummy if inputs.step is None else inputs.step,
        "valid_": valid, "valid_t": valid_t, "valid_m": valid_m,
        "gmean_": dummy if given is None else given,
        "gvar_": dummy if inputs.variance is None else inputs.variance,
        "given_t": given.stride(0) if per_step and given is not None else 0,
        "alpha": plan.alpha, "norm_eps": plan.norm_eps,
    }  # fmt: skip


def run_forward(
    plan: Plan, inputs: Inputs, shape: Shape, start: tuple[Tensor, Tensor | None, Tensor],
    projected: Tensor, recurrent: Tensor, candidate: Tensor | None, observation: Tensor,
    gain: Tensor, shift: Tensor, readout: Tensor | None,
) -> tuple[Saved, Tensor | None]:  # fmt: skip
    """Run all steps; returns what the outputs and the backward pass are made from, and y."""
    steps, members, sequences, particles, units = shape
    new = projected.new_empty
    tile = (members, steps + 1, sequences, particles)
    hidden = new(*tile, units)
    cell = hidden if plan.gru else new(*tile, units)
    log_weights = new(*tile)
    ancestors = torch.empty(tile, dtype=torch.int32, device=projected.device)
    constants = plan.constants(
        units, particles, plan.tuning.forward_rows, plan.tuning.forward_inner
    )
    count = programs(shape, constants)
    each = constants["R"] // constants["KP"]
    padded, blocks = constants["HP"], 4 if plan.gru else 5
    saved = Saved(
        hidden, cell, log_weights, new(members, steps, sequences, particles, units),
        new(members, steps, sequences, particles), new(members, steps, units),
        new(members, steps, units), ancestors,
        new(members, steps, sequences),
        *_counts(inputs.valid, shape, count, each, projected.device),
        new(members, blocks, units, units), new(members, blocks, units, units),
    )  # fmt: skip
    known = inputs.valid is None
    to = Begun(
        hidden, cell, log_weights, ancestors, saved.weights, saved.turned,
        saved.count if known else None, saved.total if known else None,
    )  # fmt: skip
    begin(start, recurrent, candidate, to, count, each)
    part = new(members, 2, count, 2, padded)
    wide = padded > constants["BK"] and plan.gru
    scratch = new(members, sequences, particles, units) if wide else hidden
    uniforms, u_t, u_m = optional(inputs.uniforms, hidden)
    outputs = 0 if readout is None else readout.shape[-1]
    y = None if readout is None else new(members, steps, sequences, particles, outputs)
    shared = shared_arguments(plan, inputs, saved.turned, hidden)
    fetched = block_descriptor(shared["w_"], constants["BK"], plan.tuning.forward_fetch)
    ticket = None
    if plan.tuning.ticket and plan.norm and not plan.given:
        ticket = torch.zeros(members, dtype=torch.int32, device=projected.device)

    device, enough = projected.device, plan.tuning.forward_early_from
    large = fills(count * members, multiprocessors(device), enough)
    overlapping = large and can_begin_early(device)

    def launch(t: int, only_compile: bool = False) -> None:
        forward_kernel.run(
            hidden, cell, log_weights, saved.raw, saved.prior, part, saved.mean, saved.variance,
            ancestors, saved.ess, scratch, projected, *strides(projected),
            obs_=observation, gain_=gain, shift_=shift, u_=uniforms, u_t=u_t, u_m=u_m,
            count_=saved.count, count_t=saved.count.stride(0), count_m=saved.count.stride(1),
            **shared,
            t=max(t, 0), T=steps, N=sequences, P=count,
            read_=hidden if readout is None else readout, y_=hidden if y is None else y,
            wd_=fetched, FETCH=fetched is not None, ticket_=ticket, TICKET=ticket is not None,
            EARLY=overlapping and t >= 0, launch_pdl=overlapping and t >= 0,
            FIRST=t < 0, LAST=t == steps - 1, OUT=outputs, **constants,
            num_warps=plan.tuning.forward_warps, maxnreg=plan.tuning.forward_registers,
            grid=(count, members), warmup=only_compile,
        )  # fmt: skip

    # The first launch, those in between, the last one.
    kinds = sorted({-1, 0, steps - 1})
    key = ("forward", plan, units, particles, outputs, len(kinds), overlapping, device)
    compile_together(key, [functools.partial(launch, t, True) for t in kinds])
    for t in range(-1, steps):
        launch(t)
    return saved, y
