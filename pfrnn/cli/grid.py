"""``pfrnn grid``: what a tier runs, and how long that takes at measured rates."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pfrnn.cli._options import add_study_options
from pfrnn.plan import Cell, Plan, load_plan
from pfrnn.variants import variant
from pfrnn.workload import Sizes, dataset_sizes, rate_in_words, workload

_MAIN = ("lstm", "gru", "pf_lstm", "pf_gru")


def _ablation(cell: Cell) -> bool:
    ablation = cell.variant == "lstm_bnrelu" or cell.variant.startswith("pf_lstm_")
    return ablation and not _fidelity(cell)


def _fidelity(cell: Cell) -> bool:
    return variant(cell.variant).fidelity is not None


# Which cells a table of the paper needs; tables 3 and 5 are one ablation, summed up and in detail.
TABLES: dict[str, Callable[[Cell], bool]] = {
    "tables 1 and 2, localisation": lambda cell: cell.variant in _MAIN,
    "table 4, ensembles and Bayesian": lambda cell: (
        cell.size_rule == "fixed"
        and (
            variant(cell.variant).kind in ("ensemble", "bayesian")
            or cell.variant in ("pf_lstm", "pf_gru")
        )
    ),
    "tables 3 and 5, ablations": _ablation,
}
# Shown where a tier has it.
FIDELITY_LINE = "fidelity, one switch at a time"


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "grid",
        help="what a tier runs: jobs, runs, steps, hours",
        description="Count a tier's blocks, members and training steps, and predict hours for "
        "one GPU, or from execution.steps_per_second where that is given. A block or final that "
        "several tables need is counted in each of their lines and once in the total.",
        epilog="Example: pfrnn grid --tier paper --json",
    )
    add_study_options(parser, results=False)
    parser.add_argument("--prepared", type=Path, default=Path("data/prepared"))
    parser.add_argument("--json", action="store_true", help="all counts and all ids, as JSON")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> None:
    """Count and print."""
    plan = load_plan(parsed.params, parsed.tier)
    counts = grid_counts(plan, dataset_sizes(plan, parsed.prepared))
    if parsed.json:
        counts["block_ids"] = [block.id for block in plan.blocks]
        counts["selection_ids"] = list(dict.fromkeys(cell.selection_id for cell in plan.cells))
        counts["final_ids"] = list(dict.fromkeys(cell.final_id for cell in plan.cells))
        print(json.dumps(counts, indent=2))
        return
    total = counts["total"]
    print(f"tier {counts['tier']}: grid points a cell: {counts['grid_points']}")
    print(f"{'':34} {'blocks':>7} {'finals':>7} {'runs':>7} {'steps':>13} {'hours':>9}")
    lines = [*counts["tables"].items(), *counts["datasets"].items(), ("total", total)]
    for name, line in lines:
        print(
            f"{name:34} {line['search_blocks']:7} {line['final_blocks']:7} {line['runs']:7} "
            f"{line['steps']:13,} {line['hours']:9,.1f}"
        )
    print(f"Hours: at most, {rate_in_words(plan.config)}, one job after another.")


def grid_counts(plan: Plan, sizes: dict[str, Sizes]) -> dict[str, Any]:
    """Count a plan as a whole, for each table of the paper and for each data set."""
    points: dict[str, set[int]] = {}
    for cell in plan.cells:
        number = sum(len(block.settings) for block in cell.blocks)
        points.setdefault(cell.size_rule, set()).add(number)
    needs = dict(TABLES)
    if any(map(_fidelity, plan.cells)):
        needs[FIDELITY_LINE] = _fidelity
    return {
        "tier": plan.config.tier,
        "grid_points": {rule: sorted(numbers) for rule, numbers in points.items()},
        "total": _count(plan, sizes, lambda cell: True),
        "tables": {name: _count(plan, sizes, need) for name, need in needs.items()},
        "datasets": {
            name: _count(plan, sizes, lambda cell, name=name: cell.dataset == name)
            for name in plan.protocols
        },
    }


def _count(
    plan: Plan, sizes: dict[str, Sizes], needs: Callable[[Cell], bool]
) -> dict[str, int | float]:
    part = plan._replace(cells=tuple(cell for cell in plan.cells if needs(cell)))
    load = workload(part, sizes)
    search_runs = sum(len(block.settings) for block in part.blocks)
    return {
        "search_blocks": load.blocks,
        "search_runs": search_runs,
        "final_blocks": load.finals,
        "final_runs": load.runs - search_runs,
        "blocks": load.blocks + load.finals,
        "runs": load.runs,
        "steps": load.steps,
        "hours": round(load.hours, 3),
    }
