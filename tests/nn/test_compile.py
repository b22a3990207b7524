"""Cells and layers under torch.compile, torch.export, autocast, double, on CUDA."""

from __future__ import annotations

import shutil

import pytest
import torch

from pfrnn.nn import PFGRU, PFLSTM, PFGRUCell, PFLSTMCell, PFState

T, N, D, K, H = 2, 3, 3, 5, 6
CELLS, LAYERS = [PFLSTMCell, PFGRUCell], [PFLSTM, PFGRU]
FIDELITIES = ["paper", "authors_code"]


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.manual_seed(0)
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def noise_of(*shape):
    return torch.randn(*shape, K, H), torch.rand(*shape, K)


@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("cls", CELLS)
def test_cell_compiles_in_one_graph(cls, training, fidelity):
    cell = cls(D, H, num_particles=K, fidelity=fidelity).train(training)
    compiled = torch.compile(cell, fullgraph=True, backend="aot_eager")
    x, state = torch.randn(N, D), cell.initial_state(N)
    noise, uniforms = noise_of(N)
    want, got = (c(x, state, noise, uniforms) for c in (cell, compiled))
    torch.testing.assert_close(got.hidden, want.hidden)
    torch.testing.assert_close(got.log_weights, want.log_weights)
    assert compiled(x).hidden.shape == (N, K, H)  # draws inside the graph


@pytest.mark.parametrize("layers", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("cls", LAYERS)
def test_layer_compiles_in_one_graph(cls, layers):
    layer = cls(D, H, layers, num_particles=K)
    start = {k: v.clone() for k, v in layer.state_dict().items()}
    x, (noise, uniforms) = torch.randn(T, N, D), noise_of(layers, T, N)
    results = []
    for call in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        layer.load_state_dict(start)
        layer.zero_grad()
        output, state = call(x, noise=noise, uniforms=uniforms)
        output.square().sum().backward()
        grads = [p.grad for p in layer.parameters() if p.grad is not None]
        results.append([output.detach(), state.hidden.detach(), *layer.buffers(), *grads])
        results[-1] = [part.clone() for part in results[-1]]
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert compiled(x, num_particles=3)[1].hidden.shape == (layers, N, 3, H)


@pytest.mark.parametrize("cls", LAYERS)
def test_compiled_step_serves_every_length(cls):
    layer = cls(D, H, 2, num_particles=K).eval()
    for steps in (2, 5):
        x, (noise, uniforms) = torch.randn(steps, N, D), noise_of(2, steps, N)
        layer.compile_step(None)
        want, _ = layer(x, noise=noise, uniforms=uniforms)
        layer.compile_step("aot_eager")
        got, _ = layer(x, noise=noise, uniforms=uniforms)
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("cls", CELLS)
def test_cell_exports_with_dynamic_batch(cls):
    cell = cls(D, H, num_particles=K).eval()
    state, (noise, uniforms) = cell.initial_state(N), noise_of(N)
    batch = torch.export.Dim("batch", min=2, max=512)
    first = {0: batch}
    shapes = (first, PFState(first, first if state.cell is not None else None, first), first, first)
    args = (torch.randn(N, D), state, noise, uniforms)
    program = torch.export.export(cell, args, dynamic_shapes=shapes)
    for size in (N, 7):
        x, state = torch.randn(size, D), cell.initial_state(size)
        noise, uniforms = noise_of(size)
        got = program.module()(x, state, noise, uniforms)
        torch.testing.assert_close(got.hidden, cell(x, state, noise, uniforms).hidden)


@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize("cls", LAYERS)
def test_autocast_keeps_log_weights_finite(cls, fidelity):
    layer = cls(D, H, 2, num_particles=K, fidelity=fidelity)
    x = 30 * torch.randn(20, N, D)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer.filter(x)
        output, _ = layer(x)
    assert found.log_weights.dtype == torch.float32
    assert torch.all(torch.isfinite(found.log_weights))
    torch.testing.assert_close(found.log_weights.exp().sum(-1), torch.ones(20, N))
    output.float().square().mean().backward()
    grads = [p.grad for p in layer.parameters() if p.grad is not None]
    assert all(torch.all(torch.isfinite(g)) for g in grads)


@pytest.mark.parametrize("cls", LAYERS)
def test_half_precision_layer(cls):
    layer = cls(D, H, num_particles=K, dtype=torch.bfloat16)
    output, state = layer(torch.randn(T, N, D, dtype=torch.bfloat16))
    assert output.dtype == state.hidden.dtype == torch.bfloat16
    assert state.log_weights.dtype == torch.float32
    assert torch.all(torch.isfinite(state.log_weights))


@pytest.mark.gpu
@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize("cls", LAYERS)
def test_cpu_and_cuda_agree(cls, fidelity):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    layer = cls(D, H, 2, num_particles=K, fidelity=fidelity).double().eval()
    twin = cls(D, H, 2, num_particles=K, fidelity=fidelity).double().eval().cuda()
    twin.load_state_dict(layer.state_dict())
    x = torch.randn(50, N, D, dtype=torch.float64)
    noise, uniforms = (part.double() for part in noise_of(2, 50, N))
    # In double, so that rounding flips no ancestor: then all must agree.
    given = {"noise": noise, "uniforms": uniforms}
    hx = PFState(
        torch.rand(2, N, K, H).double(),
        torch.rand(2, N, K, H).double() if cls is PFLSTM else None,
        torch.zeros(2, N, K).double().log_softmax(-1),
    )
    want = layer.filter(x, hx, **given)
    moved = PFState(*[None if part is None else part.cuda() for part in hx])
    got = twin.filter(x.cuda(), moved, **{k: v.cuda() for k, v in given.items()})
    assert torch.equal(got.ancestors.cpu(), want.ancestors)
    torch.testing.assert_close(got.particles.cpu(), want.particles, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("cls", LAYERS)
def test_inductor_step_equals_eager(cls):
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("torch.compile's default backend needs a C++ compiler")
    layer = cls(D, H, num_particles=K)
    x, (noise, uniforms) = torch.randn(6, N, D), noise_of(1, 6, N)
    results = []
    for backend in (None, "inductor"):
        layer.zero_grad()
        layer.compile_step(backend)
        output, _ = layer(x, noise=noise, uniforms=uniforms)
        output.square().sum().backward()
        grads = [p.grad.clone() for p in layer.parameters() if p.grad is not None]
        results.append([output.detach(), *grads])
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
