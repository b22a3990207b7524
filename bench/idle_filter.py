"""Find the property of PF-LSTM that makes its filter idle on maze10 (docs/idle_filter.md).

    python bench/idle_filter.py [--output idle_filter.json] [--epochs 69] [--seeds 1 2] [--tiny]
    python bench/idle_filter.py --figure docs/idle_filter.png --output bench/idle_filter.json

Trains PF-LSTM with one or a few properties moved, several members side by side, and looks at the
particles of each member's best state on validation data. No test data are read.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.blocks import machine
from bench.idle_particles import TIMES, figure, probe, references
from pfrnn.functional.losses import prediction_loss, reduce_loss, safe_norm
from pfrnn.functional.types import RNNSwitches
from pfrnn.kernels.graph import CudaCapture
from pfrnn.nn.cells import PFLSTMCell
from pfrnn.nn.options import CellOptions
from pfrnn.study.data.maze.maps import load_maze
from pfrnn.study.data.sets._maze import MazeProtocol, make_split, simulate_split, target_scale
from pfrnn.study.plan import Setting, load_plan
from pfrnn.study.train import batches, own
from pfrnn.study.train.choose import particle_path
from pfrnn.study.train.evaluate import Predicted
from pfrnn.study.train.graphs import Graphs
from pfrnn.study.train.loss import LossWeights
from pfrnn.study.train.members import final_members, hyper
from pfrnn.study.train.population import new_population
from pfrnn.study.train.spec import NetworkSpec

SEED = 2020
BOTH = {"weighted": 1, "scale": 10}
# Of a population: its static properties, and those of each member. scale: f_obs is multiplied by
# it; initial: f_obs begins multiplied by it; beta: weight of the ELBO; weighted: the ELBO is
# the weighted mean; tau: width of the ELBO's likelihood; noise: added to the noise scale's bias.
RUNS: tuple[tuple[dict[str, Any], dict[str, dict[str, float]]], ...] = (
    ({}, {"base": {}, "scale": {"scale": 10}, "rate": {"scale": 10, "initial": 0.1},
          "no ELBO": {"beta": 0}, "noise": {"noise": 1}}),
    ({}, {"sharp": {"tau": 0.3}, "weighted": {"weighted": 1}, "weighted, scale": BOTH,
          "weighted, scale, sharp": {**BOTH, "tau": 0.3},
          "weighted, scale, sharp, noise": {**BOTH, "tau": 0.3, "noise": 1}}),
    ({"alpha": 0.1}, {"base": {}, "weighted, scale": BOTH}),
    ({"action": "command"}, {"base": {}, "weighted, scale": BOTH}),
    ({"hidden": 8}, {"base": {}, "weighted, scale": BOTH}),
    ({"resampling": "none"}, {"base": {}, "weighted, scale": BOTH}),
    ({"resampling": "none"}, {"weighted": {"weighted": 1}, "scale": {"scale": 10},
     "sharp": {"tau": 0.3}, "weighted, scale, sharp": {**BOTH, "tau": 0.3}}),
)  # fmt: skip


class ScaledCell(PFLSTMCell):
    """PF-LSTM whose f_obs is multiplied by a constant for each member."""

    scale: Tensor | None = None

    def weights(self) -> Any:
        """Return the step's weights."""
        found = super().weights()
        scale = 1.0 if self.scale is None else self.scale.unsqueeze(-1)
        return found._replace(observation=found.observation * scale)


own.CELLS["scaled"] = ScaledCell


def forward(path: Any, knobs: dict[str, Tensor], weights: Any, batch: Any, drawn: Any,
            training: bool) -> Predicted:  # fmt: skip
    """Run all members: prediction + beta * ELBO, the ELBO by the filter's weights where asked."""
    path.network.to(batch.x.device).train(training)
    state = {**weights.parameters, **weights.buffers}
    output = functional_call(path.network, state, (batch.x, batch.valid, drawn))
    distance = safe_norm(output.particles - batch.y.unsqueeze(-2))
    log_k = math.log(distance.shape[-1])
    wide = {name: value[:, None, None] for name, value in knobs.items()}
    prior = wide["weighted"] * (output.log_weights + log_k)
    elbo = reduce_loss(log_k - torch.logsumexp(prior - distance / wide["tau"], -1), None)
    loss = prediction_loss(output.prediction, batch.y, "regression") + knobs["beta"] * elbo
    return Predicted(output, loss)


