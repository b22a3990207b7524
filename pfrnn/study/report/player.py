"""The animated belief in the page: a few trajectories as short JSON."""

from __future__ import annotations

from typing import Any

from pfrnn.study.report.evidence import Evidence
from pfrnn.study.report.figures.belief import EXACT, PARTICLE, PREDICTED, TRUE
from pfrnn.study.report.figures.style import LANDMARK, WALL
from pfrnn.study.report.page import json_text
from pfrnn.study.report.views import Player


def belief_player(evidence: Evidence) -> Player | None:
    """Return the player of the first pictured maze; None when no belief was recorded."""
    for _, sample in sorted(evidence.beliefs.items()):
        if "map" in sample:
            return _player(sample)
    return None


def _player(sample: dict[str, Any]) -> Player:
    grid = sample["map"]
    height, width = len(grid), len(grid[0])
    walls = tuple(
        (float(c), float(r), LANDMARK if cell > 1 else WALL)
        for r, row in enumerate(grid)
        for c, cell in enumerate(row)
        if cell > 0
    )
    trajectories: list[dict[str, list[Any]]] = [
        {
            "truth": [_pose(pose) for pose in sample["truth"][s]],
            "prediction": [_pose(pose) for pose in sample["prediction"][s]],
            "particles": [[_point(one) for one in step] for step in sample["particles"][s]],
            "exact": [_point(one) for one in (_exact(sample, s) or [])],
        }
        for s in range(len(sample["truth"]))
    ]
    data = {
        "height": height,
        "colours": [TRUE, PREDICTED, PARTICLE, EXACT],
        "trajectories": trajectories,
    }
    last = max(len(one["truth"]) for one in trajectories) - 1
    return Player(width, height, walls, len(trajectories), last, json_text(data))


def _exact(sample: dict[str, Any], index: int) -> list[list[float]] | None:
    known = sample.get("exact_mean") or []
    return known[index] if index < len(known) else None


def _point(values: list[float]) -> list[float]:
    return [round(values[0], 2), round(values[1], 2)]


def _pose(values: list[float]) -> list[float]:
    """x, y and a heading vector of at most one unit (sin along x, cos along y)."""
    if len(values) < 4:
        return [*_point(values), 0.0, 0.0]
    length = max((values[2] ** 2 + values[3] ** 2) ** 0.5, 1e-9)
    return [*_point(values), round(values[2] / length, 2), round(values[3] / length, 2)]
