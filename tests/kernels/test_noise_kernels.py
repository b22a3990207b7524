"""The counter-based numbers: distribution, independence of the population, no number used twice."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

import triton
import triton.language as tl

from pfrnn.errors import ConfigError
from pfrnn.functional.types import FilterSwitches
from pfrnn.kernels.noise import NoiseKey, fill_normal, fill_uniform, noise_key
from pfrnn.kernels.philox import counter_words
from pfrnn.kernels.sequence import run_pf_fused
from pfrnn.kernels.tuning import Tuning

from .filter_cases import Case, draw

# Two-sided normal quantile of a false-alarm rate of 1e-6, shared by the tests of this file.
Z = 5.0


@triton.jit
def _counters(out, step_, time, rows, quads: tl.constexpr, R: tl.constexpr, Q: tl.constexpr):
    row = tl.program_id(0) * R + tl.arange(0, R)
    quad = tl.arange(0, Q)
    c0, c1, c2, c3 = counter_words(row[:, None] * quads + quad[None, :], time, tl.load(step_), 0)
    at = out + (row[:, None] * Q + quad[None, :]) * 4
    mask = (row < rows)[:, None] & (quad < quads)[None, :]
    tl.store(at, c0, mask=mask)
    tl.store(at + 1, c1, mask=mask)
    tl.store(at + 2, c2, mask=mask)
    tl.store(at + 3, c3, mask=mask)


def test_no_counter_occurs_twice_at_full_size(device):
    """Batch 64, K 30, H 64: every (time, training step, row, four units) has its own words.

    Members differ in the key. The words of one tile are checked one by one; those of other times
    and training steps differ in a word that is theirs alone.
    """
    rows, quads = 64 * 30, 16
    seen = set()
    for time, step in ((0, 0), (99, 0), (0, 1), (99, 2**31), (99, 2**32 + 1), (99, 2**33 + 1)):
        out = torch.full((rows, quads, 4), -1, dtype=torch.int32, device=device)
        where = torch.tensor([step], dtype=torch.int64, device=device)
        _counters[(rows // 64,)](out, where, time, rows, quads=quads, R=64, Q=quads)
        words = out.cpu().numpy().reshape(-1, 4)
        assert len(np.unique(words[:, 0])) == rows * quads
        assert (words[:, 1:] == words[0, 1:]).all()
        assert words[0, 1] == time
        seen.add(tuple(words[0, 1:]))
    assert len(seen) == 6


def test_numbers_do_not_depend_on_the_place_in_the_block(device):
    first = fill_normal(noise_key([11, 12, 13], 4, device), 3, 2, 3, 5)
    second = fill_normal(noise_key([13, 11], 4, device), 3, 2, 3, 5)
    assert torch.equal(first[:, 2], second[:, 0])
    assert torch.equal(first[:, 0], second[:, 1])
    assert not torch.equal(first[:, 0], first[:, 1])


@pytest.mark.parametrize(("seed", "step"), [(11, 5), (12, 4), (11 + 2**40, 4), (11, 4 + 2**40)])
def test_another_seed_or_step_gives_other_numbers(device, seed, step):
    base = fill_normal(noise_key([11], 4, device), 2, 2, 3, 4)
    other = fill_normal(noise_key([seed], step, device), 2, 2, 3, 4)
    assert not (base == other).any()


def _normal_scores(x: np.ndarray) -> dict[str, float]:
    n = len(x)
    return {
        "mean": x.mean() * math.sqrt(n),
        "variance": ((x**2).mean() - 1) * math.sqrt(n / 2),
        "skew": (x**3).mean() * math.sqrt(n / 15),
        "kurtosis": ((x**4).mean() - 3) * math.sqrt(n / 96),
        "neighbours": (x[1:] * x[:-1]).mean() * math.sqrt(n - 1),
        "tail": ((np.abs(x) > 3).mean() - 0.0026998) * math.sqrt(n / 0.0026925),
    }


def test_normals_are_standard_and_independent(device):
    """Six z-scores within 5 (false-alarm rate below 6e-6 in all); the seed is fixed."""
    x = fill_normal(noise_key([1, 2], 3, device), 6, 8, 30, 32).cpu().numpy().ravel()
    scores = _normal_scores(x.astype(np.float64))
    assert max(abs(score) for score in scores.values()) < Z, scores


def test_wrong_normals_would_be_seen(device):
    """The mutant: a number used twice, as an overlapping counter would."""
    x = fill_normal(noise_key([1, 2], 3, device), 6, 8, 30, 32).cpu().numpy().ravel()
    doubled = np.repeat(x[::2], 2).astype(np.float64)
    assert abs(_normal_scores(doubled)["neighbours"]) > Z


def test_uniforms_are_flat_and_below_one(device):
    u = fill_uniform(noise_key([5, 6], 1, device), 20, 10, 33).cpu().numpy()
    assert u.min() >= 0.0
    assert u.max() < 1.0
    n = u.size
    counts, _ = np.histogram(u, bins=20, range=(0, 1))
    chi = ((counts - n / 20) ** 2 / (n / 20)).sum()
    assert chi < 62.0  # 19 degrees of freedom: exceeded once in 2e6
    assert len(np.unique(u)) > 0.99 * n


@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
def test_kernels_draw_the_numbers_of_the_filled_tensor(device, gru):
    """Bit by bit, where nothing is summed over rows or units but inside a product.

    Batch norm and weights hold such sums, whose order on a GPU follows from how the compiler lays
    out a tile: another way for numbers that are loaded than for those that are drawn.
    """
    switches = FilterSwitches(batch_norm="none", resampling="none", activation="tanh")
    inside, given = _with_key_and_tensor(device, gru, switches)
    assert torch.equal(inside.hidden, given.hidden)


def test_a_whole_filter_on_drawn_numbers_is_that_on_filled_ones(device):
    """With sums in another order: to their rounding, which 16 values of size 1 keep below 1e-5."""
    inside, given = _with_key_and_tensor(device, False, FilterSwitches())
    assert torch.equal(inside.ancestors, given.ancestors)
    torch.testing.assert_close(inside.hidden, given.hidden, rtol=0, atol=1e-5)
    torch.testing.assert_close(inside.log_weights, given.log_weights, rtol=0, atol=1e-5)


def _with_key_and_tensor(device, gru, switches):
    """The same filter on numbers drawn in the kernel, and on the tensors filled with them."""
    drawn = draw(Case(gru, 2, 2, 3, 4, 16, device))
    key = noise_key([7, 8], 9, device)
    tuning = Tuning(forward_rows=16, backward_rows=16)
    noise, uniforms = fill_normal(key, 2, 3, 4, 16), fill_uniform(key, 2, 3, 4)
    return [
        run_pf_fused(
            drawn.projected, drawn.state, n, u, drawn.weights, switches, precision="ieee",
            tuning=tuning,
        )
        for n, u in ((key, key), (noise, uniforms))
    ]  # fmt: skip


def test_a_counter_that_would_overflow_is_refused(device):
    key = NoiseKey(torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    with pytest.raises(ConfigError, match="31 bits"):
        fill_normal(key, 1, 2**20, 2**10, 64)
