"""What the particles of a trained PF-LSTM do on maze10: for :mod:`bench.idle_filter`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from pfrnn.functional.resampling import gather, resample
from pfrnn.functional.types import PFState
from pfrnn.functional.weights import effective_sample_size, normalize
from pfrnn.study.data.maze.maps import load_maze
from pfrnn.study.data.maze.particles import ParticleFilter
from pfrnn.study.data.maze.posterior import ExactFilter
from pfrnn.study.data.maze.simulator import Trajectories
from pfrnn.study.data.sets._maze import MazeProtocol, simulate_split
from pfrnn.study.train import batches

TIMES = (0, 1, 2, 3, 5, 8, 12, 16, 20, 30, 40, 60, 79)
# What is changed in a trained filter: nothing, the weights, the noise, the draw, K.
MODES = ("as trained", "f_obs off", "f_obs x5", "noise off", "no draw", "oracle weights", "K 1")


class Probe(nn.Module):
    """Runs a trained filter step by step and looks at its particles before the draw."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, y: Tensor, mode: str, scale: Any) -> dict[str, Tensor]:
        """Return what is measured, (T, M), map units squared."""
        network, (mean, std) = self.network, (part[:2] for part in scale)
        cell = network.core.cell
        switches, weights, given = cell.switches, cell.weights(), cell.running.given(len(x))
        projected, true = cell.project(network.encoder(x)), y[..., :2] * std + mean
        state = cell.initial_state(x.shape[2], 1 if mode == "K 1" else None)
        shape = state.hidden.shape[1:]
        generator = torch.Generator(x.device).manual_seed(7)
        found: dict[str, list[Tensor]] = {}

        def position(hidden: Tensor) -> Tensor:
            read = network.read_out(hidden.flatten(-3, -2))
            return read.unflatten(-2, hidden.shape[-3:-1])[..., :2] * std + mean

        for t, at in enumerate(zip(*given, strict=True)):
            noise = torch.randn(shape, generator=generator, device=x.device)
            uniforms = torch.rand(shape[:-1], generator=generator, device=x.device)
            noise = noise.expand_as(state.hidden) * (mode != "noise off")
            none = switches._replace(resampling="none")
            moved, _ = cell.step(state, projected[t], noise, None, weights, none, at)
            judged = moved.log_weights - state.log_weights
            place = position(moved.hidden)
            distance = (place - true[t].unsqueeze(-2)).norm(dim=-1)
            if mode == "oracle weights":
                judged = -distance / 0.5
            factor = {"f_obs off": 0.0, "f_obs x5": 5.0}.get(mode, 1.0)
            log_weights = normalize(state.log_weights + factor * judged)
            method = "none" if mode == "no draw" else switches.resampling
            uniforms = uniforms.expand_as(log_weights)
            drawn = resample(log_weights, uniforms, method, switches.alpha)
            hidden, memory = (gather(p, drawn.ancestors) for p in (moved.hidden, moved.cell))
            answer = (drawn.log_weights.exp().unsqueeze(-1) * position(hidden)).sum(-2)
            seen = {"error": (answer - true[t]).square().mean(-1)}
            if mode == "as trained":
                seen |= look(judged, log_weights, place, true[t], distance)
                within = moved.hidden.var(-2).mean(-2) / moved.hidden.flatten(-3, -2).var(-2)
                seen["within"] = within.nan_to_num(0.0).mean(-1, keepdim=True)
                share, noisy = projected[t].unsqueeze(-2), slice(4 * shape[-1], 5 * shape[-1])
                recurrent = weights.recurrent.unsqueeze(-3)[..., noisy]
                variance = (state.hidden @ recurrent + share[..., noisy]).square().mean((-3, -2))
                seen["sigma"] = variance.mean(-1, keepdim=True).sqrt()
                seen["noise_share"] = (variance / (at[1] + 1e-5)).clamp(max=1.0)
            for name, value in seen.items():
                found.setdefault(name, []).append(value.float().mean(-1))
            state = PFState(hidden, memory, drawn.log_weights)
        return {name: torch.stack(values) for name, values in found.items()}


def look(judged: Tensor, log_weights: Tensor, place: Tensor, true: Tensor, distance: Tensor) -> Any:
    """Measure a cloud of particles: each value (M, N)."""
    weight = log_weights.exp()
    centre = (weight.unsqueeze(-1) * place).sum(-2, keepdim=True)
    a = judged - judged.mean(-1, keepdim=True)
    b = distance.mean(-1, keepdim=True) - distance
    size = (a.norm(dim=-1) * b.norm(dim=-1)).clamp(min=1e-12)
    sides = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [10.0, 10.0]], device=true.device)
    images = (sides - true.unsqueeze(-2)).abs()  # the true position and its three mirror images
    near = (place.unsqueeze(-2) - images.unsqueeze(-3)).norm(dim=-1) < 1.0
    share = (weight.unsqueeze(-1) * near).sum(-2)
    return {
        "ess": effective_sample_size(log_weights) / distance.shape[-1],
        "correlation": (a * b).sum(-1) / size,
        "log_weight_sd": judged.std(-1),
        "spread": (weight.unsqueeze(-1) * (place - centre).square()).sum(-2).mean(-1),
        "best_particle": distance.square().min(-1).values / 2,
        "images_covered": near.any(-2).sum(-1),
        **{f"share_image{i}": share[..., i] for i in range(4)},
    }


