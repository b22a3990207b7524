"""Simulated results of a real plan: its ids, its cells, some of its blocks. For tests only."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import simulated

from pfrnn.study.cli.report import study_of
from pfrnn.study.plan import Block, Cell, Plan
from pfrnn.study.report.evidence import Study, write_evidence
from pfrnn.study.report.report import Slices, gather


def rows_of(plan: Plan, wanted: Callable[[Cell], bool], repetitions: int = 2) -> list[Any]:
    """Rows as `aggregate` has them; cells that share a final have the same numbers."""
    rows = []
    for cell in filter(wanted, plan.cells):
        own = simulated.study(plan.config.tier, (cell.dataset,), (cell.trained,), (cell.size_rule,))
        rows += [
            row | {"variant": cell.variant, "final_id": cell.final_id}
            for row in simulated.result_rows(own, repetitions)
        ]
    return rows


def study(plan: Plan) -> Study:
    return study_of("params.yaml", plan.config.tier, {})


def write_slice(
    folder: Path, plan: Plan, wanted: Callable[[Cell], bool], finals: bool = True
) -> tuple[Path, Path]:
    """Results and prepared cards as a slice of a tier leaves them; return both folders."""
    rows = rows_of(plan, wanted)
    sets = tuple(dict.fromkeys(row["dataset"] for row in rows))
    own = simulated.study(plan.config.tier, sets)
    results, prepared = simulated.write_tree(folder, own, rows, finals)
    for block in plan._replace(cells=tuple(filter(wanted, plan.cells))).blocks:
        write_block(results, block)
    return results, prepared


def publish(
    results: Path,
    prepared: Path,
    plan: Plan,
    out: Path,
    merged: bool = True,
    drop: tuple[str, ...] = (),
) -> list[str]:
    """Write a slice's evidence, merged with what is in ``out``; return what was said."""
    slices = Slices(plan, out if merged else None, drop)
    evidence, said = gather(results, prepared, study(plan), slices)
    write_evidence(evidence, out)
    return said


def write_block(results: Path, block: Block, **changes: Any) -> None:
    run = {
        "data_digest": next(
            str(row["data_digest"])
            for row in simulated.result_rows(simulated.study("gpu", (block.dataset,)), 1)
        ),
        "commit": "0123456789abcdef",
        "machine": {"device_name": "test device"},
        "wall_seconds": 12.5,
    }
    path = results / block.id / "run.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(run | changes), encoding="utf-8")


def files(folder: Path, *patterns: str) -> dict[str, bytes]:
    """Bytes of the evidence, or of what patterns name, by their paths."""
    found: Sequence[str] = patterns or ("results.csv", "data/*")
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for pattern in found
        for path in sorted(folder.glob(pattern))
        if path.is_file()
    }
