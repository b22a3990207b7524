"""Losses against their formulas, per member, masked, and at the numerical edges."""

from __future__ import annotations

import math

import pytest
import torch

from pfrnn.errors import ConfigError
from pfrnn.functional import (
    combined_loss,
    count_outputs,
    elbo_loss,
    exponential_time_weights,
    prediction_loss,
    reduce_loss,
)

T, M, N, K, D, C = 4, 2, 3, 5, 2, 4
DOUBLE = torch.float64


@pytest.fixture
def data():
    g = torch.Generator().manual_seed(0)
    return {
        "prediction": torch.randn(T, M, N, D, generator=g, dtype=DOUBLE),
        "particles": torch.randn(T, M, N, K, D, generator=g, dtype=DOUBLE),
        "target": torch.randn(T, M, N, D, generator=g, dtype=DOUBLE),
        "logits": torch.randn(T, M, N, C, generator=g, dtype=DOUBLE),
        "particle_logits": torch.randn(T, M, N, K, C, generator=g, dtype=DOUBLE),
        "classes": torch.randint(C, (T, M, N), generator=g),
        "mask": torch.arange(T)[:, None, None] < torch.tensor([[4, 2, 1], [3, 0, 4]]),
    }


def by_hand(data, term, masked=False):
    """Sum over time, mean over the sequences with an output, for each member."""
    totals = torch.zeros(M, dtype=DOUBLE)
    for m in range(M):
        used = 0
        for n in range(N):
            steps = [t for t in range(T) if not masked or data["mask"][t, m, n]]
            used += bool(steps)
            totals[m] += sum(term(t, m, n) for t in steps)
        totals[m] /= used
    return totals


@pytest.mark.parametrize("masked", [False, True])
def test_regression(data, masked):
    mask = data["mask"] if masked else None

    def squared(t, m, n):
        return ((data["prediction"][t, m, n] - data["target"][t, m, n]) ** 2).mean()

    def evidence(t, m, n):
        errors = data["particles"][t, m, n] - data["target"][t, m, n]
        p = [math.exp(-math.sqrt(float((e**2).sum()))) for e in errors]
        return -math.log(sum(p) / K)

    got = prediction_loss(data["prediction"], data["target"], "regression", mask=mask)
    torch.testing.assert_close(got, by_hand(data, squared, masked), rtol=1e-12, atol=0)
    got = elbo_loss(data["particles"], data["target"], "regression", mask=mask)
    torch.testing.assert_close(got, by_hand(data, evidence, masked), rtol=1e-12, atol=0)


@pytest.mark.parametrize("masked", [False, True])
def test_classification(data, masked):
    mask = data["mask"] if masked else None

    def entropy(t, m, n):
        return -data["logits"][t, m, n].softmax(-1)[data["classes"][t, m, n]].log()

    def evidence(t, m, n):
        p = data["particle_logits"][t, m, n].softmax(-1)[:, data["classes"][t, m, n]]
        return -p.mean().log()

    got = prediction_loss(data["logits"], data["classes"], "classification", mask=mask)
    torch.testing.assert_close(got, by_hand(data, entropy, masked), rtol=1e-12, atol=0)
    got = elbo_loss(data["particle_logits"], data["classes"], "classification", mask=mask)
    torch.testing.assert_close(got, by_hand(data, evidence, masked), rtol=1e-12, atol=0)


def test_release_form(data):
    weights = exponential_time_weights(T, 0.1, dtype=DOUBLE)
    torch.testing.assert_close(weights[1] / weights[0], torch.tensor(math.exp(0.1), dtype=DOUBLE))
    heading = torch.tensor([1.0, 0.1], dtype=DOUBLE)
    e = data["particles"] - data["target"].unsqueeze(-2)
    p = torch.exp(-weights.view(T, 1, 1, 1, 1) * e**2).mean(-2)
    want = (-p.log() * heading).mean(-1).mean(0).mean(-1)
    got = elbo_loss(
        data["particles"],
        data["target"],
        "regression",
        form="per_coordinate",
        coordinate_weights=heading,
        time_weights=weights,
        time="mean",
    )
    torch.testing.assert_close(got, want, rtol=1e-12, atol=0)
    squares = (data["prediction"] - data["target"]) ** 2 * heading
    want = (weights.view(T, 1, 1) * squares.sum(-1)).sum((0, 2))
    got = prediction_loss(
        data["prediction"],
        data["target"],
        "regression",
        coordinates="sum",
        coordinate_weights=heading,
        time_weights=weights,
        batch="sum",
    )
    torch.testing.assert_close(got, want, rtol=1e-12, atol=0)


