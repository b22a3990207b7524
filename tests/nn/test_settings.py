"""Settings set after construction: wholly obeyed, or refused; never in part."""

from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest
import torch

from pfrnn.errors import ConfigError
from pfrnn.nn import PFGRU, PFLSTM, CellOptions, GRUCell, LSTMCell, PFGRUCell, PFLSTMCell
from pfrnn.nn.settings import CHANGEABLE

T, N, D, K, H = 4, 2, 3, 5, 8
LAYERS = [PFLSTM, PFGRU]
CELLS = [PFLSTMCell, PFGRUCell]
FREE = {"batch_first", "dropout", "num_particles"}


def seeded(module, *args, **kwargs):
    torch.manual_seed(3)
    return module(*args, **kwargs)


@pytest.mark.parametrize("cls", LAYERS)
def test_a_new_number_of_particles_is_the_layers_own(cls):
    layer, other = (cls(D, H, 2, num_particles=k).eval() for k in (K, 9))
    other.load_state_dict(layer.state_dict())
    layer.num_particles = 9
    assert "num_particles=9" in repr(layer).splitlines()[1]
    assert [cell.num_particles for cell in layer.cells] == [9, 9]
    x, plain = torch.randn(T, N, D), torch.zeros(2, N, H)
    hx = (plain, plain) if cls is PFLSTM else plain
    for given in (None, hx):
        (got, state), (want, _) = (seeded(one, x, given) for one in (layer, other))
        assert state.hidden.shape == (2, N, 9, H)
        assert torch.equal(got, want)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert twin.num_particles == 9


@pytest.mark.parametrize("cls", LAYERS + CELLS)
def test_what_is_no_number_of_particles_is_refused(cls):
    module = cls(D, H, num_particles=K)
    slots = cls(D, H, num_particles=K, batch_norm="particle_slot")
    for one in (module, slots):
        for count, kind, words in (
            (2.5, TypeError, "type int, got: float"),
            (None, TypeError, "type int, got: NoneType"),
            (0, ConfigError, "at least 1, got 0"),
        ):
            with pytest.raises(kind, match=f"num_particles.*{words}"):
                one.num_particles = count
    with pytest.raises(ConfigError, match="can't become 9; take batch_norm='feature'"):
        slots.num_particles = 9
    slots.num_particles = K
    assert module.num_particles == slots.num_particles == K


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alpha", 0.9),
        ("resampling", "systematic"),
        ("ess_threshold", 0.5),
        ("activation", "tanh"),
        ("noise_scale", "softplus"),
        ("initial_state", "uniform"),
        ("momentum", 0.4),
        ("norm_eps", 0.1),
    ],
)
@pytest.mark.parametrize("cls", LAYERS)
def test_new_options_are_those_of_a_layer_built_with_them(cls, name, value):
    assert name in CHANGEABLE
    layer, other = (cls(D, H, 2, num_particles=K, **given) for given in ({}, {name: value}))
    other.load_state_dict(layer.state_dict())
    layer.options = layer.options._replace(**{name: value})
    assert layer.options == other.options
    x = torch.randn(T, N, D)
    for train in (True, False):
        (got, _), (want, _) = (seeded(one.train(train), x) for one in (layer, other))
        assert torch.equal(got, want)
    for key, tensor in layer.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[key]), key


@pytest.mark.parametrize("cls", LAYERS + CELLS)
def test_options_that_parameters_follow_from_are_refused(cls):
    module = cls(D, H, num_particles=K)
    values = {"batch_norm": "none", "gate_features": 4, "gru_noise": "reset", "reset_after": True,
              "statistics": "per_time", "max_steps": 7}  # fmt: skip
    assert values.keys() == set(CellOptions._fields) - CHANGEABLE
    before = module.options
    for name, value in values.items():
        with pytest.raises(ConfigError, match=f"options: {name} can't change after construction"):
            module.options = before._replace(**{name: value})
    with pytest.raises(ConfigError, match="alpha: expected a number"):
        module.options = before._replace(alpha=2.0)
    with pytest.raises(TypeError, match="options should be a CellOptions, got: dict"):
        module.options = {"alpha": 0.3}
    assert module.options is before


def settings(cls):
    """All that the constructor takes, but for what is no attribute later."""
    names = set(inspect.signature(cls).parameters) - {"device", "dtype", "options"}
    if cls in LAYERS + CELLS:
        names |= set(CellOptions._fields)
    # A cell's bias is a parameter, which may be replaced as any module's may.
    return sorted(names - FREE if cls in LAYERS else names - FREE - {"bias"})


@pytest.mark.parametrize("cls", [*LAYERS, *CELLS, LSTMCell, GRUCell])
def test_all_other_settings_refuse_a_new_value(cls):
    module = cls(D, H, **({"num_particles": K} if cls in LAYERS + CELLS else {}))
    for name in settings(cls):
        with pytest.raises(AttributeError) as caught:
            setattr(module, name, 0.25)
        text = str(caught.value)
        assert f"{cls.__name__}.{name} can't change after construction, got 0.25;" in text
        changeable = name in CHANGEABLE and cls in LAYERS + CELLS
        hint = f"options._replace({name}=...)" if changeable else f"build a new {cls.__name__}"
        assert hint in text
    module(torch.zeros(N, D) if cls not in LAYERS else torch.zeros(T, N, D))


