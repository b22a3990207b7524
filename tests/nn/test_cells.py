"""Cells: sizes, populations by functional_call, running statistics, state, errors."""

from __future__ import annotations

import io

import pytest
import torch
from torch.func import functional_call, stack_module_state

from pfrnn.errors import ConfigError
from pfrnn.nn import PFGRUCell, PFLSTMCell, PFState
from pfrnn.study.train.plain import GRUCell, LSTMCell

T, N, D, K, H = 6, 4, 3, 5, 8
PF = [PFLSTMCell, PFGRUCell]
OPTIONS = [
    {},
    {"fidelity": "authors_code"},
    {"batch_norm": "none", "activation": "tanh"},
    {"statistics": "per_time", "max_steps": 4},
    {"resampling": "none"},
    {"ess_threshold": 0.5},
]


class Unrolled(torch.nn.Module):
    """A network of one cell, as a training engine would call it."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, *args, **kwargs):
        return self.cell.unroll(*args, **kwargs)


def size(module):
    return sum(p.numel() for p in module.parameters())


def test_parameter_counts():
    # By the text's equations on a 64-d input.
    assert size(PFLSTMCell(64, 64, num_particles=30)) == 41_537
    assert size(PFGRUCell(64, 64, num_particles=30)) == 33_281
    # The release: its PF-LSTM (35,677) adds two biases of 5 * 64 to the same sum; one is enough.
    release = {"num_particles": 30, "fidelity": "authors_code"}
    assert size(PFLSTMCell(64, 64, **release)) == 35_677 - 320
    assert size(PFGRUCell(64, 64, **release)) == 29_149
    assert size(LSTMCell(64, 80)) == 46_720 - 4 * 80  # torch's has two biases
    assert size(GRUCell(64, 86)) == 39_216 - 3 * 86


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("cls", PF)
def test_population_by_functional_call(cls, options):
    torch.manual_seed(0)
    members = [Unrolled(cls(D, H, num_particles=K, dtype=torch.float64, **options)) for _ in "abc"]
    parameters, buffers = stack_module_state(members)
    x = torch.randn(T, 3, N, D, dtype=torch.float64)
    noise = torch.randn(T, 3, N, K, H, dtype=torch.float64)
    uniforms = torch.rand(T, 3, N, K, dtype=torch.float64)
    state = PFState(
        torch.randn(3, N, K, H, dtype=torch.float64),
        torch.randn(3, N, K, H, dtype=torch.float64) if cls is PFLSTMCell else None,
        torch.randn(3, N, K, dtype=torch.float64).log_softmax(-1),
    )
    inputs = (x, state, noise, uniforms)
    out = functional_call(members[0], (parameters, buffers), inputs)
    out.hidden.square().sum().backward()
    for m, member in enumerate(members):
        own = PFState(*[None if part is None else part[m] for part in state])
        alone = member(x[:, m], own, noise[:, m], uniforms[:, m])
        torch.testing.assert_close(out.hidden[:, m], alone.hidden, rtol=1e-10, atol=1e-12)
        alone.hidden.square().sum().backward()
        for name, parameter in member.named_parameters():
            want = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            stacked = parameters[name].grad
            got = torch.zeros_like(want) if stacked is None else stacked[m]
            torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-10)
        for name, buffer in member.named_buffers():
            torch.testing.assert_close(buffers[name][m], buffer, rtol=1e-10, atol=1e-12)
    for member in members:
        member.eval()
    out = functional_call(members[0], (parameters, buffers), inputs)
    for m, member in enumerate(members):
        own = PFState(*[None if part is None else part[m] for part in state])
        alone = member(x[:, m], own, noise[:, m], uniforms[:, m])
        torch.testing.assert_close(out.hidden[:, m], alone.hidden, rtol=1e-10, atol=1e-12)
    assert functional_call(members[0], (parameters, buffers), (x,)).hidden.shape[1] == 3


@pytest.mark.parametrize("batch_norm", ["none", "feature"])
@pytest.mark.parametrize("cls", [LSTMCell, GRUCell])
def test_plain_population(cls, batch_norm):
    torch.manual_seed(0)
    options = {"batch_norm": batch_norm, "activation": "relu", "dtype": torch.float64}
    members = [Unrolled(cls(D, H, **options)) for _ in "ab"]
    parameters, buffers = stack_module_state(members)
    x = torch.randn(T, 2, N, D, dtype=torch.float64)
    out = functional_call(members[0], (parameters, buffers), (x,))
    for m, member in enumerate(members):
        alone = member(x[:, m])
        torch.testing.assert_close(out.hidden[:, m], alone.hidden, rtol=1e-10, atol=1e-12)
        for name, buffer in member.named_buffers():
            torch.testing.assert_close(buffers[name][m], buffer)


@pytest.mark.parametrize("cls", PF)
def test_a_run_is_its_steps(cls):
    torch.manual_seed(1)
    cell = cls(D, H, num_particles=K).eval()
    x, (noise, uniforms) = torch.randn(T, N, D), cell.draw(T, N, K)
    out = cell.unroll(x, noise=noise, uniforms=uniforms)
    state = None
    for t in range(T):
        state = cell(x[t], state, noise[t], uniforms[t])
        torch.testing.assert_close(out.hidden[t], state.hidden)
        torch.testing.assert_close(out.log_weights[t], state.log_weights)
    alone = cell(x[0, 0], None, noise[0, 0], uniforms[0, 0])
    torch.testing.assert_close(alone.hidden, out.hidden[0, 0])


def test_running_statistics_move_once_a_batch():
    torch.manual_seed(2)
    cell = PFLSTMCell(D, H, num_particles=K, momentum=0.25)
    out = cell.unroll(torch.randn(T, N, D))
    size = T * N * K
    torch.testing.assert_close(cell.running.mean, 0.25 * out.mean)
    want = 0.75 + 0.25 * out.variance * size / (size - 1)
    torch.testing.assert_close(cell.running.variance, want)
    before = cell.running.mean.clone()
    cell.unroll(torch.randn(T, N, D), update=False)
    cell.eval().unroll(torch.randn(T, N, D))
    assert torch.equal(before, cell.running.mean)


def test_per_time_statistics_keep_a_set_a_step():
    torch.manual_seed(3)
    cell = PFLSTMCell(D, H, num_particles=K, momentum=1.0, statistics="per_time", max_steps=4)
    x, (noise, uniforms) = torch.randn(3, N, D), cell.draw(3, N, K)
    trained = cell.unroll(x, noise=noise, uniforms=uniforms)
    torch.testing.assert_close(cell.running.mean[:3], trained.step_mean)
    assert torch.all(cell.running.mean[3] == 0)  # never seen: still as it started
    # With momentum 1 and biased variances, evaluation repeats training.
    cell.running.variance[:3] = trained.step_variance
    evaluated = cell.eval().unroll(x, noise=noise, uniforms=uniforms)
    torch.testing.assert_close(evaluated.hidden, trained.hidden)
    mean, _ = cell.running.given(7)
    assert torch.equal(mean[3], mean[6])


@pytest.mark.parametrize("cls", PF)
def test_one_value_in_training_is_defined(cls):
    cell = cls(D, H, num_particles=1)
    torch.nn.init.constant_(cell.norm_shift, 0.5)
    x = torch.randn(1, 1, D, requires_grad=True)
    out = cell.unroll(x)
    out.hidden.sum().backward()
    assert torch.all(torch.isfinite(out.hidden))
    assert torch.all(torch.isfinite(x.grad))
    assert torch.all(out.variance == 0)
    assert torch.all(cell.running.variance == 1)  # one value says nothing about the variance
    assert torch.any(cell.running.mean != 0)


def test_number_of_particles():
    cell = PFLSTMCell(D, H, num_particles=K)
    assert cell.unroll(torch.zeros(T, N, D), num_particles=9).hidden.shape == (T, N, 9, H)
    slots = PFLSTMCell(D, H, num_particles=K, batch_norm="particle_slot")
    with pytest.raises(ConfigError, match="can't become 9"):
        slots.unroll(torch.zeros(T, N, D), num_particles=9)
    with pytest.raises(ConfigError, match="at least 1"):
        PFLSTMCell(D, H, num_particles=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0.0}, r"alpha: expected a number in \(0, 1\], got 0.0"),
        ({"resampling": "sfot"}, "resampling: expected one of soft"),
        ({"fidelity": "papr"}, "fidelity: expected one of paper, authors_code"),
        ({"reset_after": True, "gru_noise": "reset"}, "no reset hidden state"),
        ({"ess_threshold": 1.5}, "ess_threshold"),
        ({"max_steps": 0}, "max_steps: expected at least 1"),
        ({"norm_eps": -1.0}, "norm_eps: expected a number above 0, got -1.0"),
        ({"norm_eps": float("nan")}, "norm_eps: expected a number above 0, got nan"),
    ],
)
def test_refused_options(options, message):
    with pytest.raises(ConfigError, match=message):
        PFGRUCell(D, H, num_particles=K, **options)


def test_initial_state():
    zeros = PFLSTMCell(D, H, num_particles=K).initial_state(N)
    assert torch.all(zeros.hidden == 0)
    assert torch.all(zeros.cell == 0)
    uniform = PFLSTMCell(D, H, num_particles=K, initial_state="uniform").eval().initial_state(N)
    assert 0 <= uniform.hidden.min() < 0.2 < 0.8 < uniform.hidden.max() < 1
    torch.testing.assert_close(uniform.log_weights.exp().sum(-1), torch.ones(N))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("cls", PF)
def test_state_dict_round_trip(cls, options):
    torch.manual_seed(4)
    cell, other = (cls(D, H, num_particles=K, **options) for _ in "ab")
    cell.unroll(torch.randn(T, N, D))
    stream = io.BytesIO()
    torch.save(cell.state_dict(), stream)
    stream.seek(0)
    other.load_state_dict(torch.load(stream, weights_only=True))
    x, (noise, uniforms), state = torch.randn(T, N, D), cell.draw(T, N, K), cell.initial_state(N)
    outs = [c.eval().unroll(x, state, noise, uniforms).hidden for c in (cell, other)]
    assert torch.equal(*outs)


def test_default_generator_decides():
    cell, x = PFLSTMCell(D, H, num_particles=K).eval(), torch.randn(T, N, D)
    results = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        results.append(cell.unroll(x).hidden)
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_repr_names_what_is_unusual():
    text = repr(PFGRUCell(D, H, num_particles=K, alpha=0.3, bias=False))
    assert text == "PFGRUCell(\n  3, 8, num_particles=5, bias=False, alpha=0.3\n  " + (
        "(running): RunningStatistics(momentum=0.1)\n)"
    )
    assert "activation='relu'" in repr(LSTMCell(D, H, activation="relu"))


@pytest.mark.parametrize("cls", [PFLSTMCell, PFGRUCell, LSTMCell, GRUCell])
def test_nan_in_padding_stays_there(cls):
    cell = cls(D, H, num_particles=K) if cls in PF else cls(D, H)
    valid = torch.arange(T)[:, None] < torch.tensor([6, 2, 3, 1])
    x = torch.where(valid.unsqueeze(-1), torch.randn(T, N, D), float("nan"))
    out = cell.unroll(x, valid=valid)
    out.hidden.square().sum().backward()
    assert torch.all(torch.isfinite(out.hidden))
    grads = [p.grad for p in cell.parameters() if p.grad is not None]
    assert all(torch.all(torch.isfinite(g)) for g in grads)