def train(run: dict[str, Any], members: dict[str, Any], args: Any) -> list[dict[str, Any]]:
    """Train one population and probe each member's best state on validation data."""
    sizes = {"train": 64, "validation": 32, "steps": 6} if args.tiny else {"train": 9984}
    protocol = MazeProtocol(**sizes, action=run.get("action", "realised"), test=1)
    maze, device = load_maze("maze10"), torch.device(args.device)
    unit = target_scale(maze)
    train_split, validation = (
        batches.to_device(make_split(simulate_split("maze10", protocol, SEED, name), protocol,
                                     *unit, 0), device)
        for name in ("train", "validation")
    )  # fmt: skip
    scale = [torch.tensor(part, dtype=torch.float32, device=device) for part in unit]
    options = {name: run[name] for name in ("alpha", "resampling") if name in run}
    spec = NetworkSpec(
        "localization", 8, 0, 4, protocol.steps, 64, 1, "lstm", "particle", run.get("hidden", 64),
        30, CellOptions(statistics="per_time", max_steps=protocol.steps, **options),
        RNNSwitches(), 100, True, 8, tuple(tuple(map(int, row)) for row in maze.grid), own="scaled",
    )  # fmt: skip
    training = load_plan("params.yaml", "gpu").config.for_dataset("maze10").training
    path: Any = particle_path(spec, LossWeights(1.0, 1.0), training, device)
    path.graphs = Graphs(CudaCapture) if device.type == "cuda" else None
    rows = [(name, seed, moved) for name, moved in members.items() for seed in args.seeds]
    usual = {"beta": 1.0, "weighted": 0.0, "tau": 1.0, "scale": 1.0}
    knobs = {
        name: torch.tensor([float(moved.get(name, value)) for *_, moved in rows], device=device)
        for name, value in usual.items()
    }
    runs = [
        final_members(Setting(5e-4, 5.0, 1e-4), seed, SEED, "maze10")[-1] for _, seed, _ in rows
    ]
    runs = [one._replace(number=number) for number, one in enumerate(runs)]
    population = new_population(path.build, runs, device)
    for place, (*_, moved) in enumerate(rows):
        population.parameters["core.cell.weight_observation"][place] *= moved.get("initial", 1.0)
        bias = population.parameters["core.cell.bias"][place]
        bias[4 * spec.hidden : 5 * spec.hidden] += moved.get("noise", 0.0)
    path.network.core.cell.scale = knobs["scale"]
    path.forward = functools.partial(forward, path, knobs)
    settings, history = hyper(runs, device), []
    best = torch.full((len(rows),), math.inf, device=device)
    every = np.tile(np.arange(validation.sequences), (len(rows), 1))
    for epoch in range(1, args.epochs + 1):
        orders = batches.epoch_orders(runs, epoch, train_split.sequences)
        for part in train_split.batches(orders, 64):
            path.train_on(population, runs, settings, train_split, part)
        errors = []
        for number, part in enumerate(validation.batches(every, 250)):
            axes = ("validation", 0, number)
            found = path.score_on(population.current, runs, validation, part, axes).prediction
            wrong = (found - validation.y[part.device]) * scale[1]
            errors.append(wrong[..., :2].square().mean(-1))
        error = torch.cat(errors, 1)
        score, last = error.mean((1, 2)), error[:, :, -1]
        population.remember_best((score < best) & population.finite)
        best = torch.minimum(best, score.nan_to_num(math.inf))
        history.append(torch.stack([score, last.mean(1), last.median(1).values]).tolist())
        population.start_epoch()
    return probe(run, rows, path, population.best, validation, scale, np.array(history))


def main(arguments: list[str] | None = None) -> None:
    """Train all populations, one after another, and write what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("idle_filter.json"))
    parser.add_argument("--epochs", type=int, default=69)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tiny", action="store_true", help="a check that it runs, no result")
    parser.add_argument("--figure", type=Path, help="only draw what --output holds")
    args = parser.parse_args(arguments)
    if args.figure:
        figure(json.loads(args.output.read_text()), args.figure)
        return
    rows = [row for run, members in RUNS for row in train(run, members, args)]
    record = {"device": machine(torch.device(args.device)), "data": "simulated", "times": TIMES}
    record |= {"rows": rows, "reference": references(SEED)}
    args.output.write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
