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
    narrow = copy.deepcopy(wide).to(dtype)
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
        torch.testing.assert_close(ends[1][name], value, rtol=0.1, atol=0.05)
