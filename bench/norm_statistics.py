"""Are the running batch-norm statistics at fault where a network with batch norm does badly?

    python bench/norm_statistics.py search/pm/pf_lstm/h64-k20-b64-cb646c6a52 --tier gpu

Evaluates the best member of a finished search block on the validation split (never the test) three
ways: with the running statistics that training left, with the average of the statistics of
``--batches`` training batches in their place (parameters fixed), and with the statistics of each
validation batch itself. Where the first two agree, the running mean is sound. Runs on the CPU with
the plain path; its noise is not the fused kernels', so scores differ from the recorded ones.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pfrnn.errors import RecordError
from pfrnn.study.data.store import load_prepared
from pfrnn.study.evaluate.metrics import contributions, metrics
from pfrnn.study.files import write_json
from pfrnn.study.plan import load_plan
from pfrnn.study.train.batches import Batch, DeviceSplit, gather, to_device
from pfrnn.study.train.evaluate import evaluate
from pfrnn.study.train.loss import loss_weights
from pfrnn.study.train.members import Member, search_members
from pfrnn.study.train.path import PlainPath
from pfrnn.study.train.population import Population
from pfrnn.study.train.scores import Predicted
from pfrnn.study.train.spec import network_spec
from pfrnn.study.variants import variant

CPU = torch.device("cpu")
Tensors = dict[str, Tensor]


class OwnStatistics(PlainPath):
    """Evaluates as training does: each batch is normalised by its own statistics."""

    def outputs(self, parameters: Any, buffers: Any, batch: Batch, randomness: Any) -> Predicted:
        """Run an evaluation batch in training mode."""
        return self.forward(parameters, buffers, batch, randomness, True)


def averaged(
    path: PlainPath, states: tuple[Tensors, Tensors], member: Member, train: DeviceSplit, count: int
) -> Tensors:
    """The buffers with running statistics averaged over ``count`` training batches of 64."""
    parameters, buffers = states
    generator = np.random.default_rng(0)
    sums: list[Tensor] = []
    for number in range(count):
        batch = gather(train, generator.permutation(train.sequences)[None, :64])
        drawn = path._training_randomness([member], ("statistics", number), batch)
        own = path.forward(parameters, buffers, batch, drawn, True).output.statistics
        if own is None:
            raise RecordError("expected a network with batch norm, this one has none")
        found = [own.mean.movedim(0, -2).detach(), own.variance.movedim(0, -2).detach()]
        sums = [a + b for a, b in zip(sums, found, strict=True)] if sums else found
    new = dict(buffers)
    for name, total in zip(("mean", "variance"), sums, strict=True):
        full = buffers[f"core.cell.running.{name}"].clone()
        full[..., : total.shape[-2], :] = total / count
        new[f"core.cell.running.{name}"] = full
    return new


def measure(block_id: str, tier: str, results: Path, prepared: Path, count: int) -> dict[str, Any]:
    """Evaluate a block's best member the three ways; validation scores by way."""
    plan = load_plan("params.yaml", tier)
    block = plan.block(block_id)
    file = results / block_id / "best.pt"
    if not file.is_file():
        raise RecordError(f"{file}: missing; run `pfrnn train {block_id}` first")
    model = variant(block.variant)
    config = plan.config_of(block.dataset, model)
    data = load_prepared(prepared / plan.prepared_id(block.dataset))
    spec = network_spec(config, data.card, model, block.hidden_size, block.particles, data.extra)
    arguments = (spec, loss_weights(config.loss, model, config.filter.fidelity), config.training)
    saved = torch.load(file, map_location="cpu", weights_only=True)
    number = int(saved["members"]["number"][0])
    member = search_members(block.settings, config.seed, block.dataset)[number]
    parameters, buffers = (
        {name: value[:1] for name, value in saved[kind].items()}
        for kind in ("parameters", "buffers")
    )
    train, held = (to_device(data.splits[name], CPU) for name in ("train", "validation"))
    truth = data.splits["validation"]

    def score(path: PlainPath, state: Tensors) -> dict[str, float]:
        population = Population.of_best([number], parameters, state, CPU)
        found = evaluate(path, population, [member], held, ("validation",), True)
        return metrics(contributions(data.card, found.prediction[0], truth.y, truth.mask))

    plain = PlainPath(*arguments)
    mean = averaged(plain, (parameters, buffers), member, train, count)
    return {
        "block": block_id,
        "running": score(plain, buffers),
        "averaged": score(plain, mean),
        "own": score(OwnStatistics(*arguments), buffers),
    }


def main(arguments: list[str] | None = None) -> None:
    """Print, and write where asked, the scores of each block."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("blocks", nargs="+", help="ids of finished search blocks")
    parser.add_argument("--tier", default="gpu")
    parser.add_argument("--results", type=Path, help="default: results/TIER")
    parser.add_argument("--prepared", type=Path, default=Path("data/prepared"))
    parser.add_argument("--batches", type=int, default=40, help="training batches averaged")
    parser.add_argument("--output", type=Path, help="a JSON file")
    parsed = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = []
    for block in parsed.blocks:
        results = parsed.results or Path("results") / parsed.tier
        rows.append(measure(block, parsed.tier, results, parsed.prepared, parsed.batches))
        for way in ("running", "averaged", "own"):
            print(block, way, {k: round(v, 3) for k, v in rows[-1][way].items()}, flush=True)
        if parsed.output:
            write_json(parsed.output, {"split": "validation", "device": "cpu", "rows": rows})


if __name__ == "__main__":
    main()
