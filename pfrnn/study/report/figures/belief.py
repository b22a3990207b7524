"""Belief in a maze: true pose, predicted pose and the particles' poses; as panels and animated."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.transforms import Affine2D

from pfrnn.study.report.figures.style import INK, LANDMARK, WALL, Drawing, label, new_figure
from pfrnn.study.report.results import Results
from pfrnn.study.report.samples import spread_of

TIMES = 5
TRUE, PREDICTED, PARTICLE, EXACT = "#0e7fc0", "#c8372d", "#00916c", "#8a5fc0"


def belief_panels(results: Results) -> list[Drawing]:
    """Return a figure of the first pictured trajectory of each maze."""
    return [
        draw_belief(sample, *_named(results, final), 0)
        for final, sample in sorted(results.evidence.beliefs.items())
    ]


def _named(results: Results, final: str) -> tuple[str, str]:
    rows = results.rows[results.rows["final_id"] == final]
    return str(rows["dataset"].iloc[0]), str(rows["variant"].iloc[0])


def shown_times(sample: dict[str, Any], index: int) -> list[int]:
    """Times of the panels: first, last, and between them where the particles' spread changes.

    The step before the last panel is where the spread has fallen to a tenth of its start, so that
    the picture shows the convergence and not only its result.
    """
    spread = spread_of(np.asarray(sample["particles"][index]), np.asarray(sample["weights"][index]))
    last = len(spread) - 1
    below = np.flatnonzero(spread < 0.1 * spread[0])
    settled = int(below[0]) if below.size and below[0] > 0 else last
    times = {0, settled // 3, 2 * settled // 3, settled, last}
    for extra in range(1, last):
        if len(times) >= min(TIMES, last + 1):
            break
        times.add(last - extra)
    return sorted(times)


def draw_belief(sample: dict[str, Any], dataset: str, variant: str, index: int) -> Drawing:
    """Draw one trajectory at the times of :func:`shown_times`."""
    times = shown_times(sample, index)
    figure, axes = new_figure(2.05 * len(times), 2.5, columns=len(times))
    for ax, t in zip(axes[0], times, strict=True):
        draw_maze(ax, sample.get("map"))
        weights = np.asarray(sample["weights"][index][t])
        places = np.asarray(sample["particles"][index][t])
        levels = np.ceil(3 * weights / max(weights.max(), 1e-12))
        for level in (1, 2, 3):  # three sizes of dots, so that the file stays small
            x, y = places[levels == level][:, :2].T
            ax.plot(x, y, "o", color=PARTICLE, ms=1.6 + level, alpha=0.65, mew=0)
        _arrow(ax, sample["truth"][index][t], TRUE, "o")
        if exact := exact_mean(sample, index):
            ax.plot(*exact[t][:2], "D", mfc="none", mec=EXACT, mew=1.3, ms=8)
        _arrow(ax, sample["prediction"][index][t], PREDICTED, "s")
        ax.set_title(f"t = {t}")
    names = ("truth", "prediction", "particles", "weights")
    data = {name: [sample[name][index][t] for t in times] for name in names}
    return Drawing(
        f"belief-{dataset}",
        f"Belief of {label(variant)} in {dataset}",
        "Blue circle: true pose; red square: predicted pose; green dots: the particles' poses, "
        "larger with more weight; open violet diamond: mean of the exact posterior where known. "
        "Dark obstacles have landmarks at their corners.",
        f"{len(times)} maps of {dataset}: the particles spread over the map at first and gather "
        "later around the predicted pose.",
        {"times": times, **data},
        figure,
    )


def exact_mean(sample: dict[str, Any], index: int) -> list[list[float]]:
    """Return the exact posterior's mean at each step of a trajectory; empty where unknown."""
    known = sample.get("exact_mean") or []
    return (known[index] or []) if index < len(known) else []


def draw_maze(ax: Any, grid: list[list[float]] | None) -> None:
    """Draw a map's obstacles; without a map only the frame."""
    ax.set(xticks=[], yticks=[], aspect="equal")
    ax.spines[:].set_visible(True)
    if grid is None:
        return
    cells = np.asarray(grid)[::-1]  # row 0 of the map stands on top; y grows upwards
    ax.set(xlim=(0, cells.shape[1]), ylim=(0, cells.shape[0]))
    for kind, face in ((1, WALL), (2, LANDMARK)):
        corners = np.argwhere(cells == kind)[:, ::-1]
        squares = [Path.unit_rectangle().transformed(Affine2D().translate(*c)) for c in corners]
        if squares:  # one path for all: small files
            walls = Path.make_compound_path(*squares)
            ax.add_patch(PathPatch(walls, facecolor=face, edgecolor="none", zorder=0))


def _arrow(ax: Any, pose: list[float], colour: str, marker: str) -> None:
    ax.plot(*pose[:2], marker, color=colour, ms=6, mec=INK, mew=0.4)
    if len(pose) >= 4:
        # Headings are compass angles: sin is the share along x, cos the share along y.
        x, y, sin, cos = pose[:4]
        length = max(float(np.hypot(sin, cos)), 1e-9)
        ax.plot([x, x + sin / length], [y, y + cos / length], color=colour, lw=1.8)


def player(results: Results) -> str:
    """Return the animated belief's data as JSON: a map and its trajectories, a maze each."""
    mazes = {}
    for final, sample in sorted(results.evidence.beliefs.items()):
        if sample.get("map"):
            mazes[_named(results, final)[0]] = {
                "map": sample["map"],
                "trajectories": [
                    {
                        "truth": [_pose(pose) for pose in sample["truth"][s]],
                        "prediction": [_pose(pose) for pose in sample["prediction"][s]],
                        "particles": np.round(
                            np.array(sample["particles"][s])[..., :2], 1
                        ).tolist(),
                        "exact": np.round(exact_mean(sample, s), 2).tolist(),
                    }
                    for s in range(len(sample["truth"]))
                ],
            }
    colours = {"truth": TRUE, "prediction": PREDICTED, "particle": PARTICLE, "exact": EXACT}
    known = {"colours": colours | {"wall": WALL, "landmark": LANDMARK}, "mazes": mazes}
    return json.dumps(known, sort_keys=True, separators=(",", ":")) if mazes else ""


def _pose(values: list[float]) -> list[float]:
    """x, y and a heading vector of at most one unit (sin along x, cos along y)."""
    heading = [values[2], values[3]] if len(values) >= 4 else [0.0, 0.0]
    length = max(float(np.hypot(*heading)), 1e-9)
    return [round(v, 2) for v in (values[0], values[1], heading[0] / length, heading[1] / length)]
