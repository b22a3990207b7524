"""Running all steps forwards: buffers, launches, and what the backward pass needs."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from pfrnn.kernels.dependent_launch import has_dependent_launch, multiprocessors
from pfrnn.kernels.fetch import block_descriptor
from pfrnn.kernels.form import Form
from pfrnn.kernels.forward import forward_kernel
from pfrnn.kernels.ground import strides
from pfrnn.kernels.launch import Repeated, compile_together
from pfrnn.kernels.prologue import Prepared, prologue


class Given(NamedTuple):
    """What the kernels read and that has no gradient.

    Attributes:
        noise: (T, M, N, K, H) or None (drawn in the kernel, or none at all).
        uniforms: (T, M, N, K) or None (no resampling).
        seeds: (M,) int64, for numbers drawn in the kernels, or None.
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

    def contiguous(self) -> Given:
        """Return the same, as the kernels read them."""
        return Given(*(None if x is None else x.contiguous() for x in self))


class Leaves(NamedTuple):
    """What has a gradient.

    Attributes:
        projected: (T, M, N, G H + 1); axes after M contiguous, as of all others.
        hidden: (M, N, K, H), the state before the first step.
        cell: likewise, or None for a PF-GRU.
        log_weights: (M, N, K).
        recurrent: (M, H, 5H), or (M, H, 3H) of a PF-GRU.
        candidate: (M, H, H) of a PF-GRU.
        observation: (M, H).
        gain: (M, H), and
        shift: (M, H), of the batch norm.
        head: (M, H, OUT), or None.
    """

    projected: Tensor
    hidden: Tensor
    cell: Tensor | None
    log_weights: Tensor
    recurrent: Tensor
    candidate: Tensor | None
    observation: Tensor
    gain: Tensor
    shift: Tensor
    head: Tensor | None


class Saved(NamedTuple):
    """What the forward pass leaves behind (:mod:`pfrnn.kernels.forward`, ``prologue``)."""

    hidden: Tensor
    cell: Tensor | None
    log_weights: Tensor
    raw: Tensor
    prior: Tensor
    mean: Tensor
    variance: Tensor
    ancestors: Tensor
    ess: Tensor
    blocks: Tensor
    outputs: Tensor | None


