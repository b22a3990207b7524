"""Running all steps backwards, and adding up the weights' gradient."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pfrnn.kernels.backward import backward_kernel
from pfrnn.kernels.early import can_begin_early
from pfrnn.kernels.fetch import block_descriptor
from pfrnn.kernels.half_scale import half_scale
from pfrnn.kernels.in_order import in_order
from pfrnn.kernels.plan import Plan, strides
from pfrnn.kernels.readout import PARTS
from pfrnn.kernels.run_forward import (
    Inputs,
    Saved,
    Shape,
    factors,
    optional,
    programs,
    shared_arguments,
)
from pfrnn.kernels.together import compile_together
from pfrnn.kernels.weight_gradient import weight_gradient_kernel
from pfrnn.kernels.zeroed import zeroed


class Gradients(NamedTuple):
    """Gradients, in the layouts of the forward pass."""

    projected: Tensor
    hidden: Tensor
    cell: Tensor
    log_weights: Tensor
    recurrent: Tensor
    candidate: Tensor | None
    observation: Tensor
    gain: Tensor
    shift: Tensor
    readout: Tensor | None


def run_backward(
    plan: Plan, inputs: Inputs, shape: Shape, saved: Saved, projected: Tensor, observation: Tensor,
    gain: Tensor, shift: Tensor, readout: Tensor | None, grad_hidden: Tensor | None,
    grad_log_weights: Tensor | None, grad_cell: Tensor | None, grad_read: Tensor | None,
) -> Gradients:  # fmt: skip
    """Run all steps backwards; the weights' gradient is added up every few steps."""
    steps, members, sequences, particles, units = shape
    new = projected.new_empty
    constants = plan.constants(units, particles, plan.backward_rows, plan.tuning.backward_inner)
    count = programs(shape, constants)
    padded, tuning = constants["HP"], plan.tuning
    blocks = saved.weights.shape[1]
    slots = min(tuning.ring, steps + 1)
    tile = (members, sequences, particles, units)
    slab = count * constants["R"]
    stored = plan.stored(units)
    gates = new(members, slots, blocks * units, slab, dtype=stored)
    if plan.noise == 0:
        gates[:, :, -units:].zero_()
    inner = new(members, slots, 2 if plan.gru else 1, units, slab, dtype=stored)
    outputs = 0 if grad_read is None else grad_read.shape[-1]
    dhidden, dlw, sums, dobs, dweights, dread, counters, *own = zeroed(
        projected,
        [tile, (members, 2, sequences, particles), (members, steps, 2, units),
         (members, count, padded), (members, tuning.shares, blocks, units, units),
         (members, count, outputs, PARTS.value, padded), (members,) if tuning.ticket else (0,),
         *([] if plan.gru else [tile])],
    )  # fmt: skip
    # Zeros of either type have the same bits.
    ticket = counters.view(torch.int32) if tuning.ticket and plan.norm else None
    dcell = own[0] if own else dhidden
    if grad_cell is not None:
        dcell.copy_(grad_cell)
    dx = new(members, steps, sequences, blocks * units + 1)
    if plan.noise == 0:
        dx[..., (blocks - 1) * units : -1].zero_()
    gh, gh_t, gh_m = optional(grad_hidden, dhidden)
    gl, gl_t, gl_m = optional(grad_log_weights, dhidden)
    gy, gy_t, gy_m = optional(grad_read, dhidden)
    scale = unit = dhidden
    if stored == torch.float16:
        cell = None if grad_cell is None else grad_cell.unsqueeze(0)
        scale, unit = half_scale(grad_hidden, grad_log_weights, cell, grad_read)
    carry = (new(tile), dhidden, dcell, dlw, new(members, 2, count, 2, padded), sums)
    shared = shared_arguments(plan, inputs, saved.turned, saved.hidden)
    read = factors(plan, saved.weights)
    fetched, read_by = (
        block_descriptor(one, constants["BK"], tuning.backward_fetch)
        for one in (shared["w_"], read)
    )
    if fetched is None or read_by is None:
        fetched = read_by = None
    overlapping = tuning.backward_early and can_begin_early(projected.device)

    def launch(t: int, first: bool, last: bool, only_compile: bool = False) -> None:
        early = overlapping and t < steps
        ends = tuning.split and last and t > 0  # which takes few registers
        backward_kernel.run(
            saved.hidden, saved.cell, saved.log_weights, saved.raw, saved.prior, saved.mean,
            saved.variance, saved.ancestors, projected, *strides(projected), wt_=read,
            obs_=observation, gain_=gain, shift_=shift, total_=saved.total,
            total_t=saved.total.stride(0), total_m=saved.total.stride(1),
            gh_=gh, gh_t=gh_t, gh_m=gh_m, gl_=gl, gl_t=gl_t, gl_m=gl_m,
            gates_=gates, inner_=inner, dnorm_=carry[0], dhid_=carry[1],
            dcell_=carry[2], dlw_=carry[3], part_=carry[4], sums_=sums, dx_=dx, dobs_=dobs,
            **shared,
            t=t, slot=t % slots, slot_before=(t - 1) % slots,
            cut=int(plan.bptt is not None and 0 < t < steps and t % plan.bptt == 0),
            T=steps, N=sequences, P=count, SLOTS=slots,
            read_=dhidden if readout is None else readout,
            dread_=dread if outputs else dhidden, gy_=gy, gy_t=gy_t, gy_m=gy_m, OUT=outputs,
            wd_=fetched, wtd_=read_by, FETCH=fetched is not None,
            ticket_=ticket, scale_=scale, TICKET=ticket is not None, LATE=tuning.late_loads,
            LEAN=ends and tuning.lean_ends and not plan.gru, EARLY=early, launch_pdl=early,
            FIRST=first, LAST=last, END=t == steps, GH=grad_hidden is not None,
            GL=grad_log_weights is not None, **constants,
            num_warps=tuning.backward_warps,
            maxnreg=None if ends else tuning.backward_registers,
            grid=(count, members), warmup=only_compile,
        )  # fmt: skip

    add = functools.partial(
        _add_weight_gradient, plan, shape, inner, gates, dweights, unit, constants
    )
    total = functools.partial(in_order, dweights, dobs, dread, plan.gru)
    kinds = {(first, last, t == steps): t for t, first, last in _launches(steps, tuning.split)}
    given = (gh is dhidden, gl is dhidden, outputs)
    key = ("backward", plan, units, particles, *sorted(kinds), overlapping, *given)
    compile_together(
        (*key, projected.device),
        [functools.partial(launch, t, *kind[:2], True) for kind, t in kinds.items()]
        + [functools.partial(add, 0, 1, True), functools.partial(total, True)],
    )
    end = steps
    for t, first, last in _launches(steps, tuning.split):
        launch(t, first, last)
        # Steps [t, end) are complete; the kernel above already began step t - 1 in its own slot.
        if not first and end > t and (t == 0 or end - t == slots - 1):
            add(t, end)
            end = t
    norm = sums.sum(1)
    recurrent, candidate, obs, head = total()
    return Gradients(
        dx.transpose(0, 1), dhidden, dcell, dlw[:, 0], recurrent, candidate, obs, norm[:, 1],
        norm[:, 0], head,
    )  # fmt: skip


def _launches(steps: int, split: bool) -> Iterator[tuple[int, bool, bool]]:
    """Yield (step, start only, finish only) of the backward kernel's launches."""
    for t in range(steps, -1, -1):
        if split and 0 < t < steps:
            yield t, False, True
            yield t, True, False
        else:
            yield t, t == steps, t == 0


def _add_weight_gradient(
    plan: Plan, shape: Shape, inner: Tensor, gates: Tensor, out: Tensor, unit: Tensor,
    constants: dict[str, Any], first: int, end: int, only_compile: bool = False,
) -> None:  # fmt: skip
    tuning = plan.tuning
    piece = min(constants["HP"], 128)
    tiles = (constants["HP"] // piece) ** 2
    weight_gradient_kernel.run(
        inner, gates, out, unit, first, end - first, gates.shape[1], gates.shape[-1],
        GRU=plan.gru, H=shape.units, HP=constants["HP"], BI=piece, BO=piece,
        BR=tuning.weight_rows, SHARES=tuning.shares, PREC=plan.precision,
        num_warps=tuning.weight_warps, num_stages=tuning.weight_stages,
        grid=(tiles * out.shape[2] * tuning.shares, shape.members), warmup=only_compile,
    )  # fmt: skip
