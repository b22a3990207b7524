"""Time epochs of a block through the real training loop: captured, launched one by one, plain.

    python bench/epochs.py --output bench/epochs.json --variants lstm pf_lstm pf_gru

For each variant a block of ``--members`` points of the grid trains on a real set (the mazes are
simulated, the others need their raw files below ``--folder``), with its validation, records and
checkpoints; its row has the ``variant`` that trained beside the one ``asked`` for (PF-LSTM of five
particles is pf_lstm, of that size). The first epoch compiles, captures and isn't counted; the
others give seconds an epoch and ms a model and step, validation included. ``step_ms`` times
training steps alone. The plain module beside them (:mod:`bench.plain_port`; cuDNN for LSTM and GRU)
is one model in eager torch. Rows are written as they come.
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.blocks import Ask, Opened, environment, machine, open_block, sizes_of, wait
from bench.plain_port import PlainPFGRU, PlainPFLSTM
from pfrnn.study.files import write_json
from pfrnn.study.train.batches import epoch_orders
from pfrnn.study.train.device import peak_memory
from pfrnn.study.train.members import hyper
from pfrnn.study.train.population import new_population
from pfrnn.study.train.trainer import BlockTrainer

# Ways to compute a block: values of PFRNN_KERNELS and PFRNN_GRAPHS.
WAYS = {"captured": ("auto", "1"), "launched": ("auto", "0"), "plain kernels": ("plain", "1")}
WARM = 4


def epoch_row(opened: Opened, folder: Path, device: torch.device) -> dict[str, Any]:
    """Train a block; its seconds an epoch, from the second on, and the whole run's.

    ``best`` says by member what a run of many epochs is good for beside its time: whether, and
    when, validation stopped getting better.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    trainer = BlockTrainer(opened.problem, opened.path, opened.members, folder, "bench")
    state = trainer.run()
    ends = {row["epoch"]: row["seconds"] for row in state.history}
    times = [ends[epoch] - ends[epoch - 1] for epoch in sorted(ends) if epoch > 1]
    train, batch = opened.problem.train.sequences, opened.problem.batch_size
    steps, members = math.ceil(train / batch), len(opened.members)
    seconds = statistics.median(times)
    return {
        "path": opened.path.name,
        "reason": opened.path.reason,
        "graph": opened.path.graphs.summary if opened.path.graphs else "off",
        "notes": state.notes,
        "first_epoch_s": ends[1],
        "updates": steps * len(ends),
        "run_s": state.seconds,
        "epoch_s": seconds,
        "ms_per_model_and_step": 1e3 * seconds / steps / members,
        "peak_gib": peak_memory(device) / 2**30,
        "status": sorted({one.status for one in state.progress}),
        "best": [
            {
                "learning_rate": member.setting.learning_rate,
                "epoch": one.best_epoch,
                "val_score": one.score,
            }
            for member, one in zip(opened.members, state.progress, strict=True)
        ],
    }


