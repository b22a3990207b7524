"""Running all steps backwards, and adding up the weights' gradient."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pfrnn.kernels.backward import backward_kernel
from pfrnn.kernels.dependent_launch import has_dependent_launch
from pfrnn.kernels.fetch import block_descriptor
from pfrnn.kernels.form import Form
from pfrnn.kernels.launch import Repeated, compile_together
from pfrnn.kernels.readout import PARTS
from pfrnn.kernels.run_forward import Given, Leaves, Saved, optional, programs, shared_arguments
from pfrnn.kernels.weight_gradient import weight_gradient_kernel


class Incoming(NamedTuple):
    """Gradients of the outputs, each None where nothing reads it.

    Attributes:
        hidden: (T, M, N, K, H); axes after M contiguous, as of the next and the last.
        log_weights: (T, M, N, K).
        cell: (M, N, K, H), of the last step's, after resampling.
        outputs: (T, M, N, K, OUT).
    """

    hidden: Tensor | None
    log_weights: Tensor | None
    cell: Tensor | None
    outputs: Tensor | None


def half_scale(incoming: Incoming) -> tuple[Tensor, Tensor]:
    """Return (M,) powers of two that bring each member's largest gradient to 8 to 16, and inverses.

    float16 is exact to 2^-11 from 2^-14 on and ends at 65504: gradients of gates keep TF32's
    precision from 2^-17 of the largest incoming one on, and may grow to 4094 times that. A member's
    scale depends on its own gradients alone.
    """
    cell = None if incoming.cell is None else incoming.cell.unsqueeze(0)
    parts = [x for x in (*incoming[:2], cell, incoming.outputs) if x is not None]
    norms = [torch.linalg.vector_norm(x, torch.inf, dim=(0, *range(2, x.dim()))) for x in parts]
    peak = norms[0] if len(norms) == 1 else torch.stack(norms).amax(0)
    # Of a float32 number, the exponent's bits: 2^e has e + 127.
    exponent = peak.view(torch.int32) >> 23
    scale = (257 - exponent).clamp_(1, 253)
    return (scale << 23).view(torch.float32), ((254 - scale) << 23).view(torch.float32)


def run_backward(
    form: Form, given: Given, leaves: Leaves, saved: Saved, incoming: Incoming
) -> Leaves:
    """Run all steps backwards; returns the gradients of ``leaves``.

    Args:
        form: static choices.
        given: as in the forward pass.
        leaves: likewise; the state before the first step, ``recurrent`` and ``candidate`` are not
            looked at.
        saved: of the forward pass.
        incoming: gradients of the outputs; one at least.
    """
    projected, tuning, gru = leaves.projected, form.tuning, form.gru
    steps, members, sequences, _ = projected.shape
    particles, units = saved.hidden.shape[-2:]
    new, zeros = projected.new_empty, projected.new_zeros
    constants = form.constants(units, particles, tuning.backward_rows, tuning.backward_inner)
    count, padded = programs(sequences, constants), constants["HP"]
    blocks, slots = saved.blocks.shape[2], min(tuning.ring, steps + 1)
    tile = (members, sequences, particles, units)
    slab = count * constants["R"]
    stored = form.stored(units)
    gates = new(members, slots, blocks * units, slab, dtype=stored)
    inner = new(members, slots, 2 if gru else 1, units, slab, dtype=stored)
    dx = new(members, steps, sequences, blocks * units + 1)
    if form.noise == 0:
        gates[:, :, -units:].zero_()
        dx[..., (blocks - 1) * units : -1].zero_()
    outputs = 0 if incoming.outputs is None else incoming.outputs.shape[-1]
    dhidden, dlw = zeros(tile), zeros(members, 2, sequences, particles)
    sums, dobs = zeros(members, steps, 2, units), zeros(members, count, padded)
    dweights = zeros(members, tuning.shares, blocks, units, units)
    dread = zeros(members, count, outputs, PARTS.value, padded) if outputs else None
    dcell = None
    if not gru:
        dcell = zeros(tile) if incoming.cell is None else incoming.cell.clone()
    ticket = zeros(members, dtype=torch.int32) if tuning.ticket and form.norm else None
    if given.valid is None:
        total = projected.new_full((1, 1), float(max(sequences * particles, 1)))
    else:
        total = (given.valid.sum(-1) * particles).float().clamp_(min=1.0)
    total = total.expand(steps, members)
    gh, gh_t, gh_m = optional(incoming.hidden)
    gl, gl_t, gl_m = optional(incoming.log_weights)
    gy, gy_t, gy_m = optional(incoming.outputs)
    scale = unit = dhidden
    if stored == torch.float16:
        scale, unit = half_scale(incoming)
    read, turned = saved.blocks
    fetched, read_by = (
        block_descriptor(one, constants["BK"], tuning.backward_fetch) for one in (turned, read)
    )
    if fetched is None or read_by is None:
        fetched = read_by = None
    launch = Repeated(
        backward_kernel, (count, members),
        {
            "hidden_": saved.hidden, "cell_": saved.cell, "lw_": saved.log_weights,
            "raw_": saved.raw, "prior_": saved.prior, "mean_": saved.mean,
            "var_": saved.variance, "anc_": saved.ancestors,
            "x_": projected, "x_t": projected.stride(0), "x_m": projected.stride(1),
            "wt_": read, "obs_": leaves.observation, "gain_": leaves.gain,
            "shift_": leaves.shift,
            "total_": total, "total_t": total.stride(0), "total_m": total.stride(1),
            "gh_": gh, "gh_t": gh_t, "gh_m": gh_m, "gl_": gl, "gl_t": gl_t, "gl_m": gl_m,
            "gates_": gates, "inner_": inner, "dnorm_": new(tile), "dhid_": dhidden,
            "dcell_": dcell, "dlw_": dlw, "part_": new(members, 2, count, 2, padded),
            "sums_": sums, "dx_": dx, "dobs_": dobs,
            **shared_arguments(form, given, turned),
            "T": steps, "N": sequences, "P": count, "SLOTS": slots,
            "read_": leaves.head, "dread_": dread, "gy_": gy, "gy_t": gy_t, "gy_m": gy_m,
            "OUT": outputs, "wd_": fetched, "wtd_": read_by, "FETCH": fetched is not None,
            "ticket_": ticket, "scale_": scale, "TICKET": ticket is not None,
            "LATE": tuning.late_loads, "GH": gh is not None, "GL": gl is not None, **constants,
            "num_warps": tuning.backward_warps,
        },
    )  # fmt: skip
    overlapping = has_dependent_launch(projected.device)

    def kind(t: int, first: bool, last: bool) -> dict[str, Any]:
        begun = overlapping and t < steps
        ends = tuning.split and last and t > 0  # which takes few registers
        return {
            "FIRST": first, "LAST": last, "END": t == steps,
            "LEAN": ends and tuning.lean_ends and not gru, "DEPENDENT": begun, "launch_pdl": begun,
            "maxnreg": None if ends else tuning.backward_registers or None,
        }  # fmt: skip

    def numbers(t: int) -> dict[str, int]:
        cut = int(form.bptt > 0 and 0 < t < steps and t % form.bptt == 0)
        return {"t": t, "slot": t % slots, "slot_before": (t - 1) % slots, "cut": cut}

    add = _weight_gradient(form, inner, gates, dweights, unit, constants)
    kinds = {(first, last, t == steps): t for t, first, last in _launches(steps, tuning.split)}
    there = (gh is None, gl is None, outputs)
    calls: list[Any] = [
        functools.partial(launch.compile, kind(t, *found[:2]), **numbers(t))
        for found, t in kinds.items()
    ]
    calls.append(functools.partial(add.compile, {}, first=0, steps=1))
    key = ("backward", form, units, particles, *sorted(kinds), overlapping, *there)
    compile_together((*key, projected.device), calls)
    end = steps
    for t, first, last in _launches(steps, tuning.split):
        launch(kind(t, first, last), **numbers(t))
        # Steps [t, end) are complete; the kernel above already began step t - 1 in its own slot.
        if not first and end > t and (t == 0 or end - t == slots - 1):
            add({}, first=t, steps=end - t)
            end = t
    weights = dweights.sum(1)
    head = None if dread is None else dread.sum((1, 3))[..., :units].transpose(1, 2)
    return Leaves(
        projected=dx.transpose(0, 1),
        hidden=dhidden,
        cell=dcell,
        log_weights=dlw[:, 0],
        recurrent=_columns(torch.cat([weights[:, :2], weights[:, 3:]], 1) if gru else weights),
        candidate=weights[:, 2].clone() if gru else None,
        observation=dobs.sum(1)[:, :units],
        gain=sums[:, :, 1].sum(1),
        shift=sums[:, :, 0].sum(1),
        head=head,
    )


def _launches(steps: int, split: bool) -> Iterator[tuple[int, bool, bool]]:
    """Yield (step, start only, finish only) of the backward kernel's launches."""
    for t in range(steps, -1, -1):
        if split and 0 < t < steps:
            yield t, False, True
            yield t, True, False
        else:
            yield t, t == steps, t == 0


def _columns(blocks: Tensor) -> Tensor:
    """Lay blocks (M, G, H, H) side by side: (M, H, G H)."""
    return blocks.transpose(1, 2).flatten(2)


def _weight_gradient(
    form: Form, inner: Tensor, gates: Tensor, out: Tensor, unit: Tensor, constants: dict[str, Any]
) -> Repeated:
    """Return the launches that add steps [first, first + steps) to the weights' gradient."""
    tuning = form.tuning
    members, _, blocks, units, _ = out.shape
    piece = min(constants["HP"], 128)
    tiles = (constants["HP"] // piece) ** 2
    return Repeated(
        weight_gradient_kernel, (tiles * blocks * tuning.shares, members),
        {
            "inner_": inner, "gates_": gates, "out_": out, "unit_": unit,
            "SLOTS": gates.shape[1], "PR": gates.shape[-1], "GRU": form.gru, "H": units,
            "HP": constants["HP"], "BI": piece, "BO": piece, "BR": tuning.weight_rows,
            "SHARES": tuning.shares, "PREC": form.precision,
            "num_warps": tuning.weight_warps, "num_stages": tuning.weight_stages,
        },
    )  # fmt: skip
