"""Belief progression in a maze: true pose, predicted pose and the particles' poses."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.transforms import Affine2D

from pfrnn.study.report.evidence import Evidence
from pfrnn.study.report.figures.style import INK, LANDMARK, WALL, Drawing, label, new_figure

TIMES = 5
TRUE, PREDICTED, PARTICLE, EXACT = "#0e7fc0", "#c8372d", "#00916c", "#8a5fc0"


def belief_panels(evidence: Evidence) -> list[Drawing]:
    """Return one figure a pictured trajectory: five times from first to last step."""
    drawings = []
    for final, sample in sorted(evidence.beliefs.items()):
        rows = evidence.results[evidence.results["final_id"] == final]
        dataset, variant = str(rows["dataset"].iloc[0]), str(rows["variant"].iloc[0])
        for index in range(len(sample["truth"])):
            drawings.append(draw_belief(sample, dataset, variant, index))
    return drawings


def shown_times(sample: dict[str, Any], index: int) -> list[int]:
    """Times of the panels: first, last, and between them where the particles' spread changes.

    The step before the last panel is where the spread has fallen to a tenth of its start, so that
    the picture shows the convergence and not only its result.
    """
    weights = np.asarray(sample["weights"][index])[..., None]
    particles = np.asarray(sample["particles"][index])[..., :2]
    mean = (weights * particles).sum(1, keepdims=True)
    spread = np.sqrt((weights * np.square(particles - mean)).sum((1, 2)))
    last = len(spread) - 1
    below = np.flatnonzero(spread < 0.1 * spread[0])
    settled = int(below[0]) if below.size and below[0] > 0 else last
    wanted = [0, settled // 3, 2 * settled // 3, settled, last]
    times = sorted(set(wanted))
    for extra in range(1, last):
        if len(times) >= min(TIMES, last + 1):
            break
        times = sorted({*times, last - extra})
    return times


def draw_belief(sample: dict[str, Any], dataset: str, variant: str, index: int) -> Drawing:
    """Draw one trajectory at the times of :func:`shown_times`."""
    times = shown_times(sample, index)
    figure, axes = new_figure(2.05 * len(times), 2.5, columns=len(times))
    for ax, t in zip(axes[0], times, strict=True):
        draw_maze(ax, sample.get("map"))
        weights = np.asarray(sample["weights"][index][t])
        particles = np.asarray(sample["particles"][index][t])
        levels = np.ceil(3 * weights / max(weights.max(), 1e-12))
        for level in (1, 2, 3):  # three sizes of dots, so that the file stays small
            x, y = particles[levels == level][:, :2].T
            ax.plot(x, y, "o", color=PARTICLE, ms=1.6 + level, alpha=0.65, mew=0, ls="")
        exact = exact_at(sample, index, t)
        if "samples" in exact:
            x, y = np.asarray(exact["samples"]).T
            ax.plot(x, y, "+", color=EXACT, ms=3.5, mew=0.7, ls="")
        _arrow(ax, sample["truth"][index][t], TRUE, "o")
        if "mean" in exact:
            ax.plot(*exact["mean"], "D", mfc="none", mec=EXACT, mew=1.3, ms=8)
        _arrow(ax, sample["prediction"][index][t], PREDICTED, "s")
        ax.set_title(f"t = {t}")
    count = len(sample["particles"][index][0])
    number = index + 1
    data = {
        name: [sample[name][index][t] for t in times]
        for name in ("truth", "prediction", "particles", "weights")
    }
    data["exact"] = [exact_at(sample, index, t) for t in times]
    return Drawing(
        f"belief-{dataset}-{number}",
        f"Belief of {label(variant)} in {dataset}, test trajectory {number}",
        f"Blue circle: true pose; red square: predicted pose; green dots: poses predicted by the "
        f"{count} particles, larger with more weight. Grey: obstacles; dark: obstacles whose "
        f"corners are landmarks. Times are chosen by the particles' spread.{_exact_text(data)}",
        f"Five maps of {dataset}: the particles spread over the map at first and gather later "
        "around the predicted pose.",
        {"times": times, "map": sample.get("map"), **data},
        figure,
    )


def exact_at(sample: dict[str, Any], index: int, t: int) -> dict[str, Any]:
    """Return mean and draws of the exact posterior at one step, as far as they are known."""
    found = {}
    for name in ("mean", "samples"):
        known = sample.get(f"exact_{name}") or []
        if index < len(known) and known[index] is not None:
            found[name] = known[index][t]
    return found


def _exact_text(data: dict[str, Any]) -> str:
    names = data["exact"][0].keys()
    mean = " Open violet diamond: mean of the exact posterior, the best answer there is."
    draws = " Violet crosses: positions drawn from it."
    return mean * ("mean" in names) + draws * ("samples" in names)


def draw_maze(ax: Any, grid: list[list[float]] | None) -> None:
    """Draw a map's obstacles; without a map only the frame."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_aspect("equal")
    for side in ("top", "right", "bottom", "left"):
        ax.spines[side].set_visible(True)
    if grid is None:
        return
    rows, columns = len(grid), len(grid[0])
    ax.set_xlim(0, columns)
    ax.set_ylim(0, rows)
    for kind, face in ((1, WALL), (2, LANDMARK)):
        # Row 0 of the map stands on top; y grows upwards.
        corners = [
            (c, rows - 1 - r)
            for r, row in enumerate(grid)
            for c, cell in enumerate(row)
            if cell == kind
        ]
        squares = [Path.unit_rectangle().transformed(Affine2D().translate(*c)) for c in corners]
        if squares:  # one path for all: small files
            walls = Path.make_compound_path(*squares)
            ax.add_patch(PathPatch(walls, facecolor=face, edgecolor="none", zorder=0))


def _arrow(ax: Any, pose: list[float], colour: str, marker: str) -> None:
    x, y = pose[0], pose[1]
    ax.plot([x], [y], marker, color=colour, markersize=6, markeredgecolor=INK, markeredgewidth=0.4)
    if len(pose) >= 4:
        # Headings are compass angles: sin is the share along x, cos the share along y.
        length = max(float(np.hypot(pose[2], pose[3])), 1e-9)
        ax.plot([x, x + pose[2] / length], [y, y + pose[3] / length], color=colour, linewidth=1.8)
