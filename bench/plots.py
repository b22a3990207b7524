"""Pictures of what the benchmarks wrote."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

# A way's marker; one that isn't here has a cross.
MARKERS = {"fused": "o", "compiled": "s", "plain": "^"}
CENTRE = {"batch": "batch", "particles": "K", "hidden": "H", "steps": "T", "members": "members"}


def centre(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the size around which the axes lie: where a row's own axis doesn't move it.

    >>> rows = [{"axis": "hidden", "hidden": 32, "batch": 64, "particles": 30}] * 2
    >>> centre(rows + [{"axis": "particles", "hidden": 64, "batch": 64, "particles": 5}])
    {'batch': 64, 'particles': 30, 'hidden': 64}
    """
    found = {}
    for name in CENTRE:
        values = [row[name] for row in rows if row["axis"] != name and name in row]
        if values:
            found[name] = statistics.mode(values)
    return found


def plot_scaling(source: Path, target: Path) -> None:
    """Draw the time a model and step against each axis, a marker for each way to compute it."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    result = json.loads(source.read_text(encoding="utf-8"))
    rows = [row for row in result["scaling"] if "ms_per_member" in row]
    axes = list(dict.fromkeys(row["axis"] for row in rows))
    ways = sorted({row.get("way", "fused") for row in rows}, key=lambda way: (way != "fused", way))
    figure = Figure(figsize=(max(5.0, 3.2 * len(axes)), 3.2), layout="constrained")
    lines = {}
    for place, axis in enumerate(axes, 1):
        panel = figure.add_subplot(1, len(axes), place)
        for number, way in enumerate(ways):
            one = [r for r in rows if r["axis"] == axis and r.get("way", "fused") == way]
            if not one:
                continue
            x, y = [r[axis] for r in one], [r["ms_per_member"] for r in one]
            (lines[way],) = panel.loglog(x, y, MARKERS.get(way, "x") + "-", color=f"C{number}")
        measured = sorted({row[axis] for row in rows if row["axis"] == axis})
        panel.set_xticks(measured, labels=[str(value) for value in measured], fontsize="small")
        panel.xaxis.set_minor_locator(NullLocator())
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.set_xlabel(axis)
        panel.set_ylabel("ms a model and step")
        panel.grid(True, which="both", alpha=0.3)
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=len(lines))
    around = ", ".join(f"{CENTRE[name]} {value}" for name, value in centre(rows).items())
    figure.suptitle(f"PF-LSTM, {result['card']}; {around}, but for the axis", fontsize="medium")
    figure.savefig(target, dpi=120)
