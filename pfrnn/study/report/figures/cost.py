"""Cost against quality: training seconds and parameters against error relative to LSTM."""

from __future__ import annotations

from typing import Any

import numpy as np

from pfrnn.study.report.cells import Lookup
from pfrnn.study.report.figures.style import (
    FAINT,
    Drawing,
    colour,
    label,
    light_grid,
    log_axis,
    marker,
    new_figure,
)
from pfrnn.study.report.scores import OurScores

AXES = {
    "seconds": ("final_seconds", "seconds of the final runs", "cost-seconds"),
    "parameters": ("parameters", "trainable parameters", "cost-parameters"),
}


def cost_against_quality(lookup: Lookup) -> list[Drawing]:
    """Return two figures: against seconds and against parameters."""
    return [_draw(lookup, *axis) for axis in AXES.values()]


def _draw(lookup: Lookup, column: str, axis: str, name: str) -> Drawing:
    title = f"Cost against quality: {axis}"
    points = _points(lookup, column)
    if not points:
        return Drawing(name, title, "", "", None, None, "no set has LSTM and another model yet.")
    figure, axes = new_figure(4.6, 3.2)
    ax = axes[0, 0]
    for variant in dict.fromkeys(point["variant"] for point in points):
        own = [point for point in points if point["variant"] == variant]
        shown: dict[str, Any] = {"color": colour(variant), "marker": marker(variant), "ls": ""}
        x, y = [p["cost"] for p in own], [p["error"] for p in own]
        ax.plot(x, y, ms=3.5, alpha=0.5, **shown)
        centre = [float(np.exp(np.mean(np.log(values)))) for values in (x, y)]
        ax.plot(*([value] for value in centre), ms=8, label=label(variant), **shown)
    ax.axhline(1, color=FAINT, lw=0.8)
    log_axis(ax, "x")
    log_axis(ax)
    ax.set_xlabel(axis)
    ax.set_ylabel("error relative to LSTM")
    ax.legend()
    light_grid(ax, "both")
    devices = ", ".join(sorted(set(lookup.evidence.results["device"])))
    return Drawing(
        name,
        title,
        "Small: one data set each; large: geometric mean. Errors (odds of a wrong class) relative "
        f"to LSTM at fixed size on the same set. Device: {devices}. Seconds are those of all "
        "repetitions side by side and depend on what else the machine did.",
        f"Error relative to LSTM against {axis}.",
        points,
        figure,
    )


def _points(lookup: Lookup, column: str) -> list[dict[str, Any]]:
    scores = OurScores(lookup)
    points = []
    for dataset in sorted(set(lookup.evidence.results["dataset"])):
        base = scores.score(dataset, "lstm", "fixed")
        if not base:
            continue
        level = float(np.mean(list(base.values())))
        for variant in ("lstm", "gru", "pf_lstm", "pf_gru"):
            ours = lookup.ours(dataset, variant)
            values = scores.score(dataset, variant, "fixed")
            if ours is None or not values or not 0 < float(ours.row[column]) < np.inf:
                continue
            error = float(np.exp(level - np.mean(list(values.values()))))
            cost = float(ours.row[column])
            points.append({"dataset": dataset, "variant": variant, "cost": cost, "error": error})
    return points if any(point["variant"] != "lstm" for point in points) else []
