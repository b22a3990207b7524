"""Options of the public functions refuse what isn't of their type, or out of range, by name."""

from __future__ import annotations

import inspect

import pytest
import torch

from pfrnn import functional as pf
from pfrnn.errors import ConfigError
from pfrnn.functional import FilterSwitches, RNNSwitches

T, N, D, K, H = 2, 3, 4, 5, 6
NEVER = [object(), {}, [0.5], torch.tensor([1.0, 2.0]), 1j, "0.5", None, True]
NUMBER = [*NEVER, float("nan"), float("inf")]
SHARE = [*NUMBER, 0.0, 1.5, -1]
LEVEL = [*NUMBER, 0, 1.0, -0.5]
POSITIVE = [*NUMBER, 0, -1.0]
COUNT = [*NEVER, 2.0, 0, -1]
FLAG = [x for x in NEVER if x is not True] + [1, 0]
NAME = ["sfot", *NEVER]


def without_none(values):
    return [value for value in values if value is not None]


log_w = torch.full((N, K), -1.0).log_softmax(-1)
u, p, y = torch.rand(N, K), torch.randn(N, K), torch.randn(N)
steps, hidden = torch.randn(T, N, D), torch.randn(N, K, H)
running = (torch.zeros(H), torch.ones(H))
batch = pf.Statistics(*running, torch.tensor(4.0))
state = pf.PFState(hidden, hidden, log_w)
lstm = pf.PFLSTMWeights(torch.randn(H, 5 * H), torch.randn(H), torch.ones(H), torch.zeros(H))
gru = pf.PFGRUWeights(torch.randn(H, 3 * H), torch.randn(H, H), torch.randn(H))
projected = torch.randn(T, N, 5 * H + 1)
rnn_state = pf.RNNState(torch.zeros(N, H), torch.zeros(N, H))
classes = torch.zeros(T, N, dtype=torch.int64)

