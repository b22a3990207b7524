"""The memory update of both cells with backward passes written by hand.

Same equations as the plain code in pf_lstm.py and pf_gru.py, which stays the definition (and what
torch.compile sees); the tests hold both against the written-out loops. Here intermediates are
overwritten in place and all gradients of the gates go straight into one tensor: about half the
passes over memory, which is what the step is bound by beside its products.

The functions are differentiable once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from pfrnn.functional.autocast import autocasting, forward_mode, tracing, transforming
from pfrnn.functional.batch_norm import Statistics, spread
from pfrnn.functional.first_order import wants_second_derivatives
from pfrnn.functional.linear import LEAKY_SLOPE
from pfrnn.functional.types import FilterSwitches

_AXES = {"feature": (-3, -2), "particle_slot": (-3, -1)}


def fusable(hidden: Tensor, noise: Tensor | None, *others: Tensor | None) -> bool:
    """Say whether fused code may run: eager, no autocast, no torch.func, full precision, once.

    Nor in forward mode: there and under torch.jit.trace the plain code runs.
    """
    # Functions that torch.func can transform bind their arguments by inspection at every call,
    # which costs more than the step's arithmetic at small sizes: under it the plain code runs.
    if noise is None or torch.compiler.is_compiling() or transforming() or tracing():
        return False
    if wants_second_derivatives() or forward_mode() or autocasting(hidden.device):
        return False
    if hidden.dtype not in (torch.float32, torch.float64):
        return False
    return all(x is None or x.dtype == hidden.dtype for x in (noise, *others))


class Normed(NamedTuple):
    """The candidate after noise, batch norm and activation, and what its backward needs.

    Attributes:
        activated: (..., N, K, H), the candidate after the activation.
        centred: (..., N, K, H), minus its mean; empty without batch norm.
        scale: (..., C), gain / deviation; empty without batch norm.
        inverse: (..., C), 1 / deviation; empty without batch norm.
        native: torch's own batch norm did it: ``centred`` is the input and ``scale`` its mean.
        statistics: of the step, or None.
    """

    activated: Tensor
    centred: Tensor
    scale: Tensor
    inverse: Tensor
    native: bool = False
    statistics: Statistics | None = None


def normed_forward(
    noisy: Tensor,
    gain: Tensor | None,
    shift: Tensor | None,
    given: tuple[Tensor, Tensor] | None,
    valid: Tensor | None,
    switches: FilterSwitches,
) -> Normed:
    """Normalise and activate; ``noisy`` is overwritten."""
    mode = switches.batch_norm
    empty = noisy.new_empty(0)
    if mode == "none":
        return Normed(_activate(noisy, switches.activation), empty, empty, empty)
    if _native(noisy, gain, shift, given, valid, mode):
        return _native_forward(noisy, gain, shift, switches)
    statistics = None
    if given is None:
        mean, count, size = _mean(noisy, mode, valid)
        centred = noisy.sub_(spread(mean, mode))
        if valid is not None:
            centred = torch.where(valid[..., None, None], centred, 0.0)
        variance = (centred * centred).sum(_AXES[mode]) / size
        statistics = Statistics(mean, variance, count)
    else:
        centred, variance = noisy.sub_(spread(given[0], mode)), given[1]
    inverse = (variance + switches.norm_eps).rsqrt()
    scale = inverse if gain is None else inverse * gain
    wide = spread(scale, mode)
    y = centred * wide if shift is None else torch.addcmul(spread(shift, mode), centred, wide)
    activated = _activate(y, switches.activation)
    return Normed(activated, centred, scale, inverse, False, statistics)


def _native(
    x: Tensor,
    gain: Tensor | None,
    shift: Tensor | None,
    given: tuple[Tensor, Tensor] | None,
    valid: Tensor | None,
    mode: str,
) -> bool:
    """Say whether torch's batch norm computes the same: one model, per feature, nothing masked."""
    plain = given is None and valid is None and mode == "feature" and x.dim() == 3
    # One value alone has variance 0 exactly, which the inverse deviation can't tell.
    return plain and gain is not None and shift is not None and x.shape[0] * x.shape[1] > 1


def _native_forward(
    x: Tensor, gain: Tensor | None, shift: Tensor | None, switches: FilterSwitches
) -> Normed:
    eps, rows = switches.norm_eps, x.flatten(0, 1)
    y, mean, inverse = torch.native_batch_norm(rows, gain, shift, None, None, True, 0.0, eps)
    variance = inverse.pow(-2.0).sub_(eps).clamp_(min=0.0)
    statistics = Statistics(mean, variance, x.new_full((), float(rows.shape[0])))
    activated = _activate(y, switches.activation).view_as(x)
    return Normed(activated, x, mean, inverse, True, statistics)


