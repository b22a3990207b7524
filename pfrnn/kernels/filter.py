"""The fused filter of a population as one operator of torch each way.

``torch.ops.pfrnn.filter`` runs all time steps, ``torch.ops.pfrnn.filter_backward`` runs them
backwards. Both are ``torch.library`` operators with fake kernels: torch.compile and torch.export
see one node, and autograd finds the gradient by itself. Call them through
:func:`pfrnn.kernels.sequence.run_pf_fused`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pfrnn.kernels.form import Form
from pfrnn.kernels.ground import NO_SECOND_DERIVATIVE, inner_contiguous
from pfrnn.kernels.noise import NoiseKey, fill_uniform
from pfrnn.kernels.run_backward import Incoming, run_backward
from pfrnn.kernels.run_forward import Given, Leaves, Saved, run_forward
from pfrnn.kernels.tiles import NOISE_GIVEN, NOISE_NONE, NOISE_PHILOX
from pfrnn.kernels.tuning import chosen_tuning, decoded

_LEAVES, _GIVEN = len(Leaves._fields), len(Given._fields)
_OPTIONS = (
    "bool noisy, int mode, float alpha, bool softplus, int activation, bool norm, float norm_eps, "
    "int bptt, str precision, int[] tuning"
)
_TENSORS = (
    "Tensor projected, Tensor hidden, Tensor? cell, Tensor log_weights, Tensor recurrent, "
    "Tensor? candidate, Tensor observation, Tensor gain, Tensor shift, Tensor? head, "
    "Tensor? noise, Tensor? uniforms, Tensor? seeds, Tensor? step, Tensor? valid, Tensor? mean, "
    "Tensor? variance"
)


def _form(given: Given, leaves: Leaves, options: Sequence[Any]) -> Form:
    noisy, mode, alpha, softplus, activation, norm, norm_eps, bptt, precision, tuning = options
    source = NOISE_NONE
    if noisy:
        source = NOISE_PHILOX if given.noise is None else NOISE_GIVEN
    _, members, sequences, _ = leaves.projected.shape
    found = decoded(tuning)
    if found is None:
        found = chosen_tuning(
            members, sequences, *leaves.hidden.shape[-2:], precision, leaves.projected.device
        )
    return Form(
        leaves.candidate is not None, mode, alpha, softplus, activation, norm, norm_eps, source,
        given.mean is not None, given.valid is not None, bptt, precision, found,
    )  # fmt: skip


def _contiguous(leaves: Leaves) -> Leaves:
    """Return leaves as the kernels read them."""
    rest = (None if x is None else x.contiguous() for x in leaves[1:])
    return Leaves(inner_contiguous(leaves.projected), *rest)


def _or_empty(tensors: Sequence[Tensor | None], like: Tensor) -> tuple[Tensor, ...]:
    """An operator returns tensors only; what there isn't is empty."""
    return tuple(like.new_empty(0) if x is None else x for x in tensors)


def _forward(*arguments: Any) -> tuple[Tensor, ...]:
    leaves = _contiguous(Leaves(*arguments[:_LEAVES]))
    given = Given(*arguments[_LEAVES : _LEAVES + _GIVEN]).contiguous()
    carried, *options = arguments[_LEAVES + _GIVEN :]
    form = _form(given, leaves, options)
    if form.mode and given.uniforms is None:
        steps, _, sequences, _ = leaves.projected.shape
        key = NoiseKey(given.seeds, given.step)
        drawn = fill_uniform(key, steps, sequences, leaves.hidden.shape[-2])
        given = given._replace(uniforms=drawn)
    saved = run_forward(form, given, leaves)
    last = None
    if carried and saved.cell is not None:
        parent = saved.ancestors[:, -1].long().unsqueeze(-1).expand_as(leaves.hidden)
        last = saved.cell[:, -1].gather(2, parent)
    return _or_empty((last, *saved), saved.hidden)


_forward_op = torch.library.custom_op(
    "pfrnn::filter",
    _forward,
    mutates_args=(),
    schema=f"({_TENSORS}, bool carried, {_OPTIONS}) -> "
    f"({', '.join(['Tensor'] * (1 + len(Saved._fields)))})",
)


@_forward_op.register_fake
def _forward_fake(*arguments: Any) -> tuple[Tensor, ...]:
    leaves = Leaves(*arguments[:_LEAVES])
    carried = arguments[_LEAVES + _GIVEN]
    gru = leaves.candidate is not None
    steps, members, sequences, _ = leaves.projected.shape
    particles, units = leaves.hidden.shape[-2:]
    new = leaves.projected.new_empty
    tile = (members, steps + 1, sequences, particles)
    each = (members, steps, sequences, particles)
    saved = Saved(
        new(*tile, units), None if gru else new(*tile, units), new(tile), new(*each, units),
        new(each), new(members, steps, units), new(members, steps, units),
        new(tile, dtype=torch.int32), new(each[:-1]),
        new(2, members, 4 if gru else 5, units, units),
        None if leaves.head is None else new(*each, leaves.head.shape[-1]),
    )  # fmt: skip
    last = new(members, sequences, particles, units) if carried and not gru else None
    return _or_empty((last, *saved), saved.hidden)


