"""What a newcomer gives a layer or cell that doesn't fit: named, or taken as torch.nn.LSTM does."""

from __future__ import annotations

import io

import pytest
import torch
from torch.autograd import forward_ad

from pfrnn.errors import ConfigError
from pfrnn.nn import (
    PFGRU,
    PFLSTM,
    GRUCell,
    LSTMCell,
    PFGRUCell,
    PFLSTMCell,
    PFState,
    copy_rnn_weights,
)

T, N, D, K, H = 4, 2, 3, 5, 8
LAYERS, CELLS, PLAIN = [PFLSTM, PFGRU], [PFLSTMCell, PFGRUCell], [LSTMCell, GRUCell]


def build(cls, **given):
    return cls(D, H, **({} if cls in PLAIN else {"num_particles": K}), **given)


def plain_state(cls, **made):
    zeros = torch.zeros(1, N, H, **made)
    return (zeros, zeros) if cls is PFLSTM else zeros


@pytest.mark.parametrize("cls", LAYERS)
def test_another_dtype_of_state_or_noise_is_named(cls):
    layer, x, double = build(cls), torch.zeros(T, N, D), {"dtype": torch.float64}
    _, other = build(cls, **double)(x.double())
    for hx in (other, plain_state(cls, **double)):
        with pytest.raises(
            ValueError, match=r"hx: expected dtype torch\.float32, the weights', got"
        ):
            layer(x, hx)
    with pytest.raises(ValueError, match=r"noise: expected dtype .* with \.to\(torch\.float32\)"):
        layer(x, noise=torch.zeros(1, T, N, K, H, **double))
    uniforms = torch.rand(1, T, N, K, **double)  # compared with weights, whatever their dtype
    assert layer(x, uniforms=uniforms)[0].dtype == torch.float32


@pytest.mark.parametrize("cls", LAYERS)
def test_autocast_converts_what_it_can(cls):
    layer, x = build(cls), torch.zeros(T, N, D)
    with torch.autocast("cpu"):
        low, state = layer(x.bfloat16())
        assert low.dtype == torch.bfloat16
        layer(x, state)
        layer(x, plain_state(cls, dtype=torch.float16))
        for wrong in (torch.float64, torch.int64, torch.complex64):
            with pytest.raises(ValueError, match=r"RNN input dtype .* does not match weight dtype"):
                layer(x.to(wrong))
    assert layer(x, state)[0].dtype == torch.float32


@pytest.mark.parametrize("cls", LAYERS)
def test_another_device_is_named(cls):
    layer, x, away = build(cls), torch.zeros(T, N, D), {"device": "meta"}
    words = "{} and parameter tensors are not at the same device, found {} tensor at meta and para"
    for name, args, given in (
        ("input", (x.to("meta"),), {}),
        ("hx", (x, plain_state(cls, **away)), {}),
        ("noise", (x,), {"noise": torch.zeros(1, T, N, K, H, **away)}),
        ("uniforms", (x,), {"uniforms": torch.zeros(1, T, N, K, **away)}),
    ):
        with pytest.raises(RuntimeError, match=words.format(name.capitalize(), name)):
            layer(*args, **given)


@pytest.mark.parametrize("cls", LAYERS)
def test_noise_of_another_shape_is_told_the_whole_shape(cls):
    layer, x = build(cls), torch.zeros(T, N, D)
    _, state = layer(x, num_particles=3)
    for shape, given, want in (
        ((2, T, N, K, H), {}, r"= \(1, 4, 2, 5, 8\), got \(2, 4, 2, 5, 8\)"),
        ((T, N, K, H), {}, r"= \(1, 4, 2, 5, 8\), got \(4, 2, 5, 8\)"),
        ((1, N, T, K, H), {}, r"= \(1, 4, 2, 5, 8\), got \(1, 2, 4, 5, 8\)"),
        ((1, T, N, K, H), {"num_particles": 3}, r"= \(1, 4, 2, 3, 8\), got"),
        ((1, T, N, K, H), {"hx": state}, r"= \(1, 4, 2, 3, 8\), got"),
    ):
        with pytest.raises(ValueError, match=r"noise: expected \(num_layers, T, N, K, H\) " + want):
            layer(x, noise=torch.zeros(shape), **given)
    with pytest.raises(
        ValueError, match=r"uniforms: expected .* = \(1, 4, 2, 5\), got \(1, 4, 2\)"
    ):
        layer(x, uniforms=torch.zeros(1, T, N))


