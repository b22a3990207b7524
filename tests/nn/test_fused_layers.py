"""Layers on the fused kernels have the plain path's numbers (no GPU: Triton's interpreter)."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

from pfrnn.errors import ConfigError
from pfrnn.nn import PFGRU, PFLSTM

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# float32 on both sides; a smooth activation, since ReLU's kink turns rounding into a jump.
BOUND = 2e-5
CELLS = pytest.mark.parametrize("make", [PFLSTM, PFGRU])


@pytest.fixture(autouse=True)
def fused(monkeypatch):
    monkeypatch.setenv("PFRNN_KERNELS", "fused")


def layer_of(make, **options):
    torch.manual_seed(0)
    options = {"num_particles": 4, "activation": "tanh"} | options
    return make(3, 8, **options).to(DEVICE)


def inputs(steps=3, sequences=2):
    return torch.randn(steps, sequences, 3, generator=torch.Generator().manual_seed(1)).to(DEVICE)


def numbers(layer, x):
    """Noise and uniforms of a call."""
    generator = torch.Generator().manual_seed(2)
    shape = (layer.num_layers, *x.shape[:2], layer.num_particles)
    noise = torch.randn(*shape, layer.hidden_size, generator=generator)
    return {
        "noise": noise.to(DEVICE),
        "uniforms": torch.rand(shape, generator=generator).to(DEVICE),
    }


def both_ways(monkeypatch, layer, x, call):
    """Outputs, gradients and buffers of the kernels, and of the plain path."""
    found = []
    for way in ("fused", "plain"):
        monkeypatch.setenv("PFRNN_KERNELS", way)
        own, given = copy.deepcopy(layer), x.clone().requires_grad_()
        y, state = call(own, given)
        y = getattr(y, "data", y)
        (y.square().sum() + state.hidden.sum() + 0.1 * state.log_weights.sum()).backward()
        parts = {"y": y, "x": given.grad, **state._asdict(), **dict(own.named_buffers())}
        parts |= {f"d {name}": p.grad for name, p in own.named_parameters()}
        found.append({name: part for name, part in parts.items() if part is not None})
    return found


def check(monkeypatch, layer, x, call):
    fast, slow = both_ways(monkeypatch, layer, x, call)
    assert fast.keys() == slow.keys()
    for name, value in slow.items():
        gap = (fast[name] - value).abs().max() / value.abs().max().clamp(min=1e-12)
        assert float(gap.detach()) < BOUND, name


@CELLS
@pytest.mark.parametrize("training", [True, False])
def test_two_layers_are_the_plain_ones(monkeypatch, make, training):
    layer, x = layer_of(make, num_layers=2).train(training), inputs()
    check(monkeypatch, layer, x, lambda own, given: own(given, **numbers(own, x)))


@pytest.mark.parametrize(
    "options",
    [{"batch_norm": "none"}, {"statistics": "per_time", "max_steps": 2}, {"resampling": "none"}],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_options_are_the_plain_ones(monkeypatch, options):
    layer, x = layer_of(PFLSTM, **options), inputs()
    given_numbers = numbers(layer, x)
    if options.get("resampling") == "none":
        given_numbers.pop("uniforms")
    check(monkeypatch, layer, x, lambda own, given: own(given, **given_numbers))


@CELLS
def test_packed_input_with_a_state_is_the_plain_one(monkeypatch, make):
    layer, x = layer_of(make), inputs(4, 2)
    monkeypatch.setenv("PFRNN_KERNELS", "plain")
    with torch.no_grad():
        state = layer(x[:1])[1]

    def call(own, given):
        packed = pack_padded_sequence(given, torch.tensor([4, 2]))
        return own(packed, state, bptt=2, **numbers(own, x))

    check(monkeypatch, layer, x, call)


@CELLS
def test_noise_follows_torchs_seed(make):
    layer, x = layer_of(make), inputs()
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(layer(x)[0])
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_the_filters_form(monkeypatch):
    layer, x = layer_of(PFLSTM), inputs()
    found = layer.filter(x, **numbers(layer, x))
    monkeypatch.setenv("PFRNN_KERNELS", "plain")
    expected = layer.filter(x, **numbers(layer, x))
    assert torch.equal(found.ancestors, expected.ancestors)
    torch.testing.assert_close(found.ess, expected.ess)
    torch.testing.assert_close(found.particles, expected.particles, rtol=1e-4, atol=1e-6)


def test_products_follow_torchs_setting():
    layer, x = layer_of(PFLSTM), inputs()
    before = torch.get_float32_matmul_precision()
    try:
        for setting, word in (("highest", "ieee"), ("high", "tf32")):
            torch.set_float32_matmul_precision(setting)
            assert layer.path(x) == ("fused", f"Triton kernels, {word} products")
    finally:
        torch.set_float32_matmul_precision(before)


def test_the_path_says_what_the_kernels_cannot(monkeypatch):
    monkeypatch.delenv("PFRNN_KERNELS")
    x = inputs()
    for options, words in (
        ({"batch_norm": "particle_slot"}, "particle slot"),
        ({"ess_threshold": 0.5}, "effective sample size"),
        ({"dtype": torch.float64}, "float32"),
    ):
        layer = PFLSTM(3, 8, num_particles=4, device=DEVICE, **options)
        found = layer.path(x.to(options.get("dtype", torch.float32)))
        assert found.name == "plain"
        assert words in found.reason or "not on cpu" in found.reason
    layer = layer_of(PFLSTM)
    layer.compile_step("eager")
    assert "compile_step" in layer.path(x).reason
    monkeypatch.setenv("PFRNN_KERNELS", "plain")
    assert layer_of(PFLSTM).path(x) == ("plain", "PFRNN_KERNELS=plain")
    monkeypatch.setenv("PFRNN_KERNELS", "fused")
    with pytest.raises(ConfigError, match=r"PFRNN_KERNELS=fused, but .*compile_step"):
        layer.path(x)


def test_autocast_filters_in_float32():
    layer, x = layer_of(PFLSTM), inputs()
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        y, state = layer(x)
    assert (y.dtype, state.hidden.dtype) == (torch.bfloat16, torch.float32)


def test_checkpointing_draws_the_same_numbers():
    layer, x = layer_of(PFGRU), inputs()
    grads = []
    for wrapped in (False, True):
        torch.manual_seed(3)
        own = copy.deepcopy(layer)
        if wrapped:
            y, _ = torch.utils.checkpoint.checkpoint(own, x, use_reentrant=False)
        else:
            y, _ = own(x)
        y.square().sum().backward()
        grads.append(own.cells[0].weight_recurrent.grad)
    assert torch.equal(*grads)


def test_compilers_see_one_operator():
    layer, x = layer_of(PFLSTM), inputs()
    seen = []

    def backend(graph, example):
        seen.append(sum("pfrnn" in str(node.target) for node in graph.graph.nodes))
        return graph.forward

    torch.compile(layer, fullgraph=True, backend=backend)(x)
    assert seen == [1]
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    compiled(x)[0].sum().backward()
    assert layer.cells[0].weight_recurrent.grad.isfinite().all()
    exported = torch.export.export(layer.eval(), (x,))
    assert sum("pfrnn.filter" in str(node.target) for node in exported.graph.nodes) == 1


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE != "cuda", reason="needs a CUDA device")
@CELLS
def test_gpu_a_graph_holds_a_call_and_draws_new_numbers(make):
    layer, x = layer_of(make, num_particles=30), inputs(8, 4).requires_grad_()

    class Output(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(x)[0]

    call = torch.cuda.make_graphed_callables(Output(), (x,))
    first = call(x).detach().clone()
    call(x).sum().backward()
    assert not torch.equal(first, call(x))
    assert x.grad.isfinite().all()
