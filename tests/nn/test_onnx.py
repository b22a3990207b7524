"""A layer exported to ONNX computes what it computes in torch, given noise and uniforms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pfrnn.nn import PFGRU, PFLSTM


class Given(torch.nn.Module):
    """A layer as a function of tensors alone."""

    def __init__(self, layer, state):
        super().__init__()
        self.layer, self.state = layer, state

    def forward(self, x, noise, uniforms):
        output, state = self.layer(x, self.state, noise=noise, uniforms=uniforms)
        return output, state.hidden, state.log_weights


@pytest.mark.parametrize("options", [{}, {"resampling": "systematic"}], ids=str)
@pytest.mark.parametrize("cls", [PFLSTM, PFGRU])
def test_the_export_records_no_searchsorted(cls, options):
    layer, x = cls(3, 8, num_particles=5, **options).eval(), torch.randn(4, 2, 3)
    given = {"noise": torch.randn(1, 4, 2, 5, 8), "uniforms": torch.rand(1, 4, 2, 5)}
    program = torch.export.export(layer, (x,), given)
    assert "searchsorted" not in str(program.graph)
    torch.testing.assert_close(program.module()(x, **given)[0], layer(x, **given)[0])


@pytest.mark.nightly
@pytest.mark.parametrize("options", [{}, {"fidelity": "authors_code"}], ids=str)
@pytest.mark.parametrize("cls", [PFLSTM, PFGRU])
def test_onnxruntime_agrees(cls, options, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    layer, x = cls(3, 8, num_particles=5, **options).eval(), torch.randn(4, 2, 3)
    given = (x, torch.randn(1, 4, 2, 5, 8), torch.rand(1, 4, 2, 5))
    module = Given(layer, tuple(layer(x)[1].detach())).eval()
    torch.onnx.export(module, given, dynamo=True).save(tmp_path / "layer.onnx")
    session = runtime.InferenceSession(tmp_path / "layer.onnx")
    names = [entry.name for entry in session.get_inputs()]
    got = session.run(None, {n: one.numpy() for n, one in zip(names, given, strict=True)})
    for found, want in zip(got, module(*given), strict=True):
        np.testing.assert_allclose(found, want.detach().numpy(), rtol=0, atol=1e-6)
