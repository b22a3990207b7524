"""``pfrnn grid``: what a tier runs, and how long that takes at measured rates."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pfrnn.study.cli._common import PREPARED, add_study_options
from pfrnn.study.config import TIERS
from pfrnn.study.plan import Cell, Plan, load_plan
from pfrnn.study.recorded import (
    Progress,
    Recorded,
    again_ids,
    done_ids,
    known_sizes,
    other_data,
    progress,
    published_for,
    read_recorded,
    remaining,
    unprepared,
)
from pfrnn.study.variants import OWN, VARIANTS, variant
from pfrnn.study.workload import Sizes, rate_in_words, workload

_MAIN = ("lstm", "gru", "pf_lstm", "pf_gru")


def _ablation(cell: Cell) -> bool:
    ablation = cell.variant == "lstm_bnrelu" or cell.variant.startswith("pf_lstm_")
    return ablation and cell.variant in VARIANTS


def _own(cell: Cell) -> bool:
    return cell.variant in OWN


def _fidelity(cell: Cell) -> bool:
    return variant(cell.variant).fidelity is not None


# Which cells a table of the paper needs; tables 3 and 5 are one ablation, summed up and in detail.
TABLES: dict[str, Callable[[Cell], bool]] = {
    "tables 1 and 2, localisation": lambda cell: cell.variant in _MAIN,
    "table 4, ensembles and Bayesian": lambda cell: (
        cell.size_rule == "fixed"
        and cell.variant in VARIANTS
        and (
            variant(cell.variant).kind in ("ensemble", "bayesian")
            or cell.variant in ("pf_lstm", "pf_gru")
        )
    ),
    "tables 3 and 5, ablations": _ablation,
}
# Shown where a tier has it.
FIDELITY_LINE = "fidelity, one switch at a time"
OWN_LINE = "own models"


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "grid",
        help="what a tier runs: jobs, runs, steps, hours",
        description="Count a tier's blocks, members and training steps, and predict hours for "
        "one GPU, or from execution.steps_per_second where that is given. A block or final that "
        "several tables need is counted in each of their lines and once in the total. What a "
        "report's evidence records counts as done.",
        epilog="Example: pfrnn grid --tier paper --json",
    )
    add_study_options(parser, results=False)
    parser.add_argument("--prepared", type=Path, default=PREPARED)
    parser.add_argument(
        "--recorded",
        type=Path,
        metavar="DIR",
        help="folder of a report whose evidence counts as done (default: the tier's published "
        "one, reports or reports/TIER)",
    )
    parser.add_argument("--json", action="store_true", help="all counts and all ids, as JSON")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> None:
    """Count and print."""
    plan = load_plan(parsed.params, parsed.tier)
    recorded = recorded_in(parsed.recorded, plan)
    sizes = known_sizes(plan, parsed.prepared, recorded)
    counts = grid_counts(plan, sizes)
    if parsed.json:
        if recorded:
            counts["recorded"] = recorded_counts(plan, sizes, recorded)
        counts["block_ids"] = [block.id for block in plan.blocks]
        counts["selection_ids"] = list(dict.fromkeys(cell.selection_id for cell in plan.cells))
        counts["final_ids"] = list(dict.fromkeys(cell.final_id for cell in plan.cells))
        print(json.dumps(counts, indent=2))
        return
    total = counts["total"]
    print(f"tier {counts['tier']}: {TIERS[counts['tier']]}")
    print(f"grid points a cell: {counts['grid_points']}")
    print(f"{'':34} {'blocks':>7} {'finals':>7} {'runs':>7} {'steps':>13} {'hours':>9}")
    lines = [*counts["tables"].items(), *counts["datasets"].items(), ("total", total)]
    for name, line in lines:
        print(
            f"{name:34} {line['search_blocks']:7} {line['final_blocks']:7} {line['runs']:7} "
            f"{line['steps']:13,} {line['hours']:9,.1f}"
        )
    print(f"Hours: at most, {rate_in_words(plan.config)}, one job after another.")
    bounded = unprepared(plan, parsed.prepared, recorded)
    if bounded:
        print(
            f"Not prepared here, so bounded by the rows that the publisher states: "
            f"{', '.join(bounded)}. `snakemake data --config tier={plan.config.tier}` makes "
            "the bound tighter."
        )
    if recorded:
        print_recorded(plan, sizes, recorded, parsed.prepared)


def recorded_in(folder: Path | None, plan: Plan) -> Recorded | None:
    """Read the evidence asked for, or the published report's where it is of this tier."""
    folder = folder or published_for(plan.config.tier)
    return read_recorded(folder, plan) if folder else None


