"""Experiment networks: structure by the paper's two texts, parameter counts, map and tokens."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from pfrnn.errors import ConfigError
from pfrnn.functional.belief import mean_particle
from pfrnn.study.train.batches import Batch
from pfrnn.study.train.cores import Randomness
from pfrnn.study.train.encoders import Affine, MapEncoder, TokenEncoder
from pfrnn.study.train.population import Weights
from pfrnn.study.variants import cell_parameters, matched_hidden

from .worlds import world


def stacked(modules):
    states = [dict(module.named_parameters()) for module in modules]
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


@pytest.mark.parametrize("model", ["lstm", "gru", "pf_lstm", "pf_gru"])
def test_cell_parameters_follow_the_texts_equations(tmp_path, model):
    _, path = world(tmp_path, "toy_regression", model)
    found = sum(parameter.numel() for parameter in path.network.core.parameters())
    particle = model.startswith("pf_")
    cell = model.removeprefix("pf_")
    assert found == cell_parameters(cell, particle, 6, path.spec.hidden)


def test_papers_sizes_differ_by_more_than_ten_percent_and_matched_ones_by_less():
    """A fact of the text's own equations (64-d input): -11 % for LSTM, -15 % for GRU."""
    for cell, printed, share in (("lstm", 80, -0.11), ("gru", 86, -0.15)):
        wanted = cell_parameters(cell, True, 64, 64)
        # torch's cells carry a second bias vector: the counts in the paper's comparison.
        biases = (4 if cell == "lstm" else 3) * printed
        rnn = cell_parameters(cell, False, 64, printed) + biases
        assert wanted / rnn - 1 == pytest.approx(share, abs=0.005)
        matched = cell_parameters(cell, False, 64, matched_hidden(cell, 64, 64))
        assert abs(matched / wanted - 1) < 0.02


@pytest.mark.parametrize(("text", "layers"), [("appendix", 1), ("main", 2)])
def test_layers_before_and_after_the_cell(tmp_path, text, layers):
    _, path = world(tmp_path, "toy_regression", "gru", network={"text": text})
    assert len(path.network.encoder.layers) == layers
    assert len(path.network.head) == layers


