"""Every switch changes exactly what its name says."""

from __future__ import annotations

import pytest
import torch

from pfrnn.errors import ConfigError
from pfrnn.functional.losses import elbo_loss, prediction_loss
from pfrnn.study.config import Loss, load_config
from pfrnn.study.plan import Setting
from pfrnn.study.train.loss import LossWeights, loss_weights, member_loss
from pfrnn.study.train.members import final_members
from pfrnn.study.train.spec import filter_options
from pfrnn.study.variants import VARIANTS, variant

from . import toys
from .worlds import OneStep, world

SETTING = Setting(0.01, 5.0, 1e-4)
ABLATIONS = [name for name in VARIANTS if name.startswith("pf_lstm_")]


def first_batch(tmp_path, model, name="toy_regression", **patch):
    problem, path = world(tmp_path, name, model, **patch)
    return OneStep(problem, path, final_members(SETTING, 2, 1, name))


def switches_of(tmp_path, model, name="toy_regression"):
    """Everything a variant can change: network structure and loss."""
    _, path = world(tmp_path, name, model)
    return path.spec._asdict() | path.spec.filter._asdict() | path.weights._asdict()


EXPECTED = {
    "pf_lstm_p1": {"particles"},
    "pf_lstm_p5": {"particles"},
    "pf_lstm_p10": {"particles"},
    "pf_lstm_p20": {"particles"},
    "pf_lstm_p30": {"particles"},
    "pf_lstm_noresample": {"resampling", "filter"},
    # rnn belongs to plain cells and is not read by a particle core.
    "pf_lstm_nobnrelu": {"activation", "batch_norm", "filter", "rnn"},
    "pf_lstm_noelbo": {"beta", "keep_particles"},
    "pf_lstm_elboonly": {"prediction"},
}


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablation_changes_what_its_name_says_and_nothing_else(tmp_path, name):
    main = switches_of(tmp_path / "main", "pf_lstm")
    changed = switches_of(tmp_path / "changed", name)
    assert {key for key in main if main[key] != changed[key]} == EXPECTED[name]


@pytest.mark.parametrize("count", [1, 5, 10, 20, 30])
def test_particles_are_as_many_as_the_name_says(tmp_path, count):
    one = first_batch(tmp_path, f"pf_lstm_p{count}")
    predicted, _ = one.losses()
    assert predicted.output.log_weights.shape[-1] == count


def test_one_particle_has_weight_and_effective_size_one(tmp_path):
    one = first_batch(tmp_path, "pf_lstm_p1")
    predicted, _ = one.losses()
    assert torch.equal(predicted.output.log_weights, torch.zeros_like(predicted.output.log_weights))
    assert torch.equal(predicted.output.ess, torch.ones_like(predicted.output.ess))


def test_no_resampling_keeps_every_particle_and_degrades_the_weights(tmp_path):
    one = first_batch(tmp_path, "pf_lstm_noresample")
    predicted, _ = one.losses()
    ancestors = predicted.output.ancestors
    assert torch.equal(ancestors, torch.arange(ancestors.shape[-1]).expand_as(ancestors))
    main, _ = first_batch(tmp_path / "main", "pf_lstm").losses()
    assert not torch.equal(main.output.ancestors, ancestors)


def test_no_elbo_has_the_prediction_losss_gradient_alone(tmp_path):
    _, found = first_batch(tmp_path, "pf_lstm_noelbo").losses()
    main = first_batch(tmp_path / "main", "pf_lstm")
    main.path.weights = LossWeights(1.0, 0.0)
    _, expected = main.losses()
    for key, value in found.items():
        torch.testing.assert_close(value, expected[key], rtol=1e-5, atol=1e-6)


def test_elbo_only_has_the_elbos_gradient_alone(tmp_path):
    one = first_batch(tmp_path, "pf_lstm_elboonly")
    predicted, _ = one.losses()
    batch = one.batch
    expected = elbo_loss(predicted.output.particles, batch.y, "regression", mask=batch.mask)
    assert torch.equal(predicted.loss, expected)
    # The main variant's loss is this plus the prediction loss.
    both, _ = first_batch(tmp_path / "main", "pf_lstm").losses()
    rest_of_it = prediction_loss(both.output.prediction, batch.y, "regression", mask=batch.mask)
    torch.testing.assert_close(both.loss, expected + rest_of_it)
    assert (rest_of_it > 0).all()


def test_no_bn_relu_has_neither_statistics_nor_their_parameters(tmp_path):
    one = first_batch(tmp_path, "pf_lstm_nobnrelu")
    predicted, _ = one.losses()
    assert predicted.output.statistics is None
    assert one.population.buffers == {}
    assert not [key for key in one.population.parameters if "norm" in key]
    main = first_batch(tmp_path / "main", "pf_lstm").population
    assert [key for key in main.parameters if "norm" in key]


def test_lstm_bnrelu_has_batch_norm_and_no_particles(tmp_path):
    one = first_batch(tmp_path, "lstm_bnrelu")
    predicted, _ = one.losses()
    assert predicted.output.statistics is not None
    assert predicted.output.particles is None
    assert one.path.network.core.cell.switches.activation == "relu"


def test_training_moves_the_running_statistics_and_evaluation_does_not(tmp_path):
    one = first_batch(tmp_path, "pf_lstm")
    population = one.population
    before = {key: value.clone() for key, value in population.buffers.items()}
    one.predict()
    assert all(torch.equal(value, before[key]) for key, value in population.buffers.items())
    one.train()
    assert all(not torch.equal(value, before[key]) for key, value in population.buffers.items())
    # The first batch replaces the start: its weight is 1.
    own, _ = first_batch(tmp_path / "again", "pf_lstm").losses()
    mean = own.output.statistics.mean.movedim(0, -2)
    torch.testing.assert_close(population.buffers["core.cell.running.mean"], mean)