def probe(run: Any, rows: Any, path: Any, best: Any, validation: Any, scale: Any,
          history: Any) -> list[dict[str, Any]]:  # fmt: skip
    """Look at the particles on the first 256 validation trajectories."""
    index = np.tile(np.arange(min(256, validation.sequences)), (len(rows), 1))
    asked = batches.rows_on(index, validation.device)
    batch = batches.gather(validation, asked.device, batches.cut_of(validation, asked))
    state = {f"network.{k}": v for part in best for k, v in part.items()}
    module, seen = Probe(path.network).eval(), {}
    with torch.no_grad():
        for mode in MODES:
            found = functional_call(module, state, (batch.x, batch.y, mode, scale))
            seen[mode] = {name: value.cpu().numpy() for name, value in found.items()}
    times = [t for t in TIMES if t < len(batch.x)]
    measured = seen["as trained"]
    result = []
    for place, (name, seed, moved) in enumerate(rows):
        chosen = history[history[:, 0, place].argmin(), :, place]
        error = {m: seen[m]["error"][:, place] for m in MODES}
        result.append({
            "run": run, "name": name, "moved": moved, "seed": seed, "epochs": len(history),
            "validation": dict(zip(("all_steps", "last_step", "median"), chosen.round(4).tolist(),
                                   strict=True)),
            "error": {m: [round(float(e.mean()), 4), round(float(e[-1]), 4)]
                      for m, e in error.items()},
            "mean": {k: round(float(v[:, place].mean()), 4) for k, v in measured.items()},
            "at": {k: v[times, place].astype(float).round(4).tolist()
                   for k, v in measured.items()},
        })  # fmt: skip
    return result


def references(seed: int) -> dict[str, Any]:
    """Answer validation trajectories by the exact posterior, and by filters on the true model."""
    maze, protocol = load_maze("maze10"), MazeProtocol()
    whole = simulate_split("maze10", protocol, seed, "validation")
    known = Trajectories(*(field[:256] for field in whole))
    exact = ExactFilter(maze, protocol.world())(known, samples=30, seed=seed)
    true, place = (torch.as_tensor(p).float() for p in (known.position, exact.samples))
    equal = torch.full(place.shape[:-1], -np.log(30.0))
    distance = (place - true.unsqueeze(-2)).norm(dim=-1)
    seen = look(equal, equal, place, true, distance)
    seen["error"] = (torch.as_tensor(exact.mean) - true).square().mean(-1)
    exactly = {name: seen[name].float().mean(0) for name in ("error", "spread", "images_covered")}
    hidden = MazeProtocol(action="command")
    whole = simulate_split("maze10", hidden, seed, "validation")
    known = Trajectories(*(field[:100] for field in whole))
    filters = {}
    for count in (30, 100, 1_000, 3_000):
        answer = ParticleFilter(maze, hidden.world(), count)(known, seed)
        error = np.square(answer - known.position).mean(-1)
        filters[str(count)] = [round(float(e), 4) for e in (error.mean(), error[:, -1].mean())]
    return {
        "exact_posterior": {
            "mean": {name: round(float(v.mean()), 4) for name, v in exactly.items()},
            "last_step": round(float(exactly["error"][-1]), 6),
            "at": {
                name: v[list(TIMES)].double().numpy().round(4).tolist()
                for name, v in exactly.items()
            },
        },
        "true_model_filter_command": filters,
    }


# What the figure shows: a row's run, its name, its label.
SHOWN = (
    ({}, "base", "the paper's filter"),
    ({}, "weighted, scale", "weighted ELBO, f_obs x10"),
    ({"resampling": "none"}, "base", "no resampling"),
    ({"resampling": "none"}, "weighted, scale", "no resampling, weighted ELBO, f_obs x10"),
    ({"resampling": "none"}, "sharp", "no resampling, sharp ELBO"),
)


def figure(record: dict[str, Any], path: Path) -> None:
    """Draw ESS, correlation and mirror images over time: the mean of the seeds."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    names = {"ess": "ESS / K", "correlation": "f_obs and closeness: correlation",
             "images_covered": "images with a particle within 1 (of 4)"}  # fmt: skip
    chart, axes = pyplot.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    for run, name, label in SHOWN:
        rows = [row for row in record["rows"] if row["run"] == run and row["name"] == name]
        for axis, measure in zip(axes, names, strict=True):
            values = np.mean([row["at"][measure] for row in rows], axis=0)
            axis.plot(record["times"], values, marker=".", label=label)
    exact = record["reference"]["exact_posterior"]["at"]["images_covered"]
    axes[2].plot(record["times"], exact, "k--", label="30 draws of the exact posterior")
    for axis, title in zip(axes, names.values(), strict=True):
        axis.set(xlabel="step", title=title)
    axes[2].legend(fontsize=7)
    chart.savefig(path, dpi=80)