def test_without_leading_axes_a_scalar(data):
    got = prediction_loss(data["prediction"][:, 0], data["target"][:, 0], "regression")
    assert got.shape == ()
    assert elbo_loss(data["particles"][:, 0], data["target"][:, 0], "regression").shape == ()


@pytest.mark.parametrize("size", [1, 3])
def test_zero_error_has_a_finite_gradient(size):
    particles = torch.zeros(2, 3, 4, size, requires_grad=True)
    loss = elbo_loss(particles, torch.zeros(2, 3, size), "regression")
    assert loss == 0
    loss.backward()
    assert torch.all(torch.isfinite(particles.grad))


def test_far_particles_do_not_underflow():
    particles = torch.full((1, 1, 3, 1), 1e4, requires_grad=True)
    loss = elbo_loss(particles, torch.zeros(1, 1, 1), "regression")
    torch.testing.assert_close(loss, torch.tensor(1e4))
    loss.backward()
    torch.testing.assert_close(particles.grad, torch.full_like(particles, 1 / 3))
    logits = torch.tensor([[[[1e4, -1e4]]]], requires_grad=True)
    loss = elbo_loss(logits, torch.tensor([[1]]), "classification")
    torch.testing.assert_close(loss, torch.tensor(2e4))


def test_nan_in_padding_does_not_spread():
    prediction = torch.ones(2, 1, 1, requires_grad=True)
    target = torch.tensor([0.0, float("nan")]).view(2, 1, 1)
    mask = torch.tensor([[True], [False]])
    assert prediction_loss(prediction, target, "regression", mask=mask) == 1


def test_combination():
    one, two = torch.tensor([1.0, 3.0]), torch.tensor([2.0, 4.0])
    assert combined_loss(one, two, 1.0, 0.5).tolist() == [2.0, 5.0]
    assert combined_loss(one, None).tolist() == [1.0, 3.0]
    # A loss that is switched off may be infinite without spoiling the sum.
    assert combined_loss(one, two * torch.inf, 1.0, 0.0).tolist() == [1.0, 3.0]
    assert combined_loss(one * torch.inf, two, 0.0, 1.0).tolist() == [2.0, 4.0]


def test_a_mask_may_be_counted_before(data):
    """Once for several losses; the numbers are those of the mask itself, bit for bit."""
    counted = count_outputs(data["mask"])
    assert torch.equal(counted.sequences, torch.tensor([3, 2]))
    steps = data["prediction"][..., 0]
    for time in ("sum", "mean"):
        for batch in ("sum", "mean"):
            expected = reduce_loss(steps, data["mask"], time, batch)
            assert torch.equal(reduce_loss(steps, counted, time, batch), expected)


def test_a_masked_mean_over_time_by_hand():
    """Two sequences with one and two outputs of three steps, and one without any."""
    error = torch.tensor([[1.0, 2.0, 9.0], [9.0, 4.0, 9.0], [9.0, 9.0, 9.0]])
    mask = torch.tensor([[True, True, False], [False, True, False], [False, False, False]])
    zero = torch.zeros(3, 3, 1)
    given = (error.sqrt().unsqueeze(-1), zero, "regression")
    # (1 / 1 + (2 + 4) / 2) over the two that have one; sums: (1 + 6) / 2.
    assert prediction_loss(*given, mask=mask, time="mean").item() == pytest.approx(2.0)
    assert prediction_loss(*given, mask=mask).item() == pytest.approx(3.5)
    assert prediction_loss(*given, mask=mask, time="mean", batch="sum").item() == pytest.approx(4.0)
    assert prediction_loss(*given, time="mean").item() == pytest.approx(error.mean().item())