USUAL = {
    "activate": {"x": p, "name": "relu"},
    "apply_batch_norm": {"x": hidden, "gain": None, "shift": None, "mode": "feature", "eps": 1e-5,
                         "statistics": running},
    "batch_statistics": {"x": hidden, "mode": "feature"},
    "combined_loss": {"prediction": y, "elbo": y},
    "coverage": {"predictions": p, "log_weights": log_w, "target": y},
    "elbo_loss": {"particle_predictions": torch.randn(T, N, K, D), "target": steps,
                  "kind": "regression"},
    "exponential_time_weights": {"steps": T},
    "filter_update": {"previous": state, "hidden": hidden, "cell": hidden, "log_lik": p,
                      "uniforms": u, "switches": FilterSwitches()},
    "gru_step": {"state": rnn_state, "projected": torch.randn(N, 3 * H),
                 "weights": pf.GRUWeights(torch.randn(H, 2 * H), torch.randn(H, H)),
                 "switches": RNNSwitches()},
    "lstm_step": {"state": rnn_state, "projected": torch.randn(N, 4 * H),
                  "weights": pf.LSTMWeights(torch.randn(H, 4 * H)), "switches": RNNSwitches()},
    "mixture_cdf": {"y": y, "predictions": p, "log_weights": log_w, "scale": 1.0},
    "modes": {"points": torch.randn(N, K, 2), "log_weights": log_w, "bandwidth": 1.0},
    "pf_gru_step": {"state": state._replace(cell=None), "projected": torch.randn(N, 4 * H + 1),
                    "noise": hidden, "uniforms": u, "weights": gru,
                    "switches": FilterSwitches(batch_norm="none")},
    "pf_lstm_step": {"state": state, "projected": projected[0], "noise": hidden, "uniforms": u,
                     "weights": lstm, "switches": FilterSwitches()},
    "prediction_loss": {"prediction": steps, "target": steps, "kind": "regression"},
    "predictive_interval": {"predictions": p, "log_weights": log_w},
    "predictive_quantile": {"predictions": p, "log_weights": log_w, "level": 0.5, "scale": 1.0},
    "quantiles": {"values": p, "log_weights": log_w, "levels": torch.tensor([0.5])},
    "reduce_loss": {"steps": steps[..., 0], "mask": None},
    "resample": {"log_weights": log_w, "uniforms": u, "method": "soft", "ess": torch.ones(N)},
    "run_pf": {"step": pf.pf_lstm_step, "projected": projected, "state": state,
               "noise": torch.randn(T, N, K, H), "uniforms": torch.rand(T, N, K), "weights": lstm,
               "switches": FilterSwitches()},
    "run_rnn": {"step": pf.lstm_step, "projected": torch.randn(T, N, 4 * H), "state": rnn_state,
                "weights": pf.LSTMWeights(torch.randn(H, 4 * H)), "switches": RNNSwitches()},
    "soft_resample": {"log_weights": log_w, "uniforms": u, "alpha": 0.5},
    "unnormalized_correction": {"log_weights": log_w, "alpha": 0.5,
                                "ancestors": torch.zeros(N, K, dtype=torch.int64)},
    "update_running": {"running": running, "batch": batch, "momentum": 0.1},
}  # fmt: skip
REDUCTIONS = dict.fromkeys(("coordinates", "time", "batch"), NAME)
SWITCHES = {"switches": [(), None, {}, "soft", object()]}
CASES = {
    "activate": {"name": NAME},
    "apply_batch_norm": {"mode": NAME, "eps": POSITIVE},
    "batch_statistics": {"mode": [*NAME, "none"]},
    "combined_loss": {"prediction_weight": NUMBER, "beta": NUMBER},
    "coverage": {"levels": [0.5, "0.5", None, (0.5, "x"), (0.0,), [1.0]],
                 "scale": [*NUMBER, -1.0]},
    "elbo_loss": {"kind": NAME, "form": NAME, "time": NAME, "batch": NAME},
    "exponential_time_weights": {"steps": COUNT, "rate": NUMBER},
    "filter_update": SWITCHES, "gru_step": SWITCHES, "lstm_step": SWITCHES,
    "mixture_cdf": {"scale": POSITIVE},
    "modes": {"bandwidth": POSITIVE, "count": COUNT},
    "pf_gru_step": SWITCHES, "pf_lstm_step": SWITCHES,
    "prediction_loss": {"kind": NAME, **REDUCTIONS},
    "predictive_interval": {"level": LEVEL, "scale": [*NUMBER, -1.0]},
    "predictive_quantile": {"level": LEVEL, "scale": [*NUMBER, -1.0]},
    "quantiles": {"levels": [0.5, [0.5], None]},
    "reduce_loss": {"time": NAME, "batch": NAME},
    "resample": {"method": NAME, "alpha": SHARE, "ess_threshold": without_none(SHARE)},
    "run_pf": {**dict.fromkeys(("particles", "belief", "extras", "trusted"), FLAG),
               "bptt": without_none(COUNT), **SWITCHES},
    "run_rnn": {"bptt": without_none(COUNT), **SWITCHES},
    "soft_resample": {"alpha": SHARE},
    "unnormalized_correction": {"alpha": SHARE},
    "update_running": {"momentum": [x for x in SHARE if not isinstance(x, torch.Tensor)]},
}  # fmt: skip
# What isn't an option: tensors and tuples of tensors, and where torch makes a tensor, its words.
TENSORS = {
    "x", "gain", "shift", "statistics", "valid", "prediction", "elbo", "predictions",
    "log_weights", "target", "mask", "particle_predictions", "coordinate_weights", "time_weights",
    "device", "dtype", "previous", "hidden", "cell", "log_lik", "uniforms", "state", "projected",
    "weights", "y", "points", "noise", "values", "ess", "ancestors", "running", "batch", "readout",
    "step", "particles", "weight", "bias", "mean", "variance", "count", "shape",
    "unnormalized_log_weights",
}  # fmt: skip


def test_every_functions_options_are_among_the_cases():
    for name in pf.__all__:
        function = getattr(pf, name)
        if not inspect.isfunction(function):
            continue
        for parameter in inspect.signature(function).parameters:
            loss = name == "reduce_loss" and parameter == "steps"  # a tensor there
            known = parameter in TENSORS or parameter in CASES.get(name, {}) or loss
            assert known, (name, parameter)


@pytest.mark.parametrize(("name", "option"), [(n, o) for n, rest in CASES.items() for o in rest])
def test_options_are_of_their_types(name, option):
    call, usual = getattr(pf, name), USUAL[name]
    call(**usual)
    for value in CASES[name][option]:
        with pytest.raises((TypeError, ConfigError), match=f"^{option}: expected|activation: exp"):
            call(**(usual | {option: value}))


FIELDS = {
    "resampling": NAME, "alpha": SHARE, "ess_threshold": without_none(SHARE), "noise_scale": NAME,
    "activation": NAME, "batch_norm": NAME, "norm_eps": POSITIVE, "gru_noise": NAME,
    "reset_after": FLAG,
}  # fmt: skip


