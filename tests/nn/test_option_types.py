"""Every option of every public layer and cell refuses what isn't of its type, by its name."""

from __future__ import annotations

import inspect
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch

from pfrnn.errors import ConfigError
from pfrnn.nn import (
    PFGRU,
    PFLSTM,
    CellOptions,
    GRUCell,
    LSTMCell,
    PFGRUCell,
    PFLSTMCell,
    copy_rnn_weights,
)
from pfrnn.nn.options import check_change

T, N, D, K, H = 3, 2, 4, 5, 8
LAYERS, CELLS, PLAIN = [PFLSTM, PFGRU], [PFLSTMCell, PFGRUCell], [LSTMCell, GRUCell]
PAIR = torch.tensor([1.0, 2.0])
NEVER = [object(), {}, [0.5], PAIR, 1j]  # what no option takes
NO_NUMBER = ["0.5", None, True, *NEVER]
NO_WHOLE = ["3", None, True, 3.5, 3.0, float("nan"), *NEVER]
NO_FLAG = ["True", None, 1, 0.0, *NEVER]
NO_NAME = ["sfot", None, 1, True, *NEVER]
NO_DEVICE = ["gpu", 0.5, True, *NEVER]
NO_DTYPE = ["float32", 3, True, torch.int64, torch.complex64, float, *NEVER]
WRONG = {
    "input_size": NO_WHOLE, "hidden_size": NO_WHOLE, "num_layers": NO_WHOLE,
    "num_particles": NO_WHOLE, "proj_size": NO_WHOLE, "max_steps": NO_WHOLE,
    "gate_features": [x for x in NO_WHOLE if x is not None],
    "bias": NO_FLAG, "batch_first": NO_FLAG, "bidirectional": NO_FLAG, "reset_after": NO_FLAG,
    "dropout": NO_NUMBER, "alpha": NO_NUMBER, "momentum": NO_NUMBER, "norm_eps": NO_NUMBER,
    "ess_threshold": [x for x in NO_NUMBER if x is not None],
    "fidelity": NO_NAME, "resampling": NO_NAME, "batch_norm": NO_NAME, "activation": NO_NAME,
    "noise_scale": NO_NAME, "initial_state": NO_NAME, "gru_noise": NO_NAME,
    "statistics": NO_NAME,
    "device": NO_DEVICE, "dtype": NO_DTYPE,
}  # fmt: skip
# torch's words for these: "Expected one of cpu, cuda, ... device type at start of device string".
ERRORS = (TypeError, ValueError, ConfigError)


def options_of(cls):
    names = set(inspect.signature(cls).parameters) - {"options"}
    return sorted(names | (set(CellOptions._fields) if cls not in PLAIN else set()))


CASES = [(cls, name) for cls in LAYERS + CELLS + PLAIN for name in options_of(cls)]


def build(cls, **given):
    usual = {"input_size": D, "hidden_size": H} | ({} if cls in PLAIN else {"num_particles": K})
    return cls(**(usual | given))


@pytest.mark.parametrize(("cls", "name"), CASES)
def test_a_constructors_options_are_of_their_types(cls, name):
    for value in WRONG[name]:
        errors = (*ERRORS, RuntimeError) if name == "device" else ERRORS
        with pytest.raises(errors, match=rf"\b{name}\b") as caught:
            build(cls, **{name: value})
        text = str(caught.value)
        assert "xpected" in text or "should be" in text or "must be" in text, (value, text)
        if name == "dropout":
            continue  # torch's words, which don't say what came
        came = (repr(value), type(value).__name__)
        assert any(one in text for one in came), (value, text)


@pytest.mark.parametrize("name", CellOptions._fields)
def test_options_set_later_are_of_their_types(name):
    cell = build(PFLSTMCell)
    for value in WRONG[name]:
        with pytest.raises((TypeError, ConfigError), match=rf"^{name}: expected"):
            cell.options = cell.options._replace(**{name: value})
    assert cell.options == CellOptions()
    with pytest.raises(TypeError, match="options should be a CellOptions"):
        check_change(cell.options, tuple(cell.options))


def test_the_words():
    for given, kind, words in (
        ({"alpha": "0.5"}, TypeError, r"alpha: expected a number in (0, 1], got '0.5' (str)"),
        ({"alpha": None}, TypeError, r"alpha: expected a number in (0, 1], got None (NoneType)"),
        ({"max_steps": 3.5}, TypeError, "max_steps: expected a whole number from 1, got 3.5 (flo"),
        ({"reset_after": 1}, TypeError, "reset_after: expected True or False, got 1 (int)"),
        ({"resampling": 1}, ConfigError, "resampling: expected one of soft, multinomial, system"),
        ({"hidden_size": 3.5}, TypeError, "hidden_size should be of type int, got: float"),
        ({"input_size": 0}, ValueError, "input_size must be greater than zero, got 0"),
        ({"dtype": torch.int8}, TypeError, "dtype should be a floating-point torch.dtype such as"),
    ):
        with pytest.raises(kind) as caught:
            build(PFLSTMCell, **given)
        assert str(caught.value).startswith(words)