@pytest.mark.parametrize(("text", "layers"), [("appendix", 1), ("main", 2)])
@pytest.mark.parametrize("model", ["pf_gru", "pf_lstm_noelbo"])
def test_the_prediction_is_the_head_of_the_mean_particle(tmp_path, text, layers, model):
    """Also where a linear head is applied to the particles and the mean taken behind it."""
    _, path = world(tmp_path, "toy_regression", model, network={"text": text})
    network, spec = path.network.double().eval(), path.spec
    assert len(network.head) == layers
    draws = torch.Generator().manual_seed(0)
    steps, sequences = 5, 3
    x = torch.randn(steps, sequences, spec.inputs, generator=draws, dtype=torch.double)
    sizes = (steps, sequences, spec.particles)
    randomness = Randomness(
        torch.randn(*sizes, spec.hidden, generator=draws, dtype=torch.double),
        torch.rand(sizes, generator=draws, dtype=torch.double),
    )
    output = network(x, None, randomness)
    assert (output.particles is None) == (model == "pf_lstm_noelbo")
    core = network.core
    core.keep_particles = True
    found = core(network.encoder(x), None, randomness, False)
    expected = network.read_out(mean_particle(found.particles, found.log_weights))
    torch.testing.assert_close(output.prediction, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dropped", [False, True])
def test_particles_leave_the_loop_only_where_dropout_follows(tmp_path, dropped):
    """Elsewhere the loop applies a linear head itself, and hands out each particle's prediction."""
    _, path = world(tmp_path, "toy_regression", "pf_lstm")
    network, spec = path.network, path.spec
    run, asked = network.core.run, {}

    def watched(*arguments, **options):
        asked.update(options)
        return run(*arguments, **options)

    network.core.run = watched
    sizes = (5, 3, spec.particles)
    factors = torch.ones(*sizes, spec.hidden) if dropped else None
    normal = torch.randn(*sizes, spec.hidden)
    output = network(
        torch.randn(5, 3, spec.inputs), None, Randomness(normal, torch.rand(sizes), None, factors)
    )
    assert asked["particles"] == dropped
    assert (asked["readout"] is None) == dropped
    assert output.particles.shape == (*sizes, spec.outputs)
    mean = (output.log_weights.exp()[..., None] * output.particles).sum(-2)
    torch.testing.assert_close(output.prediction, mean)


def test_population_of_token_encoders_is_each_members_own_table():
    modules = [TokenEncoder(5, 3) for _ in range(2)]
    tokens = torch.randint(0, 5, (4, 2, 6))
    together = functional_call(modules[0], stacked(modules), (tokens,))
    for member, module in enumerate(modules):
        assert torch.equal(together[:, member], module(tokens[:, member]))


def test_the_map_follows_the_data_to_another_device(tmp_path):
    """No member owns the map, so nothing else moves it (torch's meta device stands for a GPU)."""
    _, path = world(tmp_path, "maze10", "gru")
    owned = [*path.network.named_parameters(), *path.network.named_buffers()]
    (name,) = [name for name, _ in path.network.named_buffers() if name.endswith(".map")]
    moved = {key: value.detach().to("meta")[None] for key, value in owned if key != name}
    shape = (path.spec.max_length, 1, 3)
    batch = Batch(
        torch.empty(*shape, path.spec.inputs, device="meta"),
        None,
        torch.empty(*shape, path.spec.outputs, device="meta"),
        torch.ones(shape, dtype=torch.bool, device="meta"),
    )
    path.forward(Weights(moved, {}), batch, None, training=True)
    assert path.network.get_buffer(name).device.type == "meta"


def test_map_encoder_is_a_stack_of_torchs_convolutions():
    cells = torch.randint(0, 3, (10, 10), generator=torch.Generator().manual_seed(0))
    modules = [MapEncoder(cells, 4, 2, 6) for _ in range(3)]
    together = functional_call(modules[0], stacked(modules))
    for member, module in enumerate(modules):
        alone = module()
        torch.testing.assert_close(together[member], alone)
        planes = F.one_hot(cells, 3).permute(2, 0, 1).float()[None]
        for kernel, bias, stride in zip(module.kernels, module.biases, module.strides, strict=True):
            convolution = nn.Conv2d(kernel.shape[1], 4, 3, stride, padding=1)
            convolution.weight, convolution.bias = kernel, bias
            planes = torch.relu(convolution(planes))
        expected = torch.relu(planes.flatten(1) @ module.features.weight + module.features.bias)
        torch.testing.assert_close(alone, expected[0])


def test_map_gradient_reaches_its_own_member_only():
    # Seeded: with some weights no unit of five ReLU layers is active, and no gradient flows.
    torch.manual_seed(0)
    cells = torch.randint(0, 3, (10, 10), generator=torch.Generator().manual_seed(0))
    modules = [MapEncoder(cells, 4, 5, 6) for _ in range(2)]
    parameters = {k: v.detach().requires_grad_() for k, v in stacked(modules).items()}
    functional_call(modules[0], parameters)[1].sum().backward()
    for name, value in parameters.items():
        assert not value.grad[0].any(), name
    assert parameters["kernels.0"].grad[1].any()


def test_convolutions_by_map_size(tmp_path):
    _, path = world(tmp_path, "maze10", "gru")
    assert len(path.network.encoder.map.kernels) == 2
    large = path.spec._replace(map_cells=((0,) * 27,) * 27)
    assert len(type(path.network)(large).encoder.map.kernels) == 5


def test_affine_starts_as_torchs_linear():
    torch.manual_seed(0)
    weight = Affine(16, 2000).weight.detach()
    assert float(weight.abs().max()) <= 0.25
    assert float(weight.abs().max()) > 0.249


def test_longer_sequences_than_planned_are_refused(tmp_path):
    _, path = world(tmp_path, "toy_regression", "gru")
    with pytest.raises(ConfigError, match="at most 6 steps"):
        path.network(torch.zeros(7, 2, 2))


def test_particle_core_refuses_to_run_without_noise(tmp_path):
    _, path = world(tmp_path, "toy_regression", "pf_gru")
    with pytest.raises(ValueError, match="random numbers"):
        path.network(torch.zeros(6, 2, 2))
