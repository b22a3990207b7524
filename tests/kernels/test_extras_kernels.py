"""Without the extras a run leaves out what a training step doesn't read, and nothing else."""

from __future__ import annotations

import pytest
import torch

from pfrnn.functional.pf_gru import pf_gru_step
from pfrnn.functional.pf_lstm import pf_lstm_step
from pfrnn.functional.sequence import run_pf
from pfrnn.functional.types import FilterSwitches
from pfrnn.kernels.sequence import run_pf_fused

from .filter_cases import Case, draw


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("fused", [False, True], ids=["reference", "fused"])
@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
def test_what_is_left_out(device, gru, fused, padded):
    steps, members, sequences, particles = 3, 2, 3, 4
    drawn = draw(Case(gru, steps, members, sequences, particles, 16, device))
    valid = None
    if padded:
        lengths = torch.tensor([[3, 1, 2], [2, 3, 3]], device=device)
        valid = torch.arange(steps, device=device)[:, None, None] < lengths
    step = pf_gru_step if gru else pf_lstm_step
    found = []
    for extras in (True, False):
        projected = drawn.projected.clone().requires_grad_()
        arguments = (projected, drawn.state, drawn.noise, drawn.uniforms, drawn.weights)
        switches, options = FilterSwitches(), {"valid": valid, "extras": extras}
        if fused:
            output = run_pf_fused(*arguments, switches, precision="ieee", **options)
        else:
            output = run_pf(step, *arguments, switches, **options)
        (output.hidden.square().sum() + output.log_weights.sum()).backward()
        found.append((output, projected.grad))
    (whole, expected), (rest, gradient) = found
    if fused or device == "cpu":
        assert torch.equal(gradient, expected)
    else:
        # Back through its gather the reference adds with atomics on a GPU: in no fixed order, so
        # that two runs of it agree to rounding only.
        gap = (gradient - expected).abs().max()
        assert gap <= 1e-6 * expected.abs().max(), float(gap)
    names = ("hidden", "log_weights", "ancestors", "ess", "step_mean", "step_variance")
    assert all(torch.equal(getattr(rest, name), getattr(whole, name)) for name in names)
    assert torch.equal(rest.final.hidden, whole.final.hidden)
    assert torch.equal(rest.final.log_weights, whole.final.log_weights)
    assert whole.ancestors.dtype == torch.int64
    assert None not in (whole.mean, whole.variance, whole.count)
    assert (rest.mean, rest.variance, rest.count) == (None, None, None)
    if fused:
        assert rest.final.cell is None
        assert (whole.final.cell is None) == gru
        assert isinstance(rest.step_count, float) != padded
    counts = torch.as_tensor(rest.step_count, device=device).expand(steps, members)
    assert torch.equal(counts, whole.step_count)
