"""Small files by which two commits are compared: ``dvc metrics diff`` and ``dvc plots diff``.

``metrics.json`` holds the mean test metric of every cell; ``curves/<data set>.csv`` how the finals
came down on validation data. Both follow from the records and nothing else.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pfrnn.study.evaluate.record import read_rows
from pfrnn.study.files import read_json, write_json, write_text
from pfrnn.study.plan import Cell, Plan

CURVE_COLUMNS = ("model", "epoch", "val_score")


def write_compared(plan: Plan, results: Path) -> None:
    """Write ``metrics.json`` and one curve table a data set of the plan below ``results``."""
    finished = [cell for cell in plan.cells if (results / cell.final_id / "run.json").exists()]
    table: dict[str, dict[str, Any]] = {}
    for cell in finished:
        table.setdefault(cell.dataset, {})[_name(cell)] = cell_metrics(results / cell.final_id)
    write_json(results / "metrics.json", table)
    for name in plan.protocols:
        cells = (cell for cell in finished if cell.dataset == name)
        rows = [row for cell in cells for row in _curve(_name(cell), results / cell.final_id)]
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerows([CURVE_COLUMNS, *rows])
        write_text(results / "curves" / f"{name}.csv", buffer.getvalue())


def cell_metrics(final: Path) -> dict[str, float]:
    """Return the mean over repetitions of the tables' metric, and the repetitions' spread.

    Args:
        final: folder of a finished final.

    Returns:
        ``{metric: mean, "sd": standard deviation}`` in the metric's unit; ``sd`` is left out for
        a single repetition, a value that isn't finite counts for nothing.
    """
    metric = str(read_json(final / "run.json")["metric"])
    rows = read_rows(final, "test.csv", ("metric", "value"))
    # A localisation's tables show the last step's error under the card's short name.
    names = dict.fromkeys(row["metric"] for row in rows)
    chosen = metric if metric in names else next(iter(names))
    every = (float(row["value"]) for row in rows if row["metric"] == chosen and row["value"])
    values = [value for value in every if math.isfinite(value)]
    if not values:
        return {}
    mean = math.fsum(values) / len(values)
    found = {chosen: mean}
    if len(values) > 1:
        squares = math.fsum((value - mean) ** 2 for value in values)
        found["sd"] = math.sqrt(squares / (len(values) - 1))
    return found


def _curve(model: str, final: Path) -> Iterable[tuple[str, int, float]]:
    """Mean over repetitions of the best validation score so far, by epoch.

    A repetition that has ended keeps its best: a mean over those still training would move
    whenever one stops, and end as the score of a single one.
    """
    scores: dict[int, dict[str, float]] = {}
    for row in read_rows(final, "history.csv", ("member", "epoch", "val_score")):
        if row["val_score"]:
            scores.setdefault(int(row["epoch"]), {})[row["member"]] = float(row["val_score"])
    best: dict[str, float] = {}
    for epoch, values in sorted(scores.items()):
        for member, value in values.items():
            best[member] = min(value, best.get(member, math.inf))
        yield model, epoch, math.fsum(best.values()) / len(best)


def _name(cell: Cell) -> str:
    return f"{cell.variant}-{cell.size_rule}"