@pytest.mark.parametrize("cls", LAYERS)
def test_a_state_is_detached_and_saved_as_code_for_torchs_layers_does(cls):
    layer, x = build(cls).eval(), torch.zeros(T, N, D)
    _, state = layer(x)
    parts = tuple(None if part is None else part.detach() for part in state)
    stored = io.BytesIO()
    torch.save(parts, stored)
    stored.seek(0)
    outputs = []
    for hx in (state, state.detach(), parts, list(parts), torch.load(stored, weights_only=True)):
        torch.manual_seed(0)
        outputs.append(layer(x, hx)[0])
    assert all(torch.equal(one, outputs[0]) for one in outputs)
    assert not any(part.requires_grad for part in state.detach() if part is not None)
    assert isinstance(state.detach(), PFState)
    assert state.hidden.requires_grad
    for wrong in ((*parts, None), (parts[0], 3, parts[2])):
        with pytest.raises(TypeError, match=r"hx should be .*, or a PFState that a layer returned"):
            layer(x, wrong)


@pytest.mark.parametrize("cls", CELLS + PLAIN)
def test_a_cell_names_what_does_not_fit(cls):
    cell, x = build(cls), torch.zeros(T, N, D)
    other = cls(D, H + 1, **({} if cls in PLAIN else {"num_particles": K}))
    few = build(cls)(x[0, :1])
    for call, kind, words in (
        (lambda: cell.unroll(x[..., :2]), RuntimeError, "equal to input_size. Expected 3, got 2"),
        (lambda: cell(x[0].double()), ValueError, "RNN input dtype .* does not match weight dty"),
        (lambda: cell.unroll(x.to("meta")), RuntimeError, "Input and parameter tensors are not"),
        (lambda: cell.unroll(x[0]), ValueError, r"of shape \(T, ..., N, input_size\), got \(2, 3"),
        (lambda: cell(x[0], other(x[0])), RuntimeError, r"state.hidden: expected 8 units"),
        (lambda: cell(x[0], few), ValueError, r"state.hidden: expected shape \(\.\.\., N"),
        (lambda: cell(x[0], build(cls).double()(x[0].double())), ValueError,
         r"state\.hidden: expected dtype torch\.float32"),
        (lambda: cell.unroll(x, valid=torch.ones(N, T, dtype=torch.bool)), ValueError,
         r"valid: expected shape \(T, ..., N\) = \(4, 2\), got \(2, 4\)"),
    ):  # fmt: skip
        with pytest.raises(kind, match=words):
            call()


@pytest.mark.parametrize("cls", CELLS)
def test_a_cells_numbers_are_where_and_what_its_weights_are(cls):
    cell, x = build(cls), torch.zeros(N, D)
    noise, uniforms = torch.zeros(N, K, H), torch.zeros(N, K)
    for name, tensor in (("noise", noise), ("uniforms", uniforms)):
        words = f"{name.capitalize()} and parameter tensors are not at the same device"
        with pytest.raises(RuntimeError, match=words):
            cell(x, **{name: tensor.to("meta")})
    with pytest.raises(ValueError, match=r"noise: expected dtype torch\.float32"):
        cell(x, noise=noise.double())


def test_a_cell_takes_the_state_of_its_own_kind():
    x = torch.zeros(N, D)
    lstm, gru = build(PFLSTMCell), build(PFGRUCell)
    with pytest.raises(ValueError, match="Expected a state with a cell tensor"):
        lstm(x, gru(x))
    with pytest.raises(ValueError, match="Expected a state without a cell tensor"):
        gru(x, lstm(x))
    with pytest.raises(
        ValueError, match=r"LSTMCell: .* of shape \(\.\.\., N, input_size\), got \(3"
    ):
        build(LSTMCell)(x[0])