def test_what_every_call_reads_may_change():
    layer, x = PFLSTM(D, H, 2, num_particles=K), torch.randn(T, N, D)
    layer.batch_first = True
    assert layer(x)[1].hidden.shape == (2, T, K, H)
    for rate in (1.0, 0.0):  # at 1 the second layer reads zeros, whatever the first one read
        layer.dropout = rate
        one, other = (seeded(layer, scale * x)[0] for scale in (1, 5))
        assert torch.equal(one, other) == (rate == 1.0)


@pytest.mark.parametrize("cls", [*LAYERS, *CELLS, LSTMCell, GRUCell])
def test_a_settings_own_value_may_be_set_again(cls):
    particles = cls in LAYERS + CELLS
    module = cls(D, H, **({"num_particles": K, "alpha": 0.3} if particles else {}))
    before = {**vars(module)}
    for name in settings(cls):
        holders = (module, getattr(module, "options", None), getattr(module, "switches", None))
        for holder in (one for one in holders if hasattr(one, name)):
            setattr(module, name, getattr(holder, name))
    assert vars(module) == before
    for name, value in (("hidden_size", float(H)), ("input_size", torch.tensor(D))):
        with pytest.raises(AttributeError, match=f"{name} can't change"):
            setattr(module, name, value)
    if particles:
        module.num_particles, module.options = K, module.options
        with pytest.raises(AttributeError, match="reset_after can't change"):
            module.reset_after = 0


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cls", LAYERS)
def test_a_layers_cells_are_not_set_apart(cls, layers):
    layer = cls(D, H, layers, num_particles=K)
    for one in (layer, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        for cell in one.cells:
            kind = type(cell).__name__
            with pytest.raises(AttributeError) as caught:
                cell.num_particles = 9
            assert str(caught.value) == (
                f"{kind}.num_particles can't change apart from its {cls.__name__}, whose cells "
                "share it, got 9; set it for all, layer.num_particles = ..., or set that of a copy "
                "(copy.deepcopy(cell)), which is no part of the layer"
            )
            with pytest.raises(AttributeError, match=f"{kind}.options can't .*, layer.options = "):
                cell.options = cell.options._replace(alpha=0.9)
            cell.num_particles, cell.options = K, CellOptions()  # what they are
        one.num_particles, one.options = 9, CellOptions(alpha=0.9)
        assert {(cell.num_particles, cell.options.alpha) for cell in one.cells} == {(9, 0.9)}
        with pytest.raises(ConfigError, match="options: batch_norm can't change"):
            one.options = CellOptions(batch_norm="none")
        assert one.options == CellOptions(alpha=0.9)


@pytest.mark.parametrize("cls", LAYERS)
def test_a_copy_of_a_layers_cell_is_its_own(cls):
    layer = cls(D, H, num_particles=K)
    (cell,) = layer.cells
    for one in (copy.deepcopy(cell), pickle.loads(pickle.dumps(cell)), copy.copy(cell)):
        one.num_particles, one.options = 9, one.options._replace(alpha=0.9)
        assert (one.num_particles, one.options.alpha) == (9, 0.9)
    assert (cell.num_particles, cell.options.alpha) == (K, CellOptions().alpha)


@pytest.mark.parametrize("cls", [*LAYERS, *CELLS, LSTMCell, GRUCell])
def test_a_subclass_can_read_which_names_are_reserved(cls):
    base = next(one for one in cls.__mro__ if "_settled" in vars(one))
    _, _, rest = inspect.getdoc(base).partition("Reserved names, ")
    listed = set(re.findall("``([a-z_]+)``", rest.partition("\n\n")[0]))
    assert listed == base._settled
    assert base is cls.__bases__[0] or "reserved names: see" in inspect.getdoc(cls)

    class Own(cls):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.temperature = 2.0
            with pytest.raises(AttributeError, match=r"can't change"):
                self.activation = "own"

    given = {"num_particles": K} if cls in LAYERS + CELLS else {}
    assert Own(D, H, **given).temperature == 2.0


def test_what_may_change_is_checked_as_the_constructor_does():
    layer = PFLSTM(D, H, 2, num_particles=K)
    for value in ("0.5", True, 1.5, None):
        with pytest.raises(ValueError, match="dropout should be a number in range"):
            layer.dropout = value
    with pytest.raises(TypeError, match="batch_first should be of type bool, got: int"):
        layer.batch_first = 1
    with pytest.raises(TypeError, match=r"backend: expected a name that .* got 3"):
        layer.compile_step(3)
    assert (layer.dropout, layer.batch_first, layer.cells[0].compile_backend) == (0.0, False, None)