def _backward(*arguments: Any) -> tuple[Tensor, ...]:
    incoming, rest = arguments[: len(Incoming._fields)], arguments[len(Incoming._fields) :]
    saved = Saved(*rest[: len(Saved._fields)])
    leaves, given, options = _split(rest[len(saved) :])
    saved = saved._replace(cell=None if leaves.candidate is not None else saved.cell)
    found = Incoming(*(None if x is None else inner_contiguous(x) for x in incoming))
    given = given.contiguous()
    form = _form(given, leaves, options)
    gradients = run_backward(form, given, _contiguous(leaves), saved, found)
    first = gradients.projected.transpose(0, 1)  # members first, as it lies in memory
    return tuple(x.contiguous() for x in _or_empty((first, *gradients[1:]), saved.hidden))


def _split(arguments: Sequence[Any]) -> tuple[Leaves, Given, Sequence[Any]]:
    given = Given(*arguments[_LEAVES : _LEAVES + _GIVEN])
    return Leaves(*arguments[:_LEAVES]), given, arguments[_LEAVES + _GIVEN :]


_backward_op = torch.library.custom_op(
    "pfrnn::filter_backward",
    _backward,
    mutates_args=(),
    schema="(Tensor? d_hidden, Tensor? d_log_weights, Tensor? d_cell, Tensor? d_outputs, "
    + ", ".join(f"Tensor saved_{name}" for name in Saved._fields)
    + f", {_TENSORS}, {_OPTIONS}) -> ({', '.join(['Tensor'] * _LEAVES)})",
)


@_backward_op.register_fake
def _backward_fake(*arguments: Any) -> tuple[Tensor, ...]:
    leaves, _, _ = _split(arguments[len(Incoming._fields) + len(Saved._fields) :])
    first = leaves.projected.transpose(0, 1)
    found = (None if x is None else x.new_empty(x.shape) for x in (first, *leaves[1:]))
    return _or_empty(tuple(found), leaves.hidden)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.options = inputs[_LEAVES + _GIVEN + 1 :]
    ctx.save_for_backward(*inputs[: _LEAVES + _GIVEN], *output[1:])
    ctx.set_materialize_grads(False)
    differentiable = {"hidden", "log_weights", "outputs"}
    named = zip(Saved._fields, output[1:], strict=True)
    ctx.mark_non_differentiable(*(x for name, x in named if name not in differentiable))


def _gradient(ctx: Any, d_cell: Tensor | None, *grads: Tensor | None) -> tuple[Any, ...]:
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError(NO_SECOND_DERIVATIVE)
    tensors = ctx.saved_tensors  # once: checkpointing allows no more
    given, saved = tensors[: _LEAVES + _GIVEN], tensors[_LEAVES + _GIVEN :]
    by_name = Saved(*grads)  # type: ignore[arg-type]
    # Of the state before the first step there is a copy, which nobody reads.
    d_hidden, d_log_weights = (
        None if x is None else x[:, 1:].transpose(0, 1)
        for x in (by_name.hidden, by_name.log_weights)
    )
    d_outputs = None if by_name.outputs is None else by_name.outputs.transpose(0, 1)
    if d_cell is not None and d_cell.numel() == 0:
        d_cell = None
    if d_outputs is not None and d_outputs.numel() == 0:
        d_outputs = None
    found = Leaves(
        *_backward_op(d_hidden, d_log_weights, d_cell, d_outputs, *saved, *given, *ctx.options)
    )
    leaves = Leaves(*given[:_LEAVES])
    kept = (None if x is None else g for x, g in zip(leaves, found, strict=True))
    found = Leaves(*kept)
    found = found._replace(projected=found.projected.transpose(0, 1))
    return (*found, *[None] * (_GIVEN + 1 + len(ctx.options)))


_forward_op.register_autograd(_gradient, setup_context=_setup)


def fused_filter(
    given: Given, leaves: Leaves, carried: bool, options: Sequence[Any]
) -> tuple[Tensor, Saved]:
    """Run the filter over (T, M, N, ...).

    Args:
        given: what has no gradient; uniforms that are needed and aren't there are drawn for the
            seeds.
        leaves: what has one.
        carried: whether the last step's cell is returned.
        options: the operator's other arguments, in the order of its schema.

    Returns:
        The last step's cell after resampling, (M, N, K, H), empty if it isn't ``carried`` or there
        is none; and what the steps left. Of that, ``hidden``, ``log_weights`` and ``outputs`` have
        gradients.
    """
    last, *saved = _forward_op(*leaves, *given, carried, *options)
    return last, Saved(*saved)
