"""Fresh random filters, and the comparison of the fused path with the float64 reference."""

from __future__ import annotations

from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor

from pfrnn.functional import resampling
from pfrnn.functional.pf_gru import PFGRUWeights, pf_gru_step
from pfrnn.functional.pf_lstm import PFLSTMWeights, pf_lstm_step
from pfrnn.functional.sequence import run_pf
from pfrnn.functional.types import FilterOutput, FilterSwitches, PFState, Readout
from pfrnn.kernels.sequence import run_pf_fused


class Case(NamedTuple):
    gru: bool = False
    steps: int = 8
    members: int | None = 2
    sequences: int = 3
    particles: int = 7
    units: int = 33
    device: str = "cpu"
    seed: int = 0


class Drawn(NamedTuple):
    projected: Tensor
    state: PFState
    noise: Tensor
    uniforms: Tensor
    weights: Any


def draw(case: Case) -> Drawn:
    """Random inputs of the size of a trained network's."""
    generator = torch.Generator(device="cpu").manual_seed(case.seed)

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(*shape, generator=generator) * scale).to(case.device)

    lead = () if case.members is None else (case.members,)
    n, k, h = case.sequences, case.particles, case.units
    tile = (*lead, n, k)
    blocks = 4 if case.gru else 5
    scale = 1.5 / h**0.5
    observation = normal(*lead, h, scale=3 * scale)
    gain, shift = 1 + normal(*lead, h, scale=0.1), normal(*lead, h, scale=0.1)
    if case.gru:
        weights: Any = PFGRUWeights(
            normal(*lead, h, 3 * h, scale=scale), normal(*lead, h, h, scale=scale),
            observation, gain, shift,
        )  # fmt: skip
    else:
        weights = PFLSTMWeights(normal(*lead, h, 5 * h, scale=scale), observation, gain, shift)
    state = PFState(
        normal(*tile, h, scale=0.5),
        None if case.gru else normal(*tile, h, scale=0.5),
        torch.log_softmax(normal(*tile), -1),
    )
    uniforms = torch.rand(case.steps, *tile, generator=generator).to(case.device)
    projected = normal(case.steps, *lead, n, blocks * h + 1)
    return Drawn(projected, state, normal(case.steps, *tile, h), uniforms, weights)


def read_out(drawn: Drawn, outputs: int) -> Readout:
    """A linear head, one a member."""
    generator, shape = torch.Generator().manual_seed(7), drawn.weights.observation.shape
    weight = torch.randn(*shape, outputs, generator=generator)
    bias = torch.randn(*shape[:-1], outputs, generator=generator)
    return Readout(weight.to(drawn.noise.device), bias.to(drawn.noise.device))


class Outcome(NamedTuple):
    values: dict[str, Tensor]
    gradients: dict[str, Tensor]
    output: FilterOutput


def _leaves(drawn: Drawn, dtype: torch.dtype) -> dict[str, Tensor]:
    named = {"projected": drawn.projected}
    for group in (drawn.state, drawn.weights):
        named |= {k: v for k, v in group._asdict().items() if v is not None}
    return {k: v.detach().to(dtype).requires_grad_() for k, v in named.items()}


def evaluate(
    drawn: Drawn,
    switches: FilterSwitches,
    fused: bool,
    ancestors: Tensor | None = None,
    outputs: int = 0,
    **options: Any,
) -> Outcome:
    """Run one path, differentiate a fixed random functional of all its outputs.

    With ``outputs`` a linear head is read out. Without the particles the functional leaves out the
    final state too, so that no gradient of the hidden states reaches the kernels.
    """
    dtype = torch.float32 if fused else torch.float64
    x = _leaves(drawn, dtype)
    state = PFState(x["hidden"], x.get("cell"), x["log_weights"])
    weights = type(drawn.weights)(**{k: x[k] for k in drawn.weights._fields if k in x})
    noise, uniforms = drawn.noise.to(dtype), drawn.uniforms.to(dtype)
    if outputs:
        head = read_out(drawn, outputs)
        x |= {k: v.to(dtype).requires_grad_() for k, v in head._asdict().items()}
        options["readout"] = Readout(x["weight"], x["bias"])
    if fused:
        out = run_pf_fused(x["projected"], state, noise, uniforms, weights, switches, **options)
    else:
        options = {k: v for k, v in options.items() if k not in ("precision", "tuning")}
        step = pf_gru_step if isinstance(weights, PFGRUWeights) else pf_lstm_step
        forced = iter(() if ancestors is None else ancestors)
        draw_own = resampling.ancestors_of if ancestors is None else lambda p, u: next(forced)
        with mock.patch.object(resampling, "ancestors_of", draw_own):
            out = run_pf(step, x["projected"], state, noise, uniforms, weights, switches, **options)
    generator = torch.Generator().manual_seed(99)
    total = torch.zeros((), dtype=torch.float64, device=out.log_weights.device)
    values = {
        "hidden": out.hidden,
        "log_weights": out.log_weights,
        "final_hidden": out.final.hidden,
        "final_cell": out.final.cell,
        "read": out.read,
    }
    if not options.get("particles", True):
        values |= dict.fromkeys(("final_hidden", "final_cell"))
    values = {name: value for name, value in values.items() if value is not None}
    for name, value in values.items():
        weight = torch.randn(value.shape, generator=generator, dtype=torch.float64)
        factor = 0.2 if name == "log_weights" else 1.0
        total = total + factor * (value.double() * weight.to(value.device)).sum()
    total.backward()
    gradients = {k: torch.zeros_like(v) if v.grad is None else v.grad for k, v in x.items()}
    values |= {"mean": out.step_mean, "variance": out.step_variance, "ess": out.ess}
    return Outcome({k: v for k, v in values.items() if v is not None}, gradients, out)


def errors(fast: Outcome, slow: Outcome) -> dict[str, float]:
    """Largest absolute error over largest absolute value, of every output and gradient."""
    pairs = {k: (fast.values[k], slow.values[k]) for k in slow.values}
    pairs |= {f"d {k}": (fast.gradients[k], slow.gradients[k]) for k in slow.gradients}
    found = {}
    for name, (got, expected) in pairs.items():
        gap = (got.double() - expected.double()).abs().max()
        found[name] = float((gap / expected.double().abs().max().clamp(min=1e-30)).detach())
    return found
