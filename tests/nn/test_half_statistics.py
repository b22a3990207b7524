"""Running statistics of half-precision layers: sums and counts pass float16's largest number."""

from __future__ import annotations

import copy

import pytest
import torch

from pfrnn import PFGRU, PFLSTM


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layer", [PFLSTM, PFGRU])
@pytest.mark.parametrize(
    ("steps", "sequences", "scale"), [(60, 64, 1.0), (3, 700, 1.0), (4, 9, 9.0)]
)
def test_they_are_those_of_float32(layer, dtype, steps, sequences, scale):
    """60 x 64 x 30 values a feature, 700 x 30 in a step, and large ones."""
    wide = layer(3, 4, num_particles=30)
    narrow, bits = copy.deepcopy(wide).to(dtype), torch.finfo(dtype).eps
    x = torch.randn(steps, sequences, 3) * scale
    ends = []
    for one in (wide, narrow):
        kind = next(one.parameters()).dtype
        noise = torch.zeros(1, steps, sequences, 30, 4, dtype=kind)
        uniforms = torch.full((1, steps, sequences, 30), 0.5, dtype=kind)
        one(x.to(kind), noise=noise, uniforms=uniforms)
        ends.append({name: value.double() for name, value in one.named_buffers()})
        assert one.eval()(x.to(kind), noise=noise, uniforms=uniforms)[0].isfinite().all()
    assert any("variance" in name for name in ends[0])
    for name, value in ends[0].items():
        assert ends[1][name].isfinite().all(), name
        # What the inputs, weights and states of 11 and 8 bits leave of a mean and a variance.
        torch.testing.assert_close(ends[1][name], value, rtol=16 * bits, atol=4 * bits)


def test_a_step_of_more_values_than_float16_counts():
    """2,200 x 30 in one step, and a set of statistics for it."""
    layer = PFLSTM(3, 4, num_particles=30, statistics="per_time", max_steps=1).half()
    layer(torch.randn(1, 2200, 3, dtype=torch.float16))
    for name, value in layer.named_buffers():
        assert value.isfinite().all(), name
    assert all(value.ne(1).all() for name, value in layer.named_buffers() if "variance" in name)
