"""Localisation errors by maze, as means with intervals, with the two controls and the paper.

Not as bars: a logarithmic axis has no zero for them to stand on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pfrnn.study.report.cells import Lookup
from pfrnn.study.report.figures.style import (
    FAINT,
    INK,
    PAPER,
    Drawing,
    colour,
    label,
    light_grid,
    log_axis,
    new_figure,
)
from pfrnn.study.report.paper.numbers import paper_numbers

MAZES = ("maze10", "maze18", "maze27")
METHODS = ("lstm", "pf_lstm", "gru", "pf_gru")
NAME, TITLE = "localization", "Last-step error in robot localisation"


def localization_points(lookup: Lookup) -> Drawing:
    """Draw the mean over repetitions with its interval for each maze and method."""
    points = [_point(lookup, maze, method) for maze in MAZES for method in METHODS]
    data = [point for point in points if point is not None]
    if not data:
        return Drawing(NAME, TITLE, "", "", None, None, "no model has run on a maze yet.")
    mazes = [maze for maze in MAZES if any(point["maze"] == maze for point in data)]
    figure, axes = new_figure(2.2 + 1.8 * len(mazes), 3.4)
    ax = axes[0, 0]
    controls: dict[str, dict[str, float]] = {}
    for place, maze in enumerate(mazes):
        own = [point for point in data if point["maze"] == maze]
        width = 0.8 / len(METHODS)
        for point in own:
            _draw_point(
                ax, point, place - 0.4 + width * (METHODS.index(point["method"]) + 0.5), width
            )
        controls[maze] = lookup.controls(maze)
        floor = min(point["mean"] for point in data) / 30
        for name, value in controls[maze].items():
            # A control far below all points would squeeze them: it is written at the lower end.
            text = name.replace("_", " ")
            shown, text = (value, text) if value > floor else (floor, f"{text} ({value:.0e}) ↓")
            ax.plot([place - 0.45, place + 0.45], [shown] * 2, color=INK, lw=1, ls=":")
            ax.annotate(text, (place - 0.45, shown), fontsize=7, va="bottom", color=INK)
    log_axis(ax)
    ax.set_xticks(range(len(mazes)), mazes)
    ax.set_ylabel("last-step MSE (map units²)")
    methods = [method for method in METHODS if any(point["method"] == method for point in data)]
    handles = [_patch(colour(method), label(method)) for method in methods]
    # Above the axes: within them it would cover a control's line on a single maze.
    ax.legend(
        handles=[*handles, _diamond()],
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=3,
        borderpad=0,
    )
    low, high = ax.get_ylim()
    ax.set_ylim(low, high * 1.5)
    light_grid(ax)
    ns = sorted({len(point["values"]) for point in data})
    return Drawing(
        NAME,
        TITLE,
        f"Lines: mean over repetitions (n = {', '.join(map(str, ns))}) with the interval of that "
        "mean over seeds (shaded); dots: repetitions; dotted lines: controls on the same "
        "trajectories; diamonds: the paper's printed numbers (it prints none for LSTM and GRU). "
        "Fixed sizes.",
        f"Means of the last-step error for {', '.join(map(label, methods))} on {', '.join(mazes)}.",
        {"points": data, "controls": controls},
        figure,
    )


def _point(lookup: Lookup, maze: str, method: str) -> dict[str, Any] | None:
    ours = lookup.ours(maze, method)
    if ours is None:
        return None
    interval = [ours.interval.low, ours.interval.high] if ours.interval else None
    return {
        "maze": maze,
        "method": method,
        "mean": ours.mean,
        "interval": interval,
        "values": list(ours.values),
        "paper": _printed(maze, method),
    }


def _draw_point(ax: Any, point: dict[str, Any], x: float, width: float) -> None:
    face = colour(point["method"])
    if point["interval"]:
        low, high = point["interval"]
        floor = max(low, point["mean"] / 100)  # the logarithmic axis has no zero
        ax.fill_between(
            [x - 0.4 * width, x + 0.4 * width], floor, high, color=face, alpha=0.3, lw=0
        )
    ax.plot([x - 0.4 * width, x + 0.4 * width], [point["mean"]] * 2, color=face, lw=2.4)
    jitter = np.linspace(-0.25, 0.25, len(point["values"])) * width
    ax.plot(x + jitter, point["values"], ".", color=INK, markersize=3, alpha=0.7)
    if point["paper"] is not None:
        ax.plot([x], [point["paper"]], "D", mfc="none", mec=PAPER, mew=1.4, ms=6)


def _printed(maze: str, method: str) -> float | None:
    for number in paper_numbers():
        if number.table == 4 and (number.dataset, number.variant) == (maze, method):
            return number.printed.value
    return None


def _patch(face: str, text: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(facecolor=face, alpha=0.75, label=text, edgecolor=FAINT, linewidth=0.3)


def _diamond() -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], marker="D", ls="", mfc="none", mec=PAPER, mew=1.4, ms=6, label="paper")
