"""Layers: the contract of torch.nn.LSTM and torch.nn.GRU."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from pfrnn.errors import ConfigError
from pfrnn.nn import PFGRU, PFLSTM, PFState, copy_rnn_weights

T, N, D, K, H = 6, 4, 3, 5, 8
LAYERS = [PFLSTM, PFGRU]
TWINS = [(PFLSTM, torch.nn.LSTM), (PFGRU, torch.nn.GRU)]
QUIET = {"resampling": "none", "activation": "tanh", "batch_norm": "none"}


def given_noise(layer, steps, sequences, count=K):
    shape = (layer.num_layers, steps, sequences, count)
    return {"noise": torch.randn(*shape, H), "uniforms": torch.rand(shape)}


def raised(call):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the kind is what is compared
        call()
    return type(caught.value), str(caught.value)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cls", LAYERS)
def test_shapes(cls, layers, batch_first):
    layer = cls(D, H, layers, True, batch_first, num_particles=K)
    x = torch.randn(N, T, D) if batch_first else torch.randn(T, N, D)
    output, state = layer(x)
    assert output.shape == (*x.shape[:2], H)
    assert state.hidden.shape == (layers, N, K, H)
    assert state.log_weights.shape == (layers, N, K)
    assert (state.cell is None) == (cls is PFGRU)
    found = layer.filter(x)
    assert found.particles.shape == (*x.shape[:2], K, H)
    assert found.log_weights.shape == found.ancestors.shape == (*x.shape[:2], K)
    assert found.ess.shape == x.shape[:2]
    assert found.valid is None
    assert layer(x, num_particles=2)[1].hidden.shape == (layers, N, 2, H)


@pytest.mark.parametrize("cls", LAYERS)
def test_output_is_the_mean_particle(cls):
    layer = cls(D, H, 2, num_particles=K).eval()
    x, given = torch.randn(T, N, D), given_noise(layer, T, N)
    output, state = layer(x, **given)
    found = layer.filter(x, **given)
    mean = (found.log_weights.exp().unsqueeze(-1) * found.particles).sum(-2)
    torch.testing.assert_close(output, mean)
    torch.testing.assert_close(state.hidden[-1], found.particles[-1])
    torch.testing.assert_close(found.log_weights.exp().sum(-1), torch.ones(T, N))


@pytest.mark.parametrize("cls", LAYERS)
def test_one_sequence(cls):
    layer = cls(D, H, 2, batch_first=True, num_particles=K).eval()
    x, given = torch.randn(T, D), given_noise(layer, T, 1)
    output, state = layer(x, **given)
    batched, full = layer(x.unsqueeze(0), **given)
    torch.testing.assert_close(output, batched[0])
    torch.testing.assert_close(state.hidden, full.hidden[:, 0])
    assert layer.filter(x, **given).particles.shape == (T, K, H)
    again, _ = layer(x, state, **given)
    torch.testing.assert_close(again, layer(x.unsqueeze(0), full, **given)[0][0])


@pytest.mark.parametrize("cls", LAYERS)
def test_a_sequence_may_be_cut_in_two(cls):
    layer = cls(D, H, 2, num_particles=K).eval()
    x, given = torch.randn(T, N, D), given_noise(layer, T, N)
    whole, end = layer(x, **given)
    first, middle = layer(x[:2], **{k: v[:, :2] for k, v in given.items()})
    second, last = layer(x[2:], middle, **{k: v[:, 2:] for k, v in given.items()})
    torch.testing.assert_close(torch.cat([first, second]), whole)
    torch.testing.assert_close(last.hidden, end.hidden)


@pytest.mark.parametrize("enforce_sorted", [False, True])
@pytest.mark.parametrize("cls", LAYERS)
def test_packed_equals_each_sequence_alone(cls, enforce_sorted):
    layer = cls(D, H, 2, num_particles=K).eval()
    lengths = [6, 5, 3, 1] if enforce_sorted else [3, 6, 1, 5]
    x, given = torch.randn(T, N, D), given_noise(layer, T, N)
    packed = pack_padded_sequence(x, lengths, enforce_sorted=enforce_sorted)
    output, state = layer(packed, **given)
    assert isinstance(output, PackedSequence)
    padded, out_lengths = pad_packed_sequence(output)
    assert out_lengths.tolist() == lengths
    found = layer.filter(packed, **given)
    assert torch.equal(found.valid.sum(0), torch.tensor(lengths))
    for n, length in enumerate(lengths):
        own = {k: v[:, :length, n : n + 1] for k, v in given.items()}
        alone, final = layer(x[:length, n : n + 1], **own)
        torch.testing.assert_close(padded[:length, n], alone[:, 0])
        assert torch.all(padded[length:, n] == 0)
        torch.testing.assert_close(state.hidden[:, n], final.hidden[:, 0])
        torch.testing.assert_close(state.log_weights[:, n], final.log_weights[:, 0])
        torch.testing.assert_close(
            found.particles[:length, n], layer.filter(x[:length, n : n + 1], **own).particles[:, 0]
        )


@pytest.mark.parametrize("options", [{}, {"fidelity": "authors_code"}], ids=str)
@pytest.mark.parametrize("cls", LAYERS)
def test_padding_never_enters_training(cls, options):
    layer = cls(D, H, 2, num_particles=K, **options)
    lengths, x = torch.tensor([3, 6, 1, 5]), torch.randn(T, N, D)
    given = given_noise(layer, T, N)
    hx = PFState(
        torch.rand(2, N, K, H),
        torch.rand(2, N, K, H) if cls is PFLSTM else None,
        torch.zeros(2, N, K).log_softmax(-1),
    )
    start = {k: v.clone() for k, v in layer.state_dict().items()}
    results = []
    for fill in (0.0, 1e6):
        layer.load_state_dict(start)
        layer.zero_grad()
        padding = torch.arange(T)[:, None, None] >= lengths[:, None]
        data = torch.where(padding, fill, x)
        noise = {k: torch.where(padding, fill, v.flatten(3)).view_as(v) for k, v in given.items()}
        noise["uniforms"].clamp_(0, 0.99)
        packed = pack_padded_sequence(data, lengths, enforce_sorted=False)
        # A filled noise reaches the layer, whose own padded steps must not read it.
        output, _ = layer(packed, hx, **noise)
        output.data.square().sum().backward()
        results.append(
            [output.data, *[b.clone() for b in layer.buffers()]]
            + [p.grad for p in layer.parameters() if p.grad is not None]
        )
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("cls", "twin"), TWINS)
def test_one_quiet_particle_equals_torch(cls, twin, layers):
    torch.manual_seed(0)
    steps = 100
    rnn = twin(D, H, layers)
    layer = cls(D, H, layers, num_particles=1, reset_after=cls is PFGRU, **QUIET)
    copy_rnn_weights(layer, rnn, quiet=True)
    x = torch.randn(steps, N, D)
    noise = torch.zeros(layers, steps, N, 1, H)
    torch.testing.assert_close(layer(x, noise=noise)[0], rnn(x)[0], rtol=0, atol=1e-6)
    lengths = [50, 100, 1, 73]
    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
    (got, state), (want, final) = layer(packed, noise=noise), rnn(packed)
    torch.testing.assert_close(got.data, want.data, rtol=0, atol=1e-6)
    assert torch.equal(got.batch_sizes, want.batch_sizes)
    hidden = final[0] if cls is PFLSTM else final
    torch.testing.assert_close(state.hidden[..., 0, :], hidden, rtol=0, atol=1e-6)
    # Also from a given state, in torch's own form.
    hx = (torch.randn(layers, N, H), torch.randn(layers, N, H))
    hx = hx if cls is PFLSTM else hx[0]
    torch.testing.assert_close(layer(x, hx, noise=noise)[0], rnn(x, hx)[0], rtol=0, atol=1e-6)
    # With quiet weights the noise is not read, and more particles change nothing.
    torch.testing.assert_close(layer(x, num_particles=3)[0], rnn(x)[0], rtol=0, atol=2e-6)


def test_copying_refuses_what_does_not_match():
    lstm, gru = torch.nn.LSTM(D, H), torch.nn.GRU(D, H)
    cases = [
        (PFLSTM(D, H, num_particles=K), gru, r"expected torch.nn.LSTM, got GRU"),
        (PFLSTM(D, H + 1, num_particles=K), lstm, r"= \(3, 9, 1, True\), got \(3, 8, 1, True\)"),
        (PFGRU(D, H, num_particles=K), gru, "build with reset_after=True"),
        (PFLSTM(D, H, num_particles=K, gate_features=4), lstm, "gate networks"),
    ]
    for layer, rnn, message in cases:
        with pytest.raises(ConfigError, match=message):
            copy_rnn_weights(layer, rnn)


@pytest.mark.parametrize(("cls", "twin"), TWINS)
def test_constructor_errors_are_torchs(cls, twin):
    for args in [
        (D, H, 1, True, False, 1.5),
        (D, H, 1, True, False, True),
        (D, H, 1, 1),
        (D, H, 1, True, 1),
        (2.0, H),
        (D, 2.0),
        (0, H),
        (D, 0),
        (D, H, 0),
    ]:
        assert raised(lambda a=args: cls(*a, num_particles=K)) == raised(lambda a=args: twin(*a))
    texts = []
    for make in (lambda: cls(D, H, dropout=0.5, num_particles=K), lambda: twin(D, H, dropout=0.5)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            make()
        texts.append([(w.category, str(w.message)) for w in caught])
    assert texts[0] == texts[1]


@pytest.mark.parametrize(("cls", "twin"), TWINS)
def test_call_errors_are_torchs(cls, twin):
    ours, theirs = cls(D, H, num_particles=K), twin(D, H)
    short = torch.nn.utils.rnn.pack_padded_sequence(torch.zeros(T, N, D + 1), [T] * N)
    for x in [
        torch.zeros(D),
        torch.zeros(T, N, D, 1),
        torch.zeros(T, N, D + 1),
        torch.zeros(0, N, D),
        torch.zeros(T, N, D).double(),
        short,
    ]:
        kind, message = raised(lambda x=x: ours(x))
        # torch.nn.LSTM forgets to check packed input without hx; torch.nn.GRU does.
        judge = torch.nn.GRU(D, H) if x is short else theirs
        want, text = raised(lambda x=x, judge=judge: judge(x))
        assert kind is want
        assert message == text.replace(twin.__name__ + ":", cls.__name__ + ":")
    wrong = torch.zeros(1, N, H + 1)
    flat = torch.zeros(1, H)
    for bad in (wrong, flat):
        hx = (bad, bad) if cls is PFLSTM else bad
        assert raised(lambda h=hx: ours(torch.zeros(T, N, D), h)) == raised(
            lambda h=hx: theirs(torch.zeros(T, N, D), h)
        )
    hx = (wrong, wrong) if cls is PFLSTM else wrong
    kind, message = raised(lambda: ours(torch.zeros(T, D), hx))
    assert (kind, message) == raised(lambda: theirs(torch.zeros(T, D), hx))


def test_states_that_do_not_fit():
    layer, x = PFLSTM(D, H, num_particles=K), torch.zeros(T, N, D)
    _, state = layer(x)
    with pytest.raises(RuntimeError, match="with a cell tensor"):
        layer(x, state._replace(cell=None))
    with pytest.raises(RuntimeError, match=r"Expected log_weights size \(1, 4, 5\)"):
        layer(x, state._replace(log_weights=state.log_weights[..., :-1]))
    with pytest.raises(RuntimeError, match=r"Expected hidden\[0\] size \(1, 3, 5, 8\)"):
        layer(x[:, :3], state)
    with pytest.raises(RuntimeError, match=r"also be 3-D but got \(4-D, 4-D\)"):
        layer(x[:, 0], state)
    _, gru_state = PFGRU(D, H, num_particles=K)(x)
    with pytest.raises(RuntimeError, match="with a cell tensor"):
        layer(x, gru_state)
    with pytest.raises(ConfigError, match="can't become 2"):
        PFLSTM(D, H, num_particles=K, batch_norm="particle_slot")(x, num_particles=2)


def test_dropout_is_between_layers_in_training_only():
    torch.manual_seed(0)
    layer = PFLSTM(D, H, 2, dropout=1.0, num_particles=K, batch_norm="none")
    x, given = torch.randn(T, N, D), given_noise(layer, T, N)
    torch.testing.assert_close(layer(x, **given)[0], layer(x * 2, **given)[0])  # nothing passes
    layer.eval()
    assert not torch.allclose(layer(x, **given)[0], layer(x * 2, **given)[0])


@pytest.mark.parametrize("cls", LAYERS)
def test_factory_arguments_and_double(cls):
    layer = cls(D, H, 2, num_particles=K, device="cpu", dtype=torch.float64)
    assert {p.dtype for p in layer.parameters()} == {torch.float64}
    output, state = layer(torch.randn(T, N, D, dtype=torch.float64))
    assert output.dtype == state.log_weights.dtype == torch.float64
    meta = cls(D, H, num_particles=K, device="meta")
    assert {p.device.type for p in (*meta.parameters(), *meta.buffers())} == {"meta"}
    converted = cls(D, H, num_particles=K).double()
    assert converted(torch.randn(T, N, D).double())[0].dtype == torch.float64


@pytest.mark.parametrize("cls", LAYERS)
def test_state_dict_loads_with_weights_only(cls):
    layer, other = (cls(D, H, 2, num_particles=K) for _ in "ab")
    layer(torch.randn(T, N, D))
    stream = io.BytesIO()
    torch.save(layer.state_dict(), stream)
    stream.seek(0)
    other.load_state_dict(torch.load(stream, weights_only=True))
    x, given = torch.randn(T, N, D), given_noise(layer, T, N)
    assert torch.equal(layer.eval()(x, **given)[0], other.eval()(x, **given)[0])
    layer.reset_parameters()
    assert torch.all(layer.cells[0].running.mean == 0)


def test_bptt_cuts_the_gradient():
    layer = PFLSTM(D, H, num_particles=K)
    x = torch.randn(T, N, D, requires_grad=True)
    layer(x, bptt=2)[0][-1].sum().backward()
    assert torch.all(x.grad[:4] == 0)
    assert torch.any(x.grad[4] != 0)


@pytest.mark.parametrize("cls", LAYERS)
def test_copies_and_what_lstm_code_asks_for(cls):
    layer = cls(D, H, 2, num_particles=K).eval()
    layer.compile_step("aot_eager")  # must not stand in the way of copying
    x, given = torch.randn(T, N, D), given_noise(layer, T, N)
    twins = [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))]
    for one in (layer, *twins):
        one.compile_step(None)
    for twin in twins:
        assert torch.equal(twin(x, **given)[0], layer(x, **given)[0])
    layer.flatten_parameters()
    assert not layer.bidirectional
    assert layer.proj_size == 0


@pytest.mark.parametrize("name", ["noise", "uniforms"])
def test_numbers_need_the_layers_axis(name):
    layer = PFLSTM(3, 8, num_particles=5, num_layers=2)
    x, sizes = torch.randn(7, 4, 3), (7, 4, 5, 8)[: 4 if name == "noise" else 3]
    good = torch.full((2, *sizes), 0.5)
    layer(x, **{name: good})
    for wrong in (good[0], good[:1], torch.tensor(0.5), good.unsqueeze(0)):
        with pytest.raises(ValueError, match=rf"{name}: expected \(num_layers, T, N, K.* = \(2, 7"):
            layer(x, **{name: wrong})


def test_shapes_without_numbers():
    layer = PFLSTM(3, 8, num_particles=5).to("meta")
    output, _ = layer(torch.empty(7, 4, 3, device="meta"))
    assert output.shape == (7, 4, 8)


def test_gradients_have_gradients():
    for cls in LAYERS:
        layer = cls(2, 3, num_particles=2, activation="tanh", dtype=torch.float64)
        noise = torch.randn(1, 2, 2, 2, 3, dtype=torch.float64)
        uniforms = torch.rand(1, 2, 2, 2, dtype=torch.float64)

        def function(x, layer=layer, given={"noise": noise, "uniforms": uniforms}):  # noqa: B006
            return layer(x, **given)[0].square().sum()

        x = torch.randn(2, 2, 2, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradgradcheck(function, x)
        layer.eval()
        found = torch.autograd.functional.hessian(function, x.detach())
        torch.testing.assert_close(found, torch.func.hessian(function)(x.detach()))
        assert found.abs().max() > 1e-3


@pytest.mark.parametrize("cls", LAYERS)
def test_settings_set_later_are_those_of_a_layer_built_with_them(cls):
    layer, other = cls(D, H, 2, num_particles=K), cls(D, H, 2, num_particles=9, alpha=0.9)
    other.load_state_dict(layer.state_dict())
    layer.num_particles, layer.options = 9, layer.options._replace(alpha=0.9)
    x, outputs = torch.randn(T, N, D), []
    for one in (layer, other):
        torch.manual_seed(3)
        outputs.append(one(x)[0])
    assert torch.equal(*outputs)
    for count, kind in ((2.5, TypeError), (0, ConfigError)):
        with pytest.raises(kind, match="num_particles"):
            layer.num_particles = count
    for wrong in ({"alpha": 2.0}, {"batch_norm": "none"}, {"max_steps": 7}):
        with pytest.raises(ConfigError, match=f"{next(iter(wrong))}: expected"):
            layer.options = layer.options._replace(**wrong)
    with pytest.raises(TypeError, match="unknown option 'noise_scales'; known options: alpha,"):
        cls(D, H, num_particles=K, noise_scales="linear")


@pytest.mark.parametrize(
    ("given", "learns"),
    [({}, True), ({"resampling": "none"}, True), ({"alpha": 1.0}, False),
     ({"resampling": "multinomial"}, False), ({"resampling": "systematic"}, False)],
)  # fmt: skip
def test_when_the_observation_learns(given, learns):
    layer = PFLSTM(D, H, num_particles=K, **given)
    layer(torch.randn(T, N, D))[0].square().sum().backward()
    grads = {name: one.grad is not None for name, one in layer.named_parameters()}
    assert grads.pop("cells.0.weight_observation") == learns
    assert all(grads.values())


@pytest.mark.parametrize("cls", LAYERS)
def test_a_state_goes_through_torchs_tools(cls):
    """torch.load with weights_only, a DataLoader's collation, detach and a plain tuple."""
    layer, x = cls(D, H, 2, num_particles=K).eval(), torch.randn(T, N, D)
    _, state = layer(x)
    stored = io.BytesIO()
    torch.save({"hx": state}, stored)
    stored.seek(0)
    loaded = torch.load(stored, weights_only=True)["hx"]
    assert isinstance(loaded, PFState)
    assert not any(part.requires_grad for part in state.detach() if part is not None)
    outputs = []
    for hx in (state, loaded, state.detach(), tuple(state), list(state)):
        torch.manual_seed(0)
        outputs.append(layer(x, hx)[0])
    assert all(torch.equal(one, outputs[0]) for one in outputs)
    batch = torch.utils.data.default_collate([state, state])
    assert isinstance(batch, PFState)
    assert batch.hidden.shape == (2, *state.hidden.shape)
    assert (batch.cell is None) == (cls is PFGRU)


