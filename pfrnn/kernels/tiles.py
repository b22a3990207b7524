"""What the forward and the backward kernel share, on tiles in registers.

A program owns R rows of one member: S = R / KP sequences of KP particles each (KP = K padded to a
power of two). Row r is sequence r // KP, particle r % KP. Vectors over particles have the shape
[S, KP], so that sums over a sequence's particles are sums over the second axis.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pfrnn.kernels.elementary import tanh

# Codes of FilterSwitches.resampling, .activation and of the noise's source.
RESAMPLE_NONE, RESAMPLE_SOFT, RESAMPLE_MULTINOMIAL, RESAMPLE_SYSTEMATIC = 0, 1, 2, 3
RELU, LEAKY_RELU, TANH = 0, 1, 2
NOISE_NONE, NOISE_GIVEN, NOISE_PHILOX = 0, 1, 2


@triton.jit
def activate(x, ACT: tl.constexpr):
    """ReLU (0), leaky ReLU (1) or tanh (2)."""
    if ACT == 0:
        # What is no number stays none: a broken member must not look sound.
        return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif ACT == 1:
        return tl.where(x > 0.0, x, 0.01 * x)
    else:
        return tanh(x)


@triton.jit
def activate_slope(x, y, ACT: tl.constexpr):
    """Derivative of the activation at x, whose value is y."""
    if ACT == 0:
        return tl.where(x > 0.0, 1.0, 0.0)
    elif ACT == 1:
        return tl.where(x > 0.0, 1.0, 0.01)
    else:
        return 1.0 - y * y


@triton.jit
def load_tile(base, row, unit, mask, STRIDE: tl.constexpr):
    """Load [R, HP] from rows of a matrix; 0 outside the mask."""
    return tl.load(base + row[:, None] * STRIDE + unit[None, :], mask=mask, other=0.0)


@triton.jit
def load_input(base, n2, N, column, unit, E: tl.constexpr, H: tl.constexpr, KP: tl.constexpr):
    """Load a block of the projected input, [S, HP], and repeat it over the particles: [R, HP].

    Read once a sequence: addresses for every particle would fill the registers.
    """
    at = base + n2[:, None] * E + (column + unit)[None, :]
    x = tl.load(at, mask=(n2 < N)[:, None] & (unit < H)[None, :], other=0.0)
    S: tl.constexpr = x.shape[0]
    HP: tl.constexpr = x.shape[1]
    return tl.reshape(tl.broadcast_to(x[:, None, :], [S, KP, HP]), [S * KP, HP])


@triton.jit
def store_tile(base, value, row, unit, mask, STRIDE: tl.constexpr):
    """Store [R, HP] to rows of a matrix."""
    tl.store(base + row[:, None] * STRIDE + unit[None, :], value, mask=mask)


@triton.jit
def matmul(a, b, PREC: tl.constexpr):
    """Product with float32 accumulation of ieee, tf32 or tf32x3 (nearly float32) factors."""
    return tl.dot(a, b, input_precision=PREC)


@triton.jit
def product(
    x, x_base, x_row, x_unit, row, live, w, desc, first, g: tl.constexpr,
    H: tl.constexpr, HP: tl.constexpr, BK: tl.constexpr, PREC: tl.constexpr, FETCH: tl.constexpr,
):  # fmt: skip
    """Multiply a tile by a member's weight block g: out[r, n] = sum_k x[r, k] w[n * H + k].

    x is [R, HP], zero past H, and is used when the block fits (HP <= BK). ``x_base`` is where the
    same tile lies in memory, at row numbers ``row`` (``live`` marks those that are not padding)
    with strides ``x_row`` and ``x_unit``; larger blocks are read from there in pieces of BK. The
    block is H x H, contiguous along the summed axis, as tensor cores want it. ``w`` points to the
    member's first block, which ``desc`` calls ``first`` (:mod:`pfrnn.kernels.fetch`).
    """
    n = tl.arange(0, HP)
    w += g * H * H
    if FETCH:
        return matmul(x, tl.trans(desc.load([(first + g) * H, 0])), PREC)
    elif HP <= BK:
        k = tl.arange(0, HP)
        if H == HP:
            block = tl.load(w + k[:, None] + n[None, :] * H)
        else:
            inside = (k < H)[:, None] & (n < H)[None, :]
            block = tl.load(w + k[:, None] + n[None, :] * H, mask=inside, other=0.0)
        return matmul(x, block, PREC)
    else:
        out = tl.zeros([row.shape[0], HP], tl.float32)
        for k0 in range(0, HP, BK):
            k = k0 + tl.arange(0, BK)
            at = x_base + row[:, None] * x_row + k[None, :] * x_unit
            part = tl.load(at, mask=live[:, None] & (k < H)[None, :], other=0.0).to(tl.float32)
            inside = (k < H)[:, None] & (n < H)[None, :]
            block = tl.load(w + k[:, None] + n[None, :] * H, mask=inside, other=0.0)
            out += matmul(part, block, PREC)
        return out


@triton.jit
def comes_last(counter, P):
    """Count this program in; whether it is the last of the launch's P that share the counter.

    What the others stored before they were counted is then there to be read, past the L1 cache.
    The counter begins at 0 and is never reset: every launch adds P.
    """
    # One thread counts: the others must have stored.
    tl.debug_barrier()
    before = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
    return before % P == P - 1


@triton.jit
def moments(part, count, P, HP: tl.constexpr, PB: tl.constexpr, CACHE: tl.constexpr):
    """Combine the programs' sums and centred squares (Chan et al. 1983) in a fixed order.

    Means are taken relative to the first program's, so that one pass doesn't cancel. ``part`` is
    [P, 2, HP], sum and sum of squares about the program's own mean; ``count`` is [P], the values
    behind each; PB programs are read at once, from the ``CACHE`` named. Returns mean and biased
    variance, [HP].
    """
    unit = tl.arange(0, HP)
    origin = tl.load(part + unit, cache_modifier=CACHE) / tl.maximum(tl.load(count), 1.0)
    total = 0.0
    first = tl.zeros([HP], tl.float32)
    second = tl.zeros([HP], tl.float32)
    for p in range(0, P, PB):
        i = p + tl.arange(0, PB)
        at = part + i[:, None] * (2 * HP) + unit[None, :]
        n = tl.load(count + i, mask=i < P, other=0.0)
        sums = tl.load(at, mask=(i < P)[:, None], other=0.0, cache_modifier=CACHE)
        own = tl.load(at + HP, mask=(i < P)[:, None], other=0.0, cache_modifier=CACHE)
        gap = sums * (1.0 / tl.maximum(n, 1.0))[:, None] - origin[None, :]
        weighted = n[:, None] * gap
        first += tl.sum(weighted, 0)
        second += tl.sum(own + weighted * gap, 0)
        total += tl.sum(n, 0)
    scale = 1.0 / tl.maximum(total, 1.0)
    shift = first * scale
    return origin + shift, tl.maximum(second * scale - shift * shift, 0.0)


@triton.jit
def total_pair(part, P, HP: tl.constexpr, PB: tl.constexpr, CACHE: tl.constexpr):
    """Add the programs' two vectors, [P, 2, HP], in a fixed order, from the CACHE named."""
    unit = tl.arange(0, HP)
    first = tl.zeros([HP], tl.float32)
    second = tl.zeros([HP], tl.float32)
    for p in range(0, P, PB):
        i = p + tl.arange(0, PB)
        at = part + i[:, None] * (2 * HP) + unit[None, :]
        one = tl.load(at, mask=(i < P)[:, None], other=0.0, cache_modifier=CACHE)
        two = tl.load(at + HP, mask=(i < P)[:, None], other=0.0, cache_modifier=CACHE)
        first += tl.sum(one, 0)
        second += tl.sum(two, 0)
    return first, second