@pytest.mark.filterwarnings("ignore")  # torch.jit is deprecated, and sizes become constants
@pytest.mark.parametrize("cls", LAYERS + CELLS + PLAIN)
def test_torch_jit_traces(cls):
    class Output(torch.nn.Module):  # a GRU's state holds a None, which no trace returns
        def __init__(self):
            super().__init__()
            self.inner = build(cls)

        def forward(self, x):
            return self.inner(x)[0]

    module = Output().eval()
    x = torch.randn(T, N, D) if cls in LAYERS else torch.randn(N, D)
    traced = torch.jit.trace(module, x, check_trace=False)
    torch.manual_seed(1)
    want = module(x)
    torch.manual_seed(1)
    torch.testing.assert_close(traced(x), want)


@pytest.mark.parametrize("cls", LAYERS + CELLS + PLAIN)
def test_nested_and_sparse_input_is_named(cls):
    module, x = build(cls), torch.zeros(T, N, D)
    given = [x.to_sparse() if cls in LAYERS else x[0].to_sparse()]
    for layout in (torch.strided, torch.jagged):
        given.append(torch.nested.nested_tensor([x[:2, 0], x[:3, 0]], layout=layout))
    for one, cure in zip(given, ("to_dense", "pack_sequence", "pack_sequence"), strict=True):
        with pytest.raises(TypeError, match=f"{cls.__name__}: Expected input to be dense.*{cure}"):
            module(one)


@pytest.mark.parametrize("given", [{"bidirectional": True}, {"proj_size": 2}])
def test_copying_says_which_form_it_can_not_take(given):
    name, value = next(iter(given.items()))
    with pytest.raises(ConfigError, match=rf"got \(3, 8, 1, True\) with {name}={value}"):
        copy_rnn_weights(build(PFLSTM), torch.nn.LSTM(D, H, **given))


@pytest.mark.parametrize(
    ("given", "learns"),
    [
        ({}, True),
        ({"resampling": "none"}, True),
        ({"alpha": 1.0}, False),
        ({"resampling": "multinomial"}, False),
        ({"resampling": "systematic"}, False),
    ],
)
def test_when_the_observation_learns(given, learns):
    layer = build(PFLSTM, **given)
    layer(torch.randn(T, N, D))[0].square().sum().backward()
    grads = {name: one.grad is not None for name, one in layer.named_parameters()}
    assert grads.pop("cells.0.weight_observation") == learns
    assert all(grads.values())


@pytest.mark.parametrize("cls", LAYERS)
def test_packed_sequences_go_on_from_their_own_states(cls):
    """Unsorted packed input: states, noise and outputs are in the order that was packed."""
    layer, lengths = build(cls, batch_norm="none", dtype=torch.float64), (2, 4, 3)
    double = {"dtype": torch.float64}
    sequences = [torch.randn(length, D, **double) for length in lengths]
    _, start = layer(torch.randn(2, 3, D, **double))
    noise, uniforms = torch.randn(1, 4, 3, K, H, **double), torch.rand(1, 4, 3, K, **double)
    packed = torch.nn.utils.rnn.pack_sequence(sequences, enforce_sorted=False)
    output, end = layer(packed, start, noise=noise, uniforms=uniforms)
    padded, _ = torch.nn.utils.rnn.pad_packed_sequence(output)
    for i, (x, length) in enumerate(zip(sequences, lengths, strict=True)):
        hx = PFState(*(None if part is None else part[:, i] for part in start))
        rows = {"noise": noise[:, :length, i : i + 1], "uniforms": uniforms[:, :length, i : i + 1]}
        alone, last = layer(x, hx, **rows)
        torch.testing.assert_close(padded[:length, i], alone)
        torch.testing.assert_close(end.hidden[:, i], last.hidden)
        torch.testing.assert_close(end.log_weights[:, i], last.log_weights)


@pytest.mark.parametrize("cls", LAYERS)
def test_forward_mode_is_torch_funcs(cls):
    layer, x = build(cls).eval(), torch.randn(T, N, D)
    drawn = {"noise": torch.randn(1, T, N, K, H), "uniforms": torch.rand(1, T, N, K)}
    with forward_ad.dual_level():
        dual, _ = layer(forward_ad.make_dual(x, x), **drawn)
        found = forward_ad.unpack_dual(dual).tangent
    _, want = torch.func.jvp(lambda one: layer(one, **drawn)[0], (x,), (x,))
    torch.testing.assert_close(found, want)