@pytest.mark.parametrize("cls", LAYERS)
def test_a_bare_layer_is_exported_and_saved(cls):
    layer, x = cls(D, H, num_particles=K).eval(), torch.randn(T, N, D)
    given = given_noise(layer, T, N)
    program = torch.export.export(layer, (x,), given)
    stored = io.BytesIO()
    torch.export.save(program, stored)
    stored.seek(0)
    output, state = torch.export.load(stored).module()(x, **given)
    torch.testing.assert_close(output, layer(x, **given)[0])
    assert isinstance(state, PFState)


@pytest.mark.parametrize("statistics", ["pooled", "per_time"])
@pytest.mark.parametrize(("cls", "bptt"), [(PFLSTM, None), (PFGRU, 2)])
def test_pieces_are_the_whole(cls, bptt, statistics):
    steps, results = 11, []
    x = torch.randn(steps, N, D, dtype=torch.float64)
    layer = cls(D, H, 2, num_particles=K, statistics=statistics, max_steps=7, dtype=torch.float64)
    given = {k: v.double() for k, v in given_noise(layer, steps, N).items()}
    start = {k: v.clone() for k, v in layer.state_dict().items()}
    packed = pack_padded_sequence(x, [11, 9, 4, 2])
    for every in (None, 4):
        layer.load_state_dict(start)
        for train, data in ((True, packed), (True, x), (False, x)):
            layer.train(train).zero_grad()
            output, state = layer(data, bptt=bptt, checkpoint_every=every, **given)
            values = output.data if isinstance(output, PackedSequence) else output
            if train:
                values.square().sum().backward()
            grads = [p.grad for p in layer.parameters() if p.grad is not None]
            parts = [values, state.hidden, *layer.buffers(), *grads]
            results.append([part.detach().clone() for part in parts])
    for whole, pieces in zip(results[:3], results[3:], strict=True):
        for want, got in zip(whole, pieces, strict=True):
            torch.testing.assert_close(got, want)
    with pytest.raises(ConfigError, match="checkpoint_every: expected a multiple of bptt = 3"):
        layer(x, bptt=3, checkpoint_every=4)