def step_ms(opened: Opened, steps: int, device: torch.device) -> float:
    """Milliseconds of a training step of the whole population, after a few that don't count."""
    problem, path = opened.problem, opened.path
    population = new_population(path.build, opened.members, device)
    settings = hyper(opened.members, device)
    orders = epoch_orders(opened.members, 1, problem.train.sequences)
    rows = list(problem.train.batches(orders, problem.batch_size))
    rows = rows[: max(1, problem.train.sequences // problem.batch_size)]
    times = []
    for number in range(WARM + steps):
        wait(device)
        start = time.perf_counter()
        path.train_on(population, opened.members, settings, problem.train, rows[number % len(rows)])
        wait(device)
        times.append(1e3 * (time.perf_counter() - start))
    path.release()
    return statistics.median(times[WARM:])


class PlainModel(nn.Module):
    """Linear encoder, the plain cell, linear head."""

    def __init__(self, opened: Opened) -> None:
        super().__init__()
        spec = opened.path.spec
        made: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU}
        arguments = [spec.encoder, spec.hidden]
        if spec.kind == "particle":
            made = {"lstm": PlainPFLSTM, "gru": PlainPFGRU}
            arguments.append(spec.particles)
        self.encoder = nn.Linear(spec.inputs, spec.encoder)
        self.core = made[spec.cell](*arguments)
        self.head = nn.Linear(spec.hidden, spec.outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(T, N, D) -> (T, N, C)."""
        found = self.core(torch.relu(self.encoder(x)))
        return self.head(found[0] if isinstance(found, tuple) else found)


def plain_ms(opened: Opened, steps: int, device: torch.device) -> float | None:
    """Milliseconds of one plain module's training step; None for tokens and classes."""
    spec, train = opened.path.spec, opened.problem.train
    if spec.vocabulary or spec.task == "classification":
        return None
    model = PlainModel(opened).to(device)
    optimiser = torch.optim.RMSprop(model.parameters(), lr=3e-4)
    rows = slice(0, opened.problem.batch_size)
    x, y = train.x[rows].transpose(0, 1).contiguous(), train.y[rows].transpose(0, 1)
    times = []
    for _ in range(2 + steps):
        wait(device)
        start = time.perf_counter()
        optimiser.zero_grad()
        (model(x) - y).square().mean(-1).sum(0).mean().backward()
        optimiser.step()
        wait(device)
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times[2:])


def measure(parsed: argparse.Namespace, folder: Path, device: torch.device) -> dict[str, Any]:
    """Measure every variant in every way and write the rows as they come."""
    result: dict[str, Any] = {**machine(device), "rows": []}
    patch: dict[str, Any] = sizes_of(parsed.data, parsed.train, parsed.validation)
    patch["training"] = {"max_epochs": parsed.epochs, "patience": parsed.epochs}
    for model in parsed.variants:
        ask = Ask(parsed.data, model, parsed.batch, parsed.members, tier=parsed.tier,
                  overrides=patch)  # fmt: skip
        plain: float | None = None
        for way in parsed.ways:
            gc.collect()
            kernels, graphs = WAYS[way]
            with environment(PFRNN_KERNELS=kernels, PFRNN_GRAPHS=graphs):
                opened = open_block(ask, folder, device)
                row: dict[str, Any] = {"data": parsed.data, "asked": model}
                row |= {"variant": opened.variant, "way": way}
                row |= {"hidden": opened.path.spec.hidden, "particles": opened.path.spec.particles}
                row |= {"members": parsed.members, "batch": parsed.batch}
                row["train"] = opened.problem.train.sequences
                with tempfile.TemporaryDirectory() as records:
                    row |= epoch_row(opened, Path(records), device)
                row["step_ms"] = step_ms(opened, parsed.steps, device)
            if plain is None:
                plain = plain_ms(opened, parsed.plain_steps, device)
            row["plain_module_ms"] = plain
            if plain is not None:
                row["times_plain"] = plain / row["ms_per_model_and_step"]
            result["rows"].append(row)
            write_json(parsed.output, result)
            print({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()},
                  flush=True)  # fmt: skip
    return result


def main(arguments: list[str] | None = None) -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--output", type=Path, default=Path("epochs.json"))
    parser.add_argument("--data", default="maze10")
    parser.add_argument("--variants", nargs="+", default=["lstm", "pf_lstm", "pf_gru"])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["captured", "launched"])
    parser.add_argument("--members", type=int, default=12)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--train", type=int, help="training sequences; the protocol's by default")
    parser.add_argument("--validation", type=int, help="validation sequences of a maze, likewise")
    parser.add_argument("--epochs", type=int, default=4, help="the first one isn't counted")
    parser.add_argument("--steps", type=int, default=20, help="timed alone")
    parser.add_argument("--plain-steps", type=int, default=3)
    parser.add_argument("--tier", default="paper", help="whose sizes and protocols")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--folder", type=Path, help="prepared data go here; else a temporary one")
    parsed = parser.parse_args(arguments)
    if parsed.epochs < 2:
        parser.error("--epochs: expected at least 2, because the first isn't counted")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        measure(parsed, parsed.folder or Path(temporary), torch.device(parsed.device))


if __name__ == "__main__":
    main()
