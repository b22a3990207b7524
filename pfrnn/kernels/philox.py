"""Counter-based random numbers (Philox 4x32-10; Salmon et al. 2011) for the filter's noise.

A number depends on (member seed; training step, stream, time, sequence, particle, unit) and on
nothing else: not on the member's place in a block, nor on the other members. The key is the
member's 64-bit seed. The four counter words are: the place in the tile, (sequence * K + particle)
* ceil(units / 4) + unit / 4; the time step; the low 32 bits of the training step; the stream and
the high bits of the training step. One counter gives four numbers, so no number is used twice.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pfrnn.kernels.elementary import cosine, log2, root, sine

NOISE_STREAM = 0
UNIFORM_STREAM = 1


@triton.jit
def counter_words(place, time, step, stream: tl.constexpr):
    """Return the four 32-bit counter words, each of the shape of ``place``."""
    zero = place * 0
    low = (step & 0xFFFFFFFF).to(tl.uint32).to(tl.int32, bitcast=True)
    high = (((step >> 32) & 0xFFFFFF) * 256 + stream).to(tl.int32)
    return place, zero + time, zero + low, zero + high


@triton.jit
def _unit_interval(bits):
    """Map 32 random bits to (0, 1]: the centre of each of the 2^32 cells, rounded to float."""
    return (bits.to(tl.float32) + 0.5) * 2.3283064365386963e-10


@triton.jit
def _normal_pair(bits_a, bits_b):
    """Two independent standard normals (Box and Muller 1958) from two words of random bits."""
    # -2 ln u; the approximate logarithm may pass 0 by its rounding error when u is near 1.
    square = tl.maximum(-1.3862943611198906 * log2(_unit_interval(bits_a)), 0.0)
    angle = bits_b.to(tl.int32, bitcast=True).to(tl.float32) * 1.4629180792671596e-09
    radius = root(square)
    return radius * cosine(angle), radius * sine(angle)


@triton.jit
def normal_tile(seed, step, time, row, H: tl.constexpr, HP: tl.constexpr):
    """Standard normals of a tile of particles.

    Args:
        seed: the member's 64-bit seed.
        step: the training step.
        time: the time step.
        row: [R] int32, sequence * K + particle.
        H: units.
        HP: units padded to a power of two, at least 16.

    Returns:
        [R, HP] float32; columns past H hold numbers that belong to no unit.
    """
    quads: tl.constexpr = (H + 3) // 4
    quad = tl.arange(0, HP // 4)
    place = row[:, None] * quads + quad[None, :]
    c0, c1, c2, c3 = counter_words(place, time, step, 0)
    b0, b1, b2, b3 = tl.philox(seed, c0, c1, c2, c3)
    n0, n1 = _normal_pair(b0, b1)
    n2, n3 = _normal_pair(b2, b3)
    # join appends an axis: [R, HP/4, i, j] holds normal 2 j + i, so the unit is 4 quad + 2 i + j.
    return tl.reshape(tl.join(tl.join(n0, n1), tl.join(n2, n3)), [row.shape[0], HP])


@triton.jit(do_not_specialize=["M", "N"])
def fill_normal_kernel(
    out, seeds, step_, M, N, K: tl.constexpr, H: tl.constexpr, HP: tl.constexpr, R: tl.constexpr
):
    """Fill out (T, M, N, K, H); one program a (tile of rows, member, time)."""
    m = tl.program_id(1)
    time = tl.program_id(2)
    row = tl.program_id(0) * R + tl.arange(0, R)
    unit = tl.arange(0, HP)
    noise = normal_tile(tl.load(seeds + m), tl.load(step_), time, row, H, HP)
    base = out + (time.to(tl.int64) * M + m) * N * K * H
    mask = (row < N * K)[:, None] & (unit < H)[None, :]
    tl.store(base + row[:, None] * H + unit[None, :], noise, mask=mask)


@triton.jit(do_not_specialize=["M", "rows"])
def fill_uniform_kernel(out, seeds, step_, M, rows, R: tl.constexpr):
    """Fill out (T, M, rows) with uniforms in [0, 1); four rows share a counter."""
    m = tl.program_id(1)
    time = tl.program_id(2)
    place = tl.program_id(0) * R + tl.arange(0, R)
    c0, c1, c2, c3 = counter_words(place, time, tl.load(step_), 1)
    b0, b1, b2, b3 = tl.philox(tl.load(seeds + m), c0, c1, c2, c3)
    base = out + (time.to(tl.int64) * M + m) * rows
    # 24 bits: every value is a float below 1.
    scale = 5.9604644775390625e-08
    row = place * 4
    tl.store(base + row, (b0 >> 8).to(tl.float32) * scale, mask=row < rows)
    tl.store(base + row + 1, (b1 >> 8).to(tl.float32) * scale, mask=row + 1 < rows)
    tl.store(base + row + 2, (b2 >> 8).to(tl.float32) * scale, mask=row + 2 < rows)
    tl.store(base + row + 3, (b3 >> 8).to(tl.float32) * scale, mask=row + 3 < rows)
