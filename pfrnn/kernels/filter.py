"""The fused filter as one differentiable function of a population, (T, M, N, ...)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from pfrnn.kernels.backward import backward_kernel
from pfrnn.kernels.forward import forward_kernel
from pfrnn.kernels.plan import Plan, inner_contiguous, strides
from pfrnn.kernels.weight_gradient import weight_gradient_kernel


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
    """What the forward pass leaves behind (layouts: :mod:`pfrnn.kernels.forward`)."""

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


def pack_weights(recurrent: Tensor, candidate: Tensor | None) -> Tensor:
    """Return the blocks (M, G, H, H), each (in, out), in the kernels' order.

    Args:
        recurrent: (M, H, 5H) of a PF-LSTM, or (M, H, 3H) of a PF-GRU (update, reset, scale).
        candidate: (M, H, H) of a PF-GRU, which goes before the scale; else None.
    """
    members, units, _ = recurrent.shape
    blocks = recurrent.reshape(members, units, -1, units).transpose(1, 2)
    if candidate is not None:
        blocks = torch.cat([blocks[:, :2], candidate.unsqueeze(1), blocks[:, 2:]], 1)
    return blocks.contiguous()


def unpack_weights(blocks: Tensor, gru: bool) -> tuple[Tensor, Tensor | None]:
    """Undo :func:`pack_weights`."""
    candidate = blocks[:, 2] if gru else None
    if gru:
        blocks = torch.cat([blocks[:, :2], blocks[:, 3:]], 1)
    return blocks.transpose(1, 2).flatten(2), candidate


def factors(plan: Plan, blocks: Tensor) -> Tensor:
    """Return weight blocks as the products read them: half as wide for bf16."""
    return blocks.to(torch.bfloat16 if plan.precision == "bf16" else torch.float32).contiguous()


def programs(shape: Shape, constants: dict[str, Any]) -> int:
    """Programs a member: each owns R // KP sequences."""
    return int(-(-shape.sequences // (constants["R"] // constants["KP"])))


def _counts(
    valid: Tensor | None, shape: Shape, count: int, each: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Values behind each program's sums, (T, M, P), and behind each step's, (T, M), at least 1."""
    if valid is None:
        ones = torch.ones(1, 1, shape.sequences, device=device)
    else:
        ones = valid.float()
    ones = F.pad(ones, (0, count * each - shape.sequences))
    counts = ones.unflatten(-1, (count, each)).sum(-1) * shape.particles
    total = counts.sum(-1).clamp(min=1.0)
    lead = (shape.steps, shape.members)
    return counts.expand(*lead, count), total.expand(lead)


def _optional(tensor: Tensor | None, dummy: Tensor) -> tuple[Tensor, int, int]:
    return (dummy, 0, 0) if tensor is None else (tensor, *strides(tensor))


def _context(plan: Plan, inputs: Inputs, weights: Tensor, dummy: Tensor) -> dict[str, Any]:
    """Arguments that the forward and the backward kernel share."""
    noise, noise_t, noise_m = _optional(inputs.noise, dummy)
    valid, valid_t, valid_m = _optional(
        None if inputs.valid is None else inputs.valid.view(torch.uint8), dummy
    )
    given = inputs.mean
    per_step = given is not None and given.dim() == 3
    return {
        "w_": factors(plan, weights.transpose(-1, -2)),
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
    projected: Tensor, weights: Tensor, observation: Tensor, gain: Tensor, shift: Tensor,
) -> Saved:  # fmt: skip
    """Run all steps; returns what the outputs and the backward pass are made from."""
    steps, members, sequences, particles, units = shape
    new = projected.new_empty
    tile = (members, steps + 1, sequences, particles)
    hidden = new(*tile, units)
    cell = hidden if plan.gru else new(*tile, units)
    log_weights = new(*tile)
    ancestors = torch.empty(tile, dtype=torch.int32, device=projected.device)
    hidden[:, 0] = start[0]
    if start[1] is not None:
        cell[:, 0] = start[1]
    log_weights[:, 0] = start[2]
    ancestors[:, 0] = torch.arange(particles, dtype=torch.int32, device=projected.device)
    constants = plan.constants(
        units, particles, plan.tuning.forward_rows, plan.tuning.forward_inner
    )
    count = programs(shape, constants)
    each = constants["R"] // constants["KP"]
    padded = constants["HP"]
    saved = Saved(
        hidden, cell, log_weights, new(members, steps, sequences, particles, units),
        new(members, steps, sequences, particles), new(members, steps, units),
        new(members, steps, units), ancestors,
        new(members, steps, sequences),
        *_counts(inputs.valid, shape, count, each, projected.device),
    )  # fmt: skip
    part = new(members, 2, count, 2, padded)
    wide = padded > constants["BK"] and plan.gru
    scratch = new(members, sequences, particles, units) if wide else hidden
    uniforms, u_t, u_m = _optional(inputs.uniforms, hidden)
    shared = _context(plan, inputs, weights, hidden)
    for t in range(-1, steps):
        forward_kernel[(count, members)](
            hidden, cell, log_weights, saved.raw, saved.prior, part, saved.mean, saved.variance,
            ancestors, saved.ess, scratch, projected, *strides(projected),
            obs_=observation, gain_=gain, shift_=shift, u_=uniforms, u_t=u_t, u_m=u_m,
            count_=saved.count, count_t=saved.count.stride(0), count_m=saved.count.stride(1),
            **shared,
            t=max(t, 0), T=steps, N=sequences, P=count,
            FIRST=t < 0, LAST=t == steps - 1, **constants,
            num_warps=plan.tuning.forward_warps, maxnreg=plan.tuning.forward_registers,
        )  # fmt: skip
    return saved


class Gradients(NamedTuple):
    """Gradients, in the layouts of the forward pass."""

    projected: Tensor
    hidden: Tensor
    cell: Tensor
    log_weights: Tensor
    weights: Tensor
    observation: Tensor
    gain: Tensor
    shift: Tensor


def run_backward(
    plan: Plan, inputs: Inputs, shape: Shape, saved: Saved, projected: Tensor, weights: Tensor,
    observation: Tensor, gain: Tensor, shift: Tensor,
    grad_hidden: Tensor | None, grad_log_weights: Tensor | None, grad_cell: Tensor | None,
) -> Gradients:  # fmt: skip
    """Run all steps backwards; the weights' gradient is added up every few steps."""
    steps, members, sequences, particles, units = shape
    new, zeros = projected.new_empty, projected.new_zeros
    constants = plan.constants(
        units, particles, plan.tuning.backward_rows, plan.tuning.backward_inner
    )
    count = programs(shape, constants)
    padded, tuning = constants["HP"], plan.tuning
    blocks = weights.shape[1]
    slots = min(tuning.ring, steps + 1)
    tile = (members, sequences, particles, units)
    slab = count * constants["R"]
    # As wide as the products that read them.
    stored = torch.bfloat16 if plan.precision == "bf16" else torch.float32
    gates = new(members, slots, blocks * units, slab, dtype=stored)
    if plan.noise == 0:
        gates[:, :, -units:].zero_()
    inner = new(members, slots, 2 if plan.gru else 1, units, slab, dtype=stored)
    dhidden, dlw = zeros(tile), zeros(members, 2, sequences, particles)
    dcell = zeros(tile) if not plan.gru else dhidden
    if grad_cell is not None:
        dcell.copy_(grad_cell)
    sums = zeros(members, steps, 2, units)
    dx = new(members, steps, sequences, blocks * units + 1)
    if plan.noise == 0:
        dx[..., (blocks - 1) * units : -1].zero_()
    dobs = zeros(members, count, padded)
    dweights = zeros(members, tuning.shares, blocks, units, units)
    gh, gh_t, gh_m = _optional(grad_hidden, dhidden)
    gl, gl_t, gl_m = _optional(grad_log_weights, dhidden)
    carry = (new(tile), dhidden, dcell, dlw, new(members, 2, count, 2, padded), sums)
    shared = _context(plan, inputs, weights, saved.hidden)
    read = factors(plan, weights)
    end = steps
    for t, first, last in _launches(steps, tuning.split):
        backward_kernel[(count, members)](
            saved.hidden, saved.cell, saved.log_weights, saved.raw, saved.prior, saved.mean,
            saved.variance, saved.ancestors, projected, *strides(projected), wt_=read,
            obs_=observation, gain_=gain, shift_=shift, total_=saved.total,
            total_t=saved.total.stride(0), total_m=saved.total.stride(1), gh_=gh, gh_t=gh_t, gh_m=gh_m, gl_=gl, gl_t=gl_t,
            gl_m=gl_m, gates_=gates, inner_=inner, dnorm_=carry[0], dhid_=carry[1],
            dcell_=carry[2], dlw_=carry[3], part_=carry[4], sums_=sums, dx_=dx, dobs_=dobs,
            **shared,
            t=t, slot=t % slots, slot_before=(t - 1) % slots,
            cut=int(plan.bptt is not None and 0 < t < steps and t % plan.bptt == 0),
            T=steps, N=sequences, P=count, SLOTS=slots,
            FIRST=first, LAST=last, GH=grad_hidden is not None,
            GL=grad_log_weights is not None, **constants,
            num_warps=tuning.backward_warps, maxnreg=tuning.backward_registers,
        )  # fmt: skip
        # Steps [t, end) are complete; the kernel above already began step t - 1 in its own slot.
        if not first and end > t and (t == 0 or end - t == slots - 1):
            _add_weight_gradient(plan, shape, inner, gates, dweights, t, end, constants)
            end = t
    totals = sums.sum(1)
    return Gradients(
        dx.transpose(0, 1), dhidden, dcell, dlw[:, 0], _in_order(dweights),
        _in_order(dobs)[:, :units], totals[:, 1], totals[:, 0],
    )  # fmt: skip


def _launches(steps: int, split: bool) -> Iterator[tuple[int, bool, bool]]:
    """Yield (step, start only, finish only) of the backward kernel's launches."""
    for t in range(steps, -1, -1):
        if split and 0 < t < steps:
            yield t, False, True
            yield t, True, False
        else:
            yield t, t == steps, t == 0


def _in_order(parts: Tensor) -> Tensor:
    """Add the second axis up one by one: the same bits for every population."""
    total = parts[:, 0]
    for i in range(1, parts.shape[1]):
        total = total + parts[:, i]
    return total


def _add_weight_gradient(
    plan: Plan, shape: Shape, inner: Tensor, gates: Tensor, out: Tensor,
    first: int, end: int, constants: dict[str, Any],
) -> None:  # fmt: skip
    tuning = plan.tuning
    piece = min(constants["HP"], 128)
    tiles = (constants["HP"] // piece) ** 2
    weight_gradient_kernel[(tiles * out.shape[2] * tuning.shares, shape.members)](
        inner, gates, out, first, end - first, gates.shape[1], gates.shape[-1],
        GRU=plan.gru, H=shape.units, HP=constants["HP"], BI=piece, BO=piece,
        BR=tuning.weight_rows, SHARES=tuning.shares, PREC=plan.precision,
        num_warps=tuning.weight_warps, num_stages=tuning.weight_stages,
    )  # fmt: skip


class FusedFilter(torch.autograd.Function):
    """Outputs: hidden, log_weights, final cell; ancestors, ess, step means and variances."""

    @staticmethod
    def forward(
        ctx: Any, plan: Plan, inputs: Inputs, projected: Tensor, hidden: Tensor,
        cell: Tensor | None, log_weights: Tensor, recurrent: Tensor, candidate: Tensor | None,
        observation: Tensor, gain: Tensor, shift: Tensor,
    ) -> tuple[Tensor | None, ...]:  # fmt: skip
        """Run the filter over (T, M, N, ...)."""
        projected = inner_contiguous(projected)
        particles, units = hidden.shape[-2:]
        shape = Shape(*projected.shape[:3], particles, units)
        weights = pack_weights(recurrent, candidate)
        fixed = (observation.contiguous(), gain.contiguous(), shift.contiguous())
        start = (hidden, cell, log_weights)
        saved = run_forward(plan, inputs, shape, start, projected, weights, *fixed)
        ctx.save_for_backward(*inputs, *saved, projected, weights, *fixed)
        ctx.plan, ctx.shape = plan, shape
        ctx.set_materialize_grads(False)
        last = None
        if cell is not None:
            index = saved.ancestors[:, -1].long().unsqueeze(-1).expand_as(hidden)
            last = saved.cell[:, -1].gather(2, index)
        ancestors, ess = saved.ancestors[:, 1:].transpose(0, 1), saved.ess.transpose(0, 1)
        mean, variance = saved.mean.transpose(0, 1), saved.variance.transpose(0, 1)
        ctx.mark_non_differentiable(ancestors, ess, mean, variance)
        return (
            saved.hidden[:, 1:].transpose(0, 1), saved.log_weights[:, 1:].transpose(0, 1), last,
            ancestors, ess, mean, variance,
        )  # fmt: skip

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        """Run the steps backwards."""
        tensors = ctx.saved_tensors
        inputs = Inputs(*tensors[: len(Inputs._fields)])
        saved = Saved(*tensors[len(inputs) : len(inputs) + len(Saved._fields)])
        projected, weights, *fixed = tensors[len(inputs) + len(saved) :]
        ready = [None if g is None else inner_contiguous(g) for g in grads[:2]]
        out = run_backward(
            ctx.plan, inputs, ctx.shape, saved, projected, weights, *fixed, *ready, grads[2]
        )
        gru = ctx.plan.gru
        recurrent, candidate = unpack_weights(out.weights, gru)
        return (
            None, None, out.projected, out.hidden, None if gru else out.cell, out.log_weights,
            recurrent, candidate, out.observation, out.gain, out.shift,
        )  # fmt: skip
