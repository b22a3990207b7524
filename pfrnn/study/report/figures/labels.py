"""Names beside the points of a scatter plot, none over another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SIZE = 6.5
# A name's width is estimated, not measured: the same on every renderer. In units of the font size.
_CHARACTER = 0.58
_HALF_MARKER = 3.0
# Points this close with the same name share one.
_TOGETHER = 14.0

Box = tuple[float, float, float, float]


def name_points(axes: Any, points: Sequence[tuple[str, float, float]]) -> None:
    """Write each point's name where it covers no marker and no other name, if there is room.

    Args:
        axes: with its final limits.
        points: name, x and y in data coordinates.
    """
    scale = 72.0 / axes.figure.dpi
    placed = [(name, *(scale * axes.transData.transform((x, y))), x, y) for name, x, y in points]
    taken: list[Box] = [
        (px - _HALF_MARKER, py - _HALF_MARKER, px + _HALF_MARKER, py + _HALF_MARKER)
        for _, px, py, *_ in placed
    ]
    written: list[tuple[str, float, float]] = []
    for name, px, py, x, y in placed:
        if any(
            name == other and abs(px - ox) + abs(py - oy) < _TOGETHER for other, ox, oy in written
        ):
            continue
        written.append((name, px, py))
        offset, box = _freest(px, py, name, taken)
        taken.append(box)
        axes.annotate(name, (x, y), offset, textcoords="offset points", fontsize=SIZE)


def _freest(
    px: float, py: float, name: str, taken: Sequence[Box]
) -> tuple[tuple[float, float], Box]:
    """Return the first place without overlap, else the one with the least."""
    places = [(offset, _box(px + offset[0], py + offset[1], name)) for offset in _offsets(name)]
    return min(places, key=lambda place: sum(_overlap(place[1], other) for other in taken))


def _offsets(name: str) -> list[tuple[float, float]]:
    """Where the name's lower left corner may stand, from the point; nearest first."""
    width = len(name) * _CHARACTER * SIZE
    found = []
    for far in (3.5, 9.0, 16.0):
        right, left, up, down = far, -far - width, far, -far - SIZE * 0.8
        found += [(right, up), (right, down), (left, up), (left, down)]
        found += [(-width / 2, up + 1), (-width / 2, down - 1)]
    return found


def _box(x: float, y: float, name: str) -> Box:
    return (x, y, x + len(name) * _CHARACTER * SIZE, y + SIZE)


def _overlap(one: Box, other: Box) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(width, 0.0) * max(height, 0.0)