@pytest.mark.parametrize("name", ["time", "batch", "coordinates"])
def test_an_unknown_reduction_is_no_sum(name):
    x = torch.zeros(3, 2, 1)
    with pytest.raises(ConfigError, match=f"{name}: expected one of sum, mean, got 'avg'"):
        prediction_loss(x, x, "regression", **{name: "avg"})
    if name != "coordinates":
        with pytest.raises(ConfigError, match=f"{name}: expected one of sum, mean, got 'avg'"):
            elbo_loss(x.unsqueeze(-2), x, "regression", **{name: "avg"})


def test_what_would_be_broadcast_is_refused():
    prediction, particles = torch.zeros(3, 4, 1), torch.zeros(3, 4, 5, 1)
    classes, mask = torch.zeros(3, 4, dtype=torch.int64), torch.ones(3, 4, dtype=torch.bool)
    for wrong in (torch.zeros(3, 4, 2), torch.zeros(3, 4), torch.zeros(3, 1, 1)):
        with pytest.raises(ValueError, match=r"target: expected \(3, 4, 1\), got"):
            prediction_loss(prediction, wrong, "regression")
        with pytest.raises(ValueError, match=r"target: expected \(3, 4, 1\), got"):
            elbo_loss(particles, wrong, "regression")
    for loss, given in ((prediction_loss, prediction), (elbo_loss, particles)):
        with pytest.raises(ValueError, match=r"target: expected \(3, 4\), got \(3, 1\)"):
            loss(given, classes[:, :1], "classification")
        with pytest.raises(ValueError, match=r"mask: expected \(3, 4\), got \(3, 1\)"):
            loss(given, classes, "classification", mask=mask[:, :1])
    with pytest.raises(ConfigError, match="form: expected one of joint, per_coordinate, got"):
        elbo_loss(particles, prediction, "regression", form="each")


@pytest.mark.parametrize("dynamic", [None, True])
def test_weights_that_change_compile_in_one_graph(dynamic):
    """As beta does where it is annealed: a check must be something that the compiler can follow."""

    def total(prediction, elbo, weight, rate):
        weights = exponential_time_weights(T, rate)
        return combined_loss(prediction, elbo, 1.0, weight) * weights.sum()

    torch.compiler.reset()
    compiled = torch.compile(total, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    prediction, elbo = torch.randn(2).unbind()
    for value in (1.0, 0.5, 0.7):
        found = compiled(prediction, elbo, value, value)
        torch.testing.assert_close(found, total(prediction, elbo, value, value))
    torch.compiler.reset()


@pytest.mark.parametrize("form", ["joint", "per_coordinate"])
@pytest.mark.parametrize("given", [math.nan, math.inf])
def test_a_masked_target_moves_neither_loss_nor_gradient(data, form, given):
    """0 times the gradient of a NaN is NaN: the usual idiom is y[missing] = nan."""
    mask = data["mask"]

    def run(missing):
        target = torch.where(mask.unsqueeze(-1), data["target"], missing)
        at = {name: data[name].clone().requires_grad_(True) for name in ("prediction", "particles")}
        loss = prediction_loss(at["prediction"], target, "regression", mask=mask)
        loss = loss + elbo_loss(at["particles"], target, "regression", mask=mask, form=form)
        loss.sum().backward()
        return loss.detach(), at["prediction"].grad, at["particles"].grad

    for found, expected in zip(run(given), run(0.0), strict=True):
        assert torch.isfinite(found).all()
        assert torch.equal(found, expected)


def test_masked_classes_may_be_anything(data):
    mask = data["mask"]
    classes = torch.where(mask, data["classes"], -100)
    logits = data["logits"].clone().requires_grad_(True)
    got = prediction_loss(logits, classes, "classification", mask=mask)
    expected = prediction_loss(data["logits"], data["classes"], "classification", mask=mask)
    assert torch.equal(got, expected)
    got.sum().backward()
    assert torch.isfinite(logits.grad).all()
    got = elbo_loss(data["particle_logits"], classes, "classification", mask=mask)
    expected = elbo_loss(data["particle_logits"], data["classes"], "classification", mask=mask)
    assert torch.equal(got, expected)
