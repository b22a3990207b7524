"""What a layer takes and refuses beyond its sizes: states, particle numbers, torch's options."""

from __future__ import annotations

import pytest
import torch

from pfrnn.errors import ConfigError
from pfrnn.nn import PFGRU, PFLSTM, PFGRUCell, PFLSTMCell

T, N, D, K, H = 3, 2, 4, 5, 8
LAYERS = [PFLSTM, PFGRU]
CELLS = [PFLSTMCell, PFGRUCell]


@pytest.mark.parametrize("cls", LAYERS)
def test_torchs_defaults_of_what_a_filter_lacks_are_taken(cls):
    named = cls(D, H, bidirectional=False, proj_size=0, num_particles=K)
    placed = cls(D, H, 1, True, False, 0.0, False, 0, num_particles=K)
    for layer in (named, placed):
        assert (layer.bidirectional, layer.proj_size) == (False, 0)
        assert layer(torch.zeros(T, N, D))[0].shape == (T, N, H)


@pytest.mark.parametrize("cls", LAYERS)
@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ({"bidirectional": True}, ValueError, "bidirectional=True is not supported: .* reversed"),
        ({"proj_size": 2}, ValueError, "proj_size=2 is not supported: .* torch.nn.Linear"),
        ({"proj_size": -1}, ValueError, "proj_size=-1 is not supported"),
    ],
)
def test_what_a_filter_lacks_is_refused(cls, given, kind, words):
    with pytest.raises(kind, match=words):
        cls(D, H, num_particles=K, **given)


@pytest.mark.parametrize("cls", LAYERS + CELLS)
@pytest.mark.parametrize("count", [2.5, "7", True, None])
def test_a_number_of_particles_is_a_whole_number(cls, count):
    words = f"num_particles should be of type int, got: {type(count).__name__}"
    with pytest.raises(TypeError, match=words):
        cls(D, H, num_particles=count)
    if count is not None and cls in LAYERS:  # at a call None takes the layer's own
        layer = cls(D, H, num_particles=K)
        for call in (layer, layer.filter):
            with pytest.raises(TypeError, match=words):
                call(torch.zeros(T, N, D), num_particles=count)
    with pytest.raises(ConfigError, match="num_particles: expected at least 1, got 0"):
        cls(D, H, num_particles=0)


@pytest.mark.parametrize("cls", LAYERS)
def test_a_states_particles_and_a_number_must_agree(cls):
    layer, x = cls(D, H, num_particles=10), torch.zeros(T, N, D)
    _, state = layer(x, num_particles=K)
    assert layer(x, state)[1].hidden.shape[-2] == K
    assert layer(x, state, num_particles=K)[1].hidden.shape[-2] == K
    with pytest.raises(RuntimeError, match="state of num_particles=3 particles, got 5; leave num_"):
        layer(x, state, num_particles=3)
    # A plain RNN's state is given to as many particles as are asked for.
    plain = torch.zeros(1, N, H)
    hx = (plain, plain) if cls is PFLSTM else plain
    assert layer(x, hx, num_particles=3)[1].hidden.shape[-2] == 3
    assert layer(x, hx)[1].hidden.shape[-2] == 10


@pytest.mark.parametrize(
    ("cls", "hx", "words"),
    [
        (PFLSTM, torch.zeros(1, N, H), r"tuple of tensors \(h_0, c_0\).*, got: Tensor"),
        # A tensor that could be unpacked as if it were a pair.
        (PFLSTM, torch.zeros(2, N, H), r"tuple of tensors \(h_0, c_0\).*, got: Tensor"),
        (PFLSTM, (torch.zeros(1, N, H),), "got: tuple$"),
        (PFLSTM, (torch.zeros(1, N, H), None), "got: tuple$"),
        (PFLSTM, 3, "got: int$"),
        (PFGRU, (torch.zeros(1, N, H),) * 2, "a tensor h_0, as .*, got: tuple$"),
        (PFGRU, "zeros", "got: str$"),
    ],
)
def test_what_is_no_state_is_refused(cls, hx, words):
    with pytest.raises(TypeError, match=words):
        cls(D, H, num_particles=K)(torch.zeros(T, N, D), hx)


def test_a_list_is_as_good_as_a_tuple():
    pair = [torch.zeros(1, N, H)] * 2
    assert PFLSTM(D, H, num_particles=K)(torch.zeros(T, N, D), pair)[0].shape == (T, N, H)