@triton.jit
def normalized(log_weights, inside):
    """Normalise [S, KP] log-weights over the particles; -1e30 where ``inside`` is False."""
    floored = tl.maximum(log_weights, -1e30, propagate_nan=tl.PropagateNan.ALL)
    x = tl.where(inside, floored, -1e30)
    top = tl.max(x, 1)[:, None]
    # Padding must not count, also where all weights of a sequence are at the floor.
    total = tl.sum(tl.where(inside, tl.exp(x - top), 0.0), 1)[:, None]
    return tl.where(inside, x - top - tl.log(total), -1e30)


@triton.jit
def mixture(log_weights, inside, alpha, K: tl.constexpr, MODE: tl.constexpr):
    """Return weights p and proposal q, [S, KP]: q = alpha p + (1 - alpha) / K for soft, else p."""
    p = tl.where(inside, tl.exp(log_weights), 0.0)
    if MODE == 1:
        q = tl.where(inside, alpha * p + (1.0 - alpha) / K, 0.0)
    else:
        q = p
    return p, q


@triton.jit
def draw(q, u, K: tl.constexpr, KP: tl.constexpr):
    """Ancestors by inverting the cumulative sum; never a particle of probability 0.

    Args:
        q: [S, KP] probabilities, 0 past K.
        u: [S, KP] in [0, 1).
        K: particles.
        KP: particles padded to a power of two.

    Returns:
        [S, KP] int32 in [0, K): the number of cumulative sums that are at most u.
    """
    cumulative = tl.cumsum(q, 1)
    # Rounding may leave the last sum below u: the draw then falls on the last positive particle.
    last = tl.max(cumulative, 1)[:, None]
    target = tl.minimum(u, last * (1.0 - 1.1920929e-07))
    below = cumulative[:, None, :] <= target[:, :, None]
    return tl.minimum(tl.sum(below.to(tl.int32), 2), K - 1)


@triton.jit
def pick(values, ancestors, KP: tl.constexpr):
    """Take values[s, ancestors[s, k]], all [S, KP]: exact, one term of each sum is not zero."""
    j = tl.arange(0, KP)
    chosen = ancestors[:, :, None] == j[None, None, :]
    return tl.sum(tl.where(chosen, values[:, None, :], 0.0), 2)


@triton.jit
def collect(values, ancestors, KP: tl.constexpr):
    """The transpose of pick: for each j the sum of values over its children, in index order."""
    j = tl.arange(0, KP)
    chosen = ancestors[:, :, None] == j[None, None, :]
    return tl.sum(tl.where(chosen, values[:, :, None], 0.0), 1)