@pytest.mark.parametrize("name", [n for n in CASES if "switches" in CASES[n]])
def test_switches_are_of_their_types(name):
    call, usual = getattr(pf, name), USUAL[name]
    for field in usual["switches"]._fields:
        for value in FIELDS[field]:
            with pytest.raises((TypeError, ConfigError), match=f"^{field}: expected"):
                call(**(usual | {"switches": usual["switches"]._replace(**{field: value})}))


def test_switches_that_exclude_each_other():
    usual = USUAL["pf_gru_step"]
    both = usual["switches"]._replace(gru_noise="reset", reset_after=True)
    with pytest.raises(ConfigError, match="take gru_noise='hidden'"):
        pf.pf_gru_step(**(usual | {"switches": both}))


def test_the_shape_of_uniform_weights():
    for shape in ((), (2, 0), (-1,)):
        with pytest.raises(ConfigError, match="expected"):
            pf.uniform_log_weights(*shape)
    for shape in (("3",), (2.0, 3), ((2, 3),)):
        with pytest.raises(TypeError, match="shape: expected whole numbers"):
            pf.uniform_log_weights(*shape)
    assert pf.uniform_log_weights(0, 3).shape == (0, 3)


def test_uniforms_draw_as_many_particles_as_there_are_weights():
    calls = [
        lambda given: pf.soft_resample(log_w, given, 0.5),
        lambda given: pf.multinomial_resample(log_w, given),
        lambda given: pf.systematic_resample(log_w, given),
        *(lambda given, m=m: pf.resample(log_w, given, m) for m in ("soft", "systematic")),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"uniforms: expected .*\(3, 5\), got \(3, 4\)"):
            call(u[:, :4])
        with pytest.raises(TypeError, match=r"uniforms: expected a tensor \(\.\.\., K\), got 0\.5"):
            call(0.5)


def test_losses_name_the_tensor_that_does_not_fit():
    values, logits = USUAL["prediction_loss"], torch.randn(T, N, K)
    particles = USUAL["elbo_loss"]
    named = {"prediction": logits, "target": classes, "kind": "classification"}
    many = {"particle_predictions": torch.randn(T, N, K, 3), "target": classes,
            "kind": "classification"}  # fmt: skip
    factors, slot = torch.ones(D), {"form": "per_coordinate"}
    for call, given, kind, words in (
        (pf.prediction_loss, values | {"mask": torch.ones(T, N)}, TypeError, "mask: .* of bool"),
        (pf.prediction_loss, values | {"mask": [True]}, TypeError, "mask: expected a tensor"),
        (pf.elbo_loss, particles | {"mask": torch.ones(T, N)}, TypeError, "mask: .* of bool"),
        (pf.prediction_loss, values | {"time_weights": torch.ones(T, 1)}, ValueError, "time_weig"),
        (pf.prediction_loss, values | {"coordinate_weights": torch.ones(1)}, ValueError, "coordin"),
        (pf.elbo_loss, particles | slot | {"coordinate_weights": torch.ones(1)}, ValueError,
         "coordinate_weights: expected"),
        (pf.elbo_loss, particles | slot | {"time_weights": torch.ones(1)}, ValueError, "time_weig"),
        (pf.prediction_loss, named | {"target": classes.float()}, ValueError, "target: .*int64"),
        (pf.elbo_loss, many | {"target": classes.bool()}, ValueError, "target: .*got torch.bool"),
        # These were left unread before.
        (pf.elbo_loss, particles | {"coordinate_weights": factors}, ConfigError, "form='joint'"),
        (pf.elbo_loss, many | slot, ConfigError, "form: expected joint with classification"),
        (pf.prediction_loss, named | {"coordinate_weights": factors}, ConfigError, "leave them"),
    ):  # fmt: skip
        with pytest.raises(kind, match=words):
            call(**given)
    with pytest.raises(TypeError, match="mask: expected a tensor"):
        pf.count_outputs(torch.ones(T, N))


def test_weights_in_half_precision_are_lifted():
    half = log_w.half()
    for call in (
        pf.entropy,
        pf.effective_sample_size,
        lambda w: pf.unnormalized_correction(w, torch.zeros(N, K, dtype=torch.int64), 0.5),
        lambda w: pf.predictive_quantile(p, w, 0.5, 1.0),
    ):
        found, want = call(half), call(log_w)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, want, rtol=1e-2, atol=1e-2)


def test_a_mask_of_a_filter_is_of_bool():
    with pytest.raises(TypeError, match=r"valid: expected a tensor \(T, \.\.\., N\) of bool"):
        pf.run_pf(**USUAL["run_pf"], valid=torch.ones(T, N))