def print_recorded(plan: Plan, sizes: dict[str, Sizes], recorded: Recorded, prepared: Path) -> None:
    """Print how much is done and what remains, for each table, each data set and in all."""
    print(f"\nRecorded in {recorded.folder}: done of all, and the hours that remain")
    print(f"{'':34} {'blocks':>9} {'finals':>9} {'hours':>11} {'remain':>8}")
    for name, part in lines_of(plan, sizes, done_ids(plan, recorded)).items():
        blocks, finals = (f"{one[1]}/{one[0]}" for one in (part.blocks, part.finals))
        hours = f"{part.hours[1]:.1f}/{part.hours[0]:.1f}"
        remain = part.hours[0] - part.hours[1]
        print(f"{name:34} {blocks:>9} {finals:>9} {hours:>11} {remain:8,.1f}")
    again = again_ids(plan, recorded)
    if again:
        print(
            f"{len(again)} of the blocks done belong to finals that are not: a clone without "
            "their folders trains them again."
        )
    if recorded.outside:
        print(
            f"{len(recorded.outside)} recorded finals are not in the plan (other parameters, for "
            f"one {recorded.outside[0]}): they count for nothing, and `make report` drops them."
        )
    for name, (digest, here) in other_data(remaining(plan, recorded), prepared, recorded).items():
        print(
            f"WARNING: {name} is prepared here with data {here[:12]}, its recorded results have "
            f"{digest[:12]}: they can't share a table."
        )


def lines_of(plan: Plan, sizes: dict[str, Sizes], done: frozenset[str]) -> dict[str, Progress]:
    """Return the progress of each table, of each data set and in all."""
    return {
        name: progress(_part(plan, needs), sizes, done) for name, needs in needs_of(plan).items()
    }


def recorded_counts(plan: Plan, sizes: dict[str, Sizes], recorded: Recorded) -> dict[str, Any]:
    """Return ids done and remaining, and the progress of each line, as plain data."""
    done = done_ids(plan, recorded)
    blocks = [block.id for block in plan.blocks]
    finals = list(dict.fromkeys(cell.final_id for cell in plan.cells))
    return {
        "folder": str(recorded.folder),
        "done_block_ids": [name for name in blocks if name in done],
        "remaining_block_ids": [name for name in blocks if name not in done],
        "done_final_ids": [name for name in finals if name in done],
        "remaining_final_ids": [name for name in finals if name not in done],
        # Done, but trained again in a clone without their folders: their finals are not recorded.
        "again_block_ids": again_ids(plan, recorded),
        "outside_final_ids": list(recorded.outside),
        "lines": {
            name: {
                "blocks_done": part.blocks[1],
                "blocks": part.blocks[0],
                "finals_done": part.finals[1],
                "finals": part.finals[0],
                "hours_done": round(part.hours[1], 3),
                "hours_remaining": round(part.hours[0] - part.hours[1], 3),
            }
            for name, part in lines_of(plan, sizes, done).items()
        },
    }


def needs_of(plan: Plan) -> dict[str, Callable[[Cell], bool]]:
    """Which cells each printed line counts: the paper's tables, the data sets, all."""
    needs = dict(TABLES)
    if any(map(_fidelity, plan.cells)):
        needs[FIDELITY_LINE] = _fidelity
    if any(map(_own, plan.cells)):
        needs[OWN_LINE] = _own
    for name in plan.protocols:
        needs[name] = lambda cell, name=name: cell.dataset == name  # type: ignore[misc]
    return needs | {"total": lambda cell: True}


def _part(plan: Plan, needs: Callable[[Cell], bool]) -> Plan:
    return plan._replace(cells=tuple(cell for cell in plan.cells if needs(cell)))


def grid_counts(plan: Plan, sizes: dict[str, Sizes]) -> dict[str, Any]:
    """Count a plan as a whole, for each table of the paper and for each data set."""
    points: dict[str, set[int]] = {}
    for cell in plan.cells:
        number = sum(len(block.settings) for block in cell.blocks)
        points.setdefault(cell.size_rule, set()).add(number)
    lines = {name: _count(_part(plan, need), sizes) for name, need in needs_of(plan).items()}
    return {
        "tier": plan.config.tier,
        "grid_points": {rule: sorted(numbers) for rule, numbers in points.items()},
        "total": lines["total"],
        "tables": {
            name: line for name, line in lines.items() if name not in {*plan.protocols, "total"}
        },
        "datasets": {name: lines[name] for name in plan.protocols},
    }


def _count(part: Plan, sizes: dict[str, Sizes]) -> dict[str, int | float]:
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