def test_numbers_of_other_libraries_are_numbers():
    for alpha in (1, 0.5, np.float32(0.5), np.float64(0.5), Fraction(1, 2)):
        assert build(PFLSTM, alpha=alpha).options.alpha == alpha
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one layer has no use for it, as torch says
        assert build(PFLSTM, dropout=np.float32(0.5)).dropout == 0.5


@pytest.mark.parametrize("cls", LAYERS)
def test_a_layers_call_takes_tensors(cls):
    layer, x = build(cls), torch.zeros(T, N, D)
    for call in (layer, layer.filter):
        for value in ([[0.0]], None, np.zeros((T, N, D))):
            kind = type(value).__name__
            with pytest.raises(TypeError, match=f"{cls.__name__}: Expected input to be.*{kind}"):
                call(value)
        for name in ("noise", "uniforms"):
            with pytest.raises(TypeError, match=rf"{name}: expected a tensor \(num_layers, T, N, "):
                call(x, **{name: 3})
        for bptt in ("2", 2.0, True, 0):
            with pytest.raises(ConfigError, match="bptt: expected a whole number of steps from 1"):
                call(x, bptt=bptt)


@pytest.mark.parametrize("cls", CELLS)
def test_a_cells_calls_take_tensors(cls):
    cell, x = build(cls), torch.zeros(N, D)
    for name, value in (("noise", 3), ("uniforms", "x")):
        with pytest.raises(TypeError, match=f"{name}: expected a tensor"):
            cell(x, **{name: value})
        with pytest.raises(TypeError, match=f"{name}: expected a tensor"):
            cell.unroll(x.unsqueeze(0), **{name: value})
    for name in ("particles", "belief", "update"):
        with pytest.raises(TypeError, match=f"{name}: expected True or False, got 1"):
            cell.unroll(x.unsqueeze(0), **{name: 1})
    for call, name in ((cell.initial_state, "sequences"), (cell.draw, "steps")):
        with pytest.raises(TypeError, match=f"{name} should be of type int, got: float"):
            call(*[2.0, N, K][: 1 if name == "sequences" else 3])
    with pytest.raises(TypeError, match="sequences should be of type int, got: str"):
        cell.draw(T, "2", K)
    with pytest.raises(ConfigError, match="sequences: expected 0 or more, got -1"):
        cell.initial_state(-1)


@pytest.mark.parametrize("cls", CELLS + PLAIN)
def test_every_cell_names_what_is_no_tensor(cls):
    cell, x = build(cls), torch.zeros(T, N, D)
    for call in (cell, cell.unroll):
        with pytest.raises(TypeError, match=f"{cls.__name__}: Expected input to be a Tensor.*list"):
            call([0.0])
    with pytest.raises(TypeError, match=r"state should be an? "):
        cell.unroll(x, torch.zeros(N, H))
    with pytest.raises(TypeError, match=r"valid: expected a tensor \(T, ..., N\).*got \[True\]"):
        cell.unroll(x, valid=[True])
    with pytest.raises(TypeError, match=r"valid: .* of bool, got one of torch\.float32"):
        cell.unroll(x, valid=torch.ones(T, N))


def test_copying_names_what_is_no_layer():
    lstm = torch.nn.LSTM(D, H)
    with pytest.raises(TypeError, match="layer should be a PFLSTM or a PFGRU, got: LSTM"):
        copy_rnn_weights(lstm, build(PFLSTM))
    with pytest.raises(ConfigError, match=r"expected torch\.nn\.LSTM, got Linear"):
        copy_rnn_weights(build(PFLSTM), torch.nn.Linear(D, H))
    with pytest.raises(TypeError, match="quiet: expected True or False, got 1"):
        copy_rnn_weights(build(PFLSTM), lstm, quiet=1)


def test_weights_are_copied_into_a_subclass_too():
    class Own(PFLSTMCell):
        pass

    class Layer(PFLSTM):
        cell_class = Own

    lstm, layers = torch.nn.LSTM(D, H), (build(Layer), build(PFLSTM))
    for layer in layers:
        copy_rnn_weights(layer, lstm, quiet=True)
    assert torch.equal(layers[0].cells[0].weight_input, layers[1].cells[0].weight_input)