def _mean(x: Tensor, mode: str, valid: Tensor | None) -> tuple[Tensor, Tensor, Any]:
    """Return the mean, the count (...) and the divisor of the sums."""
    per_sequence = x.shape[-2] if mode == "feature" else x.shape[-1]
    if valid is None:
        size = x.shape[-3] * per_sequence
        divisor = max(size, 1)
        return x.sum(_AXES[mode]) / divisor, x.new_full(x.shape[:-3], float(size)), divisor
    count = valid.sum(-1).to(x.dtype) * per_sequence
    masked = torch.where(valid[..., None, None], x, 0.0)
    wide = count.clamp(min=1.0).unsqueeze(-1)
    return masked.sum(_AXES[mode]) / wide, count, wide


def _activate(x: Tensor, name: str) -> Tensor:
    """Apply the activation in place."""
    if name == "relu":
        return x.relu_()
    if name == "leaky_relu":
        return torch.nn.functional.leaky_relu(x, LEAKY_SLOPE, inplace=True)
    return tanh_of(x)


def tanh_of(x: Tensor) -> Tensor:
    """Return tanh(x); see :func:`pfrnn.functional.linear.tanh`."""
    if x.dtype == torch.float32 and x.device.type == "cpu":
        return (x + x).sigmoid_().mul_(2.0).sub_(1.0)
    return torch.tanh(x)


class NormedGrad(NamedTuple):
    """Gradients of the candidate before batch norm, of gain and of shift."""

    raw: Tensor
    gain: Tensor | None
    shift: Tensor | None


def normed_backward(
    grad: Tensor,
    normed: Normed,
    gain: Tensor | None,
    valid: Tensor | None,
    switches: FilterSwitches,
    own_statistics: bool,
) -> NormedGrad:
    """Go back through activation and batch norm; ``grad`` is overwritten."""
    grad = _activation_backward(grad, normed.activated, switches.activation)
    mode = switches.batch_norm
    if mode == "none":
        return NormedGrad(grad, None, None)
    if normed.native:
        rows, eps = normed.centred.flatten(0, 1), switches.norm_eps
        backward = torch.ops.aten.native_batch_norm_backward
        saved = (gain, None, None, normed.scale, normed.inverse, True, eps, [True, True, True])
        raw, to_gain, to_shift = backward(grad.flatten(0, 1), rows, *saved)
        return NormedGrad(raw.view_as(grad), to_gain, to_shift)
    axes = _AXES[mode]
    centred, scale, inverse = normed.centred, normed.scale, normed.inverse
    product = grad * centred
    dot = product.sum(axes)
    total = grad.sum(axes)
    grad_gain = None if gain is None else dot * inverse
    wide = spread(scale, mode)
    if not own_statistics:
        return NormedGrad(grad.mul_(wide), grad_gain, total)
    mask = None if valid is None else valid[..., None, None]
    per_sequence = grad.shape[-2] if mode == "feature" else grad.shape[-1]
    if valid is None or mask is None:
        size: Any = max(grad.shape[-3] * per_sequence, 1)
        inside = total
    else:
        size = (valid.sum(-1).to(grad.dtype) * per_sequence).clamp(min=1.0).unsqueeze(-1)
        inside = torch.where(mask, grad, 0.0).sum(axes)
    # Mean and variance depend on every value: take out the gradient's mean and its projection.
    level = spread(scale * inside / size, mode)
    slope = spread(scale * inverse.square() * dot / size, mode)
    removed = torch.addcmul(level, centred, slope)
    raw = grad.mul_(wide).sub_(removed)
    if mask is not None:
        raw = torch.where(mask, raw, 0.0)
    return NormedGrad(raw, grad_gain, total)


def _activation_backward(grad: Tensor, activated: Tensor, name: str) -> Tensor:
    ops, out = torch.ops.aten, grad
    if name == "relu":
        ops.threshold_backward.grad_input(grad, activated, 0.0, grad_input=out)
    elif name == "leaky_relu":
        ops.leaky_relu_backward.grad_input(grad, activated, LEAKY_SLOPE, True, grad_input=out)
    else:
        ops.tanh_backward.grad_input(grad, activated, grad_input=out)
    return out


def noisy_candidate(raw: Tensor, raw_scale: Tensor, noise: Tensor, kind: str) -> Tensor:
    """Return raw + noise * scale as a new tensor."""
    if kind == "linear":
        return torch.addcmul(raw, noise, raw_scale)
    return torch.addcmul(raw, noise, torch.nn.functional.softplus(raw_scale))


def scale_backward(grad: Tensor, raw_scale: Tensor, noise: Tensor, kind: str, out: Tensor) -> None:
    """Write the gradient of the raw noise scale into ``out``."""
    torch.mul(grad, noise, out=out)
    if kind == "softplus":
        out.mul_(torch.sigmoid(raw_scale))


def noise_backward(grad: Tensor, raw_scale: Tensor, kind: str) -> Tensor:
    """Return the gradient of the noise."""
    return grad * (raw_scale if kind == "linear" else torch.nn.functional.softplus(raw_scale))