def programs(sequences: int, constants: dict[str, Any]) -> int:
    """Programs a member: each owns R // KP sequences."""
    return int(-(-sequences // (constants["R"] // constants["KP"])))


def optional(tensor: Tensor | None) -> tuple[Tensor | None, int, int]:
    """Return (T, M, ...) and its two strides; a kernel doesn't read what isn't there."""
    return (None, 0, 0) if tensor is None else (tensor, *strides(tensor))


def shared_arguments(form: Form, given: Given, turned: Tensor) -> dict[str, Any]:
    """Arguments that the forward and the backward kernel share.

    Addresses of noise, seeds, padding and statistics are computed also where there are none; what
    is there instead isn't used.
    """
    noise, noise_t, noise_m = optional(given.noise)
    valid = None if given.valid is None else given.valid.view(torch.uint8)
    valid, valid_t, valid_m = optional(valid)
    mean = given.mean
    return {
        "w_": turned,
        "noise_": turned if noise is None else noise, "noise_t": noise_t, "noise_m": noise_m,
        "seed_": turned if given.seeds is None else given.seeds,
        "step_": turned if given.step is None else given.step,
        "valid_": turned if valid is None else valid, "valid_t": valid_t, "valid_m": valid_m,
        "gmean_": turned if mean is None else mean,
        "gvar_": turned if given.variance is None else given.variance,
        "given_t": mean.stride(0) if mean is not None and mean.dim() == 3 else 0,
        "alpha": form.alpha, "norm_eps": form.norm_eps,
    }  # fmt: skip


def _counts(valid: Tensor, programs: int, each: int, particles: int) -> Tensor:
    """Values behind each program's sums, (T, M, P)."""
    ones = F.pad(valid.float(), (0, programs * each - valid.shape[-1]))
    return ones.unflatten(-1, (programs, each)).sum(-1) * particles


def run_forward(form: Form, given: Given, leaves: Leaves) -> Saved:
    """Run all steps; returns what the outputs and the backward pass are made from."""
    projected, tuning, device = leaves.projected, form.tuning, leaves.projected.device
    steps, members, sequences, _ = projected.shape
    particles, units = leaves.hidden.shape[-2:]
    new = projected.new_empty
    tile = (members, steps + 1, sequences, particles)
    each_step = (members, steps, sequences, particles)
    outputs = 0 if leaves.head is None else leaves.head.shape[-1]
    saved = Saved(
        hidden=new(*tile, units),
        cell=None if form.gru else new(*tile, units),
        log_weights=new(*tile),
        raw=new(*each_step, units),
        prior=new(*each_step),
        mean=new(members, steps, units),
        variance=new(members, steps, units),
        ancestors=new(*tile, dtype=torch.int32),
        ess=new(members, steps, sequences),
        blocks=new(2, members, 4 if form.gru else 5, units, units),
        outputs=new(*each_step, outputs) if outputs else None,
    )
    constants = form.constants(units, particles, tuning.forward_rows, tuning.forward_inner)
    count, each = programs(sequences, constants), constants["R"] // constants["KP"]
    known = given.valid is None
    counts = new(1, 1, count) if known else _counts(given.valid, count, each, particles)
    start = (leaves.hidden, leaves.cell, leaves.log_weights)
    prepared = Prepared(
        saved.hidden, saved.cell, saved.log_weights, saved.ancestors, saved.blocks,
        counts if known else None,
    )  # fmt: skip
    prologue(start, leaves.recurrent, leaves.candidate, prepared, count, each)
    counts = counts.expand(steps, members, count)
    padded = constants["HP"]
    wide = padded > constants["BK"] and form.gru
    uniforms, u_t, u_m = optional(given.uniforms)
    shared = shared_arguments(form, given, saved.blocks[1])
    fetched = block_descriptor(shared["w_"], constants["BK"], tuning.forward_fetch)
    ticket = None
    if tuning.ticket and form.norm and not form.given:
        ticket = torch.zeros(members, dtype=torch.int32, device=device)
    large = count * members > tuning.dependent_from * multiprocessors(device)
    overlapping = large and has_dependent_launch(device)
    launch = Repeated(
        forward_kernel, (count, members),
        {
            "hidden_": saved.hidden, "cell_": saved.cell, "lw_": saved.log_weights,
            "raw_": saved.raw, "prior_": saved.prior, "part_": new(members, 2, count, 2, padded),
            "mean_": saved.mean, "var_": saved.variance, "anc_": saved.ancestors,
            "ess_": saved.ess, "scratch_": new(leaves.hidden.shape) if wide else saved.hidden,
            "x_": projected, "x_t": projected.stride(0), "x_m": projected.stride(1),
            "obs_": leaves.observation, "gain_": leaves.gain, "shift_": leaves.shift,
            "u_": uniforms, "u_t": u_t, "u_m": u_m,
            "count_": counts, "count_t": counts.stride(0), "count_m": counts.stride(1),
            **shared, "T": steps, "N": sequences, "P": count,
            "read_": leaves.head, "y_": saved.outputs, "OUT": outputs,
            "wd_": fetched, "FETCH": fetched is not None,
            "ticket_": ticket, "TICKET": ticket is not None, **constants,
            "num_warps": tuning.forward_warps, "maxnreg": tuning.forward_registers or None,
        },
    )  # fmt: skip

    def kind(t: int) -> dict[str, bool]:
        begun = overlapping and t >= 0
        return {"FIRST": t < 0, "LAST": t == steps - 1, "DEPENDENT": begun, "launch_pdl": begun}

    # The first launch, those in between, the last one.
    kinds = sorted({-1, 0, steps - 1})
    key = ("forward", form, units, particles, outputs, len(kinds), overlapping, device)
    calls = [functools.partial(launch.compile, kind(t), t=max(t, 0)) for t in kinds]
    compile_together(key, calls)
    for t in range(-1, steps):
        launch(kind(t), t=max(t, 0))
    return saved