def test_weights_of_the_losses():
    half = Loss(prediction=1.0, beta=0.5, reduction=None)
    assert loss_weights(half, variant("pf_lstm")) == (1.0, 0.5, False, False)
    assert loss_weights(half, variant("lstm")) == (1.0, 0.0, False, False)
    assert loss_weights(half, variant("pf_lstm_elboonly")) == (0.0, 0.5, False, False)
    assert loss_weights(half, variant("pf_gru"), "authors_code").release
    assert not loss_weights(half, variant("gru"), "authors_code").release


RELEASE = {
    "activation": "leaky_relu",
    "batch_norm": "particle_slot",
    "noise_scale": "softplus",
    "initial_state": "uniform",
    "gate_features": 32,
    "gru_noise": "reset",
}


def filter_of(**values):
    config = load_config(toys.ROOT / "params.yaml", "smoke", {"filter": values})
    return filter_options(config, variant("pf_gru"), 9)


@pytest.mark.parametrize("name", RELEASE)
def test_a_switch_moves_alone(name):
    before, after = filter_of(), filter_of(switches={name: RELEASE[name]})
    assert after == before._replace(**{name: RELEASE[name]})
    assert after != before


def test_all_switches_moved_are_the_other_fidelity():
    release = filter_of(fidelity="authors_code")
    assert filter_of(switches=RELEASE) == release
    back = filter_of(fidelity="authors_code", switches={"gate_features": 0})
    assert back == release._replace(gate_features=None)


def test_a_reduction_moves_alone():
    other = Loss(prediction=1.0, beta=1.0, reduction="authors_code")
    assert loss_weights(other, variant("pf_lstm"), "paper").release
    assert not loss_weights(other, variant("lstm"), "paper").release
    own = other.model_copy(update={"reduction": "paper"})
    assert loss_weights(own, variant("pf_lstm"), "authors_code") == (1.0, 1.0, False, False)
    for reduction, parts in (
        ("authors_code", (True, True)),
        ("authors_code_undecayed", (True, False)),
        ("paper_decayed", (False, True)),
    ):
        one = other.model_copy(update={"reduction": reduction})
        assert loss_weights(one, variant("pf_lstm"), "paper") == (1.0, 1.0, *parts)
        assert loss_weights(one, variant("bayes_lstm"), "paper") == (1.0, 0.0, False, False)


def test_a_moved_switch_has_a_name_of_its_own():
    values = {"filter": {"switches": {"batch_norm": "particle_slot", "gate_features": 8}}}
    config = load_config(toys.ROOT / "params.yaml", "smoke", values)
    assert config.fidelity_label == "paper with batch_norm=particle_slot, gate_features=8"
    other = {"loss": {"reduction": "authors_code"}}
    config = load_config(toys.ROOT / "params.yaml", "smoke", other)
    assert config.fidelity_label == "paper, loss of authors_code"
    with pytest.raises(ConfigError, match="batch_norm"):
        load_config(toys.ROOT / "params.yaml", "smoke", {"filter": {"switches": {"batchnorm": 1}}})


def test_release_reduces_the_losses_its_own_way(tmp_path):
    """By hand, in loops: time weights, heading a tenth; sums and means."""
    one = first_batch(tmp_path, "pf_gru", "maze10")
    predicted, _ = one.losses()
    output, batch = predicted.output, one.batch
    found = member_loss("localization", LossWeights(1.0, 1.0, True, True), output, batch)
    steps, count = len(output.prediction), output.particles.shape[-2]
    weights = torch.softmax(0.1 * torch.arange(steps), 0)
    coordinates = torch.tensor([1.0, 1.0, 0.1, 0.1])
    for m in range(2):
        prediction, elbo = 0.0, []
        for t in range(steps):
            error = (output.prediction[t, m] - batch.y[t, m]).square() * coordinates
            prediction += float((weights[t] * error.sum()).detach())
            square = (output.particles[t, m] - batch.y[t, m, :, None]).square()
            likelihood = torch.exp(-weights[t] * square).sum(1) / count
            elbo.append(float((-likelihood.log() * coordinates).mean().detach()))
        expected = prediction + sum(elbo) / steps
        assert float(found[m].detach()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("decay", [False, True])
def test_the_time_weights_move_without_the_sums(tmp_path, decay):
    """By hand, in loops: a shape of mean one on the paper's sums, 1 / T on the release's."""
    one = first_batch(tmp_path, "pf_lstm", "maze10")
    predicted, _ = one.losses()
    output, batch = predicted.output, one.batch
    steps, count = len(output.prediction), output.particles.shape[-2]
    weights = LossWeights(1.0, 1.0, not decay, decay)
    found = member_loss("localization", weights, output, batch)
    shape = torch.exp(0.1 * torch.arange(steps))
    shape = shape / shape.mean()
    coordinates = torch.tensor([1.0, 1.0, 0.1, 0.1])
    for m in range(2):
        total = 0.0
        for t in range(steps):
            error = output.prediction[t, m] - batch.y[t, m]
            each = output.particles[t, m] - batch.y[t, m, :, None]
            if decay:
                elbo = -(torch.exp(-each.norm(dim=-1)).sum(-1) / count).log()
                step = shape[t] * (error.square().mean(-1) + elbo).mean()
            else:
                elbo = -(torch.exp(-each.square() / steps).sum(1) / count).log()
                step = (error.square() * coordinates).sum() / steps
                step = step + (elbo * coordinates).mean() / steps
            total += float(step.detach())
        assert float(found[m].detach()) == pytest.approx(total, rel=1e-5)
