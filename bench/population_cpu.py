"""Time a population's training step on the CPU against a plain module and against its size.

    python bench/population_cpu.py [--json FILE]

Two questions. Is a population of one as fast as the module trained by hand with torch's own
optimiser? What do four members cost, at the smoke tier's sizes, against one? Ways are timed in
turns and the fastest of several rounds counts, so that other work on the machine disturbs both
alike.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pfrnn.functional.losses import combined_loss, elbo_loss, prediction_loss
from pfrnn.functional.types import RNNSwitches
from pfrnn.nn.options import CellOptions
from pfrnn.study.config import Training
from pfrnn.study.plan import Setting
from pfrnn.study.train.batches import Batch
from pfrnn.study.train.loss import LossWeights
from pfrnn.study.train.members import hyper, search_members
from pfrnn.study.train.networks import ExperimentNetwork, NetworkSpec
from pfrnn.study.train.noise import NoiseShape, draw
from pfrnn.study.train.path import PlainPath
from pfrnn.study.train.population import new_population

FEATURES = 8
CPU = torch.device("cpu")
SETTING = Setting(1e-3, 5.0, 1e-4)
TRAINING = Training(
    max_epochs=1, patience=1, bptt=100, rmsprop_decay=0.99, rmsprop_eps=1e-8, validation_passes=1
)
# variant: (kind, cell, hidden size and particles at smoke size, at the paper's fixed size)
MODELS = {
    "lstm": ("plain", "lstm", (10, 0), (80, 0)),
    "gru": ("plain", "gru", (11, 0), (86, 0)),
    "pf_lstm": ("particle", "lstm", (8, 4), (64, 20)),
    "pf_gru": ("particle", "gru", (8, 4), (64, 20)),
}


def network_spec(kind: str, cell: str, hidden: int, particles: int, steps: int) -> NetworkSpec:
    """The appendix network on vector input."""
    return NetworkSpec(
        task="regression",
        inputs=FEATURES,
        vocabulary=0,
        outputs=1,
        max_length=steps,
        encoder=8 if hidden < 32 else 64,
        layers=1,
        cell=cell,
        kind=kind,
        hidden=hidden,
        particles=particles,
        filter=CellOptions(statistics="per_time", max_steps=steps),
        rnn=RNNSwitches(),
        bptt=100,
        keep_particles=kind == "particle",
    )


def population_step(spec: NetworkSpec, members: int, steps: int, batch: int) -> Callable[[], None]:
    """A training step of a population."""
    path = PlainPath(spec, LossWeights(1.0, float(spec.kind == "particle")), TRAINING)
    people = search_members([SETTING] * members, 1, "bench")
    population = new_population(path.build, people, CPU)
    settings = hyper(people, CPU)
    torch.manual_seed(0)
    data = Batch(
        x=torch.randn(steps, members, batch, FEATURES),
        valid=None,
        y=torch.randn(steps, members, batch, 1),
        mask=torch.ones(steps, members, batch, dtype=torch.bool),
        lengths=(steps,) * members,
    )
    return lambda: path.train_step(population, people, settings, data)


def module_step(spec: NetworkSpec, steps: int, batch: int) -> Callable[[], None]:
    """The same step for one module with torch's optimiser, as one would write it by hand."""
    network = ExperimentNetwork(spec)
    optimiser = torch.optim.RMSprop(network.parameters(), lr=1e-3, alpha=0.99, weight_decay=1e-4)
    torch.manual_seed(0)
    x, y = torch.randn(steps, batch, FEATURES), torch.randn(steps, batch, 1)
    people = search_members([SETTING], 1, "bench")
    shape = NoiseShape(batch, spec.particles, spec.hidden)

    def step() -> None:
        noise = None
        if spec.kind == "particle":
            drawn = draw(people, ("train",), [steps], shape, CPU)
            noise = drawn._replace(normal=drawn.normal[:, 0], uniform=drawn.uniform[:, 0])
        output = network(x, None, noise)
        loss = prediction_loss(output.prediction, y, "regression")
        if output.particles is not None:
            loss = combined_loss(loss, elbo_loss(output.particles, y, "regression"))
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 5.0)
        optimiser.step()

    return step


def fastest(ways: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Milliseconds of the fastest of several rounds, the ways taking turns."""
    best = dict.fromkeys(ways, float("inf"))
    for way in ways.values():
        way()
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            best[name] = min(best[name], 1000 * (time.perf_counter() - start))
    return best


def measure(rounds: int, sizes: Sequence[str] = ("smoke", "paper")) -> list[dict[str, object]]:
    """Time every model at the sizes asked for."""
    rows: list[dict[str, object]] = []
    for model, (kind, cell, smoke, paper) in MODELS.items():
        for size, (hidden, particles), steps, batch in (
            ("smoke", smoke, 20, 16),
            ("paper", paper, 48, 32),
        ):
            if size not in sizes:
                continue
            spec = network_spec(kind, cell, hidden, particles, steps)
            ways = {
                "module": module_step(spec, steps, batch),
                "population_1": population_step(spec, 1, steps, batch),
                "population_4": population_step(spec, 4, steps, batch),
            }
            found = fastest(ways, rounds)
            rows.append(
                {
                    "model": model,
                    "size": size,
                    "hidden": hidden,
                    "particles": particles,
                    "steps": steps,
                    "batch": batch,
                    **{f"{name}_ms": round(value, 2) for name, value in found.items()},
                    "one_to_module": round(found["population_1"] / found["module"], 3),
                    "four_to_one": round(found["population_4"] / found["population_1"], 3),
                }
            )
    return rows


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the rows here")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument(
        "--sizes", nargs="+", choices=("smoke", "paper"), default=["smoke", "paper"]
    )
    parser.add_argument("--threads", type=int, default=1)
    parsed = parser.parse_args()
    torch.set_num_threads(parsed.threads)
    rows = measure(parsed.rounds, parsed.sizes)
    print(f"{'model':8} {'size':6} {'module':>9} {'pop. 1':>9} {'pop. 4':>9}   1/module  4/1")
    for row in rows:
        print(
            f"{row['model']:8} {row['size']:6} {row['module_ms']:9} {row['population_1_ms']:9} "
            f"{row['population_4_ms']:9} {row['one_to_module']:9} {row['four_to_one']:6}"
        )
    if parsed.json:
        parsed.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
