"""Compare the validation curves of two compute paths over paired seeds.

    python bench/curves.py --output bench/curves.json --variant pf_lstm --epochs 15

Every way trains the same repetitions (initial weights, data order) on the same data; the filter's
noise is another one, because the fused kernels have their own generator. Where both learn the same,
the paired differences scatter about zero: a two-sided t-test on the mean score of the last third of
the epochs and on the best score says how surely not. Written after each way, then with the
comparison.

    python bench/curves.py --output new.json --variant pf_lstm --epochs 60 --earlier old.json

takes the second way's curves from an earlier file, because the reference path is slow and changes
seldom: the same seeds, sizes and epochs are asked for, and its first epochs (``--again``) are
trained anew and set beside the recorded ones.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.blocks import Ask, environment, machine, open_block, sizes_of
from pfrnn.study.files import write_json
from pfrnn.study.provenance import commit
from pfrnn.study.train.trainer import BlockTrainer

# Ways to compute: values of PFRNN_KERNELS and PFRNN_GRAPHS.
WAYS = {
    "fused": ("fused", "1"),
    "compiled": ("compiled", "1"),
    "plain": ("plain", "1"),
    "launched": ("plain", "0"),
}
# What two results must have been asked alike, to be compared.
ASKED = ("data", "variant", "batch", "train", "validation", "tier")


def curves_of(ask: Ask, way: str, folder: Path, device: torch.device) -> dict[str, Any]:
    """Train all repetitions one way; their scores by epoch, (repetitions, epochs)."""
    kernels, graphs = WAYS[way]
    with environment(PFRNN_KERNELS=kernels, PFRNN_GRAPHS=graphs):
        opened = open_block(ask, folder, device)
        with tempfile.TemporaryDirectory() as records:
            trainer = BlockTrainer(
                opened.problem, opened.path, opened.members, Path(records), "bench"
            )
            state = trainer.run()
    scores: dict[int, list[float]] = {member.number: [] for member in opened.members}
    for row in state.history:
        scores[row["member"]].append(row["val_score"])
    return {
        "way": way,
        "variant": opened.variant,
        "path": opened.path.name,
        "reason": opened.path.reason,
        "graph": opened.path.graph,
        "seconds": state.seconds,
        "seeds": [member.seed for member in opened.members],
        "status": [one.status for one in state.progress],
        "scores": [scores[member.number] for member in opened.members],
    }


def compare(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Test the paired differences, second minus first."""
    pair = [np.array(one["scores"], float) for one in (first, second)]
    last = max(1, pair[0].shape[1] // 3)
    found: dict[str, Any] = {"first": first["way"], "second": second["way"]}
    for name, values in (
        ("last_third", [scores[:, -last:].mean(1) for scores in pair]),
        ("best", [scores.min(1) for scores in pair]),
    ):
        difference = values[1] - values[0]
        spread = float(difference.std(ddof=1))
        mean, count = float(difference.mean()), len(difference)
        # Equal numbers (the same path twice) differ by nothing, surely.
        t = mean / (spread / count**0.5) if spread > 0 else (0.0 if mean == 0 else float("inf"))
        found[name] = {
            "means": [float(value.mean()) for value in values],
            "spread_over_seeds": [float(value.std(ddof=1)) for value in values],
            "differences": difference.tolist(),
            "mean_difference": mean,
            "p_value": float(2 * stats.t.sf(abs(t), count - 1)),
        }
    return found


def earlier_curves(
    file: Path, ask: dict[str, Any], way: str, epochs: int, seeds: int
) -> dict[str, Any]:
    """The curves of ``way`` in an earlier result, with where that came from.

    Raises:
        ValueError: it is of other data, sizes, seeds or epochs, or has no curves of that way.
    """
    earlier = json.loads(file.read_text())
    for name, asked in ask.items():
        if earlier.get(name) != asked:
            raise ValueError(f"{file}: expected {name} {asked!r}, got {earlier.get(name)!r}")
    found = [one for one in earlier["curves"] if one["way"] == way]
    if not found:
        raise ValueError(f"{file}: has no curves of {way}")
    if len(found[0]["scores"][0]) != epochs:
        raise ValueError(f"{file}: expected {epochs} epochs, got {len(found[0]['scores'][0])}")
    if len(found[0]["seeds"]) != seeds:
        raise ValueError(f"{file}: expected {seeds} seeds, got {len(found[0]['seeds'])}")
    return found[0] | {name: earlier.get(name) for name in ("commit", "card", "torch")}


def beside(recorded: dict[str, Any], again: dict[str, Any]) -> dict[str, Any]:
    """How far the first epochs, trained again, are from the recorded ones.

    Raises:
        ValueError: the seeds differ.
    """
    if recorded["seeds"] != again["seeds"]:
        raise ValueError(
            f"expected the recorded seeds {recorded['seeds']}, got {again['seeds']}: "
            "train both ways (without --earlier)"
        )
    new = np.array(again["scores"], float)
    old = np.array(recorded["scores"], float)[:, : new.shape[1]]
    return {
        "epochs": new.shape[1],
        "scores": again["scores"],
        "largest_relative_difference": float((np.abs(new - old) / np.abs(old)).max()),
    }


def plot(result: dict[str, Any], target: Path) -> None:
    """Draw every seed's curve, one colour a way."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.2), layout="constrained")
    panel = figure.add_subplot()
    for place, one in enumerate(result["curves"]):
        for number, scores in enumerate(one["scores"]):
            label = one["way"] if number == 0 else None
            epochs = range(1, len(scores) + 1)
            panel.plot(epochs, scores, color=f"C{place}", alpha=0.7, label=label)
    panel.set_xlabel("epoch")
    panel.set_ylabel("validation score")
    panel.set_title(f"{result['data']}, {result['variant']}, {result['card']}")
    panel.legend()
    figure.savefig(target, dpi=120)


def main(arguments: list[str] | None = None) -> None:
    """Train both ways, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--output", type=Path, default=Path("curves.json"))
    parser.add_argument("--plot", type=Path, help="also draw the curves here")
    parser.add_argument("--data", default="maze10")
    parser.add_argument("--variant", default="pf_lstm")
    parser.add_argument("--ways", nargs=2, choices=WAYS, default=["fused", "plain"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--train", type=int, help="training sequences; the protocol's by default")
    parser.add_argument("--validation", type=int, help="validation sequences of a maze, likewise")
    parser.add_argument("--tier", default="paper", help="whose sizes and protocols")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--folder", type=Path, help="prepared data go here; else a temporary one")
    parser.add_argument("--earlier", type=Path, help="take the second way's curves from this file")
    parser.add_argument("--again", type=int, default=2, help="its epochs that are trained anew")
    parsed = parser.parse_args(arguments)
    if not 1 <= parsed.again <= parsed.epochs:
        parser.error(f"--again: expected 1 to {parsed.epochs} epochs, got {parsed.again}")
    if parsed.seeds < 2:
        parser.error("--seeds: expected at least 2 for a spread")
    device = torch.device(parsed.device)
    torch.set_num_threads(1)
    patch = sizes_of(parsed.data, parsed.train, parsed.validation)
    patch["training"] = {"max_epochs": parsed.epochs, "patience": parsed.epochs}
    ask = Ask(parsed.data, parsed.variant, parsed.batch, parsed.seeds, True, parsed.tier, patch)
    asked = {name: getattr(parsed, name) for name in ASKED}
    result: dict[str, Any] = machine(device) | asked | {"commit": commit()[0], "curves": []}
    recorded = None
    if parsed.earlier:
        recorded = earlier_curves(
            parsed.earlier, asked, parsed.ways[1], parsed.epochs, parsed.seeds
        )
    with tempfile.TemporaryDirectory() as temporary:
        folder = parsed.folder or Path(temporary)
        for way in parsed.ways[: 1 if recorded else 2]:
            result["curves"].append(curves_of(ask, way, folder, device))
            write_json(parsed.output, result)
        if recorded:
            again = {"max_epochs": parsed.again, "patience": parsed.again}
            short = ask._replace(overrides=patch | {"training": again})
            new = curves_of(short, parsed.ways[1], folder, device)
            recorded["again"] = beside(recorded, new)
            print("again", recorded["again"]["largest_relative_difference"])
            result["curves"].append(recorded)
            write_json(parsed.output, result)
    result["comparison"] = compare(*result["curves"])
    write_json(parsed.output, result)
    for name in ("last_third", "best"):
        one = result["comparison"][name]
        print(name, *(f"{key} {one[key]}" for key in ("means", "mean_difference", "p_value")))
    if parsed.plot:
        plot(result, parsed.plot)


if __name__ == "__main__":
    main()