def test_update_bn_learns_the_average_of_all_batches():
    layer = PFLSTM(D, H, num_particles=K, momentum=0.25)
    batches = [torch.randn(T, N, D) for _ in range(3)]
    torch.optim.swa_utils.update_bn(batches, layer)
    running = layer.cells[0].running
    assert running.momentum == 0.25
    torch.manual_seed(0)
    torch.optim.swa_utils.update_bn(batches, layer)
    torch.manual_seed(0)
    means = [layer.cells[0].unroll(x, update=False).mean for x in batches]
    torch.testing.assert_close(running.mean, sum(means) / 3)


@pytest.mark.parametrize("statistics", ["pooled", "per_time"])
def test_nan_never_enters_the_running_statistics(statistics):
    layer, x = PFGRU(D, H, num_particles=K, statistics=statistics), torch.randn(T, N, D)
    layer(x)
    before = [b.clone() for b in layer.buffers()]
    x[2, 1] = float("nan")
    layer(x)
    assert all(b.isfinite().all() for b in layer.buffers())
    x[2, 1] = 0.0
    layer(x)
    assert not any(torch.equal(a, b) for a, b in zip(before, layer.buffers(), strict=True))


@pytest.mark.parametrize("statistics", ["pooled", "per_time"])
def test_pieces_keep_a_quarter(statistics):
    """Bytes that autograd keeps for the backward pass, each storage once."""
    layer = PFLSTM(D, 32, num_particles=10, statistics=statistics)
    x, kept = torch.randn(96, N, D), []
    for every in (None, 8):
        storages = {}

        def pack(tensor, storages=storages):
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage  # held, so that no address serves twice
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            layer(x, checkpoint_every=every)
        kept.append(sum(storage.nbytes() for storage in storages.values()))
    assert kept[1] < kept[0] / 4
