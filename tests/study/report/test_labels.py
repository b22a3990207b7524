"""Names beside points: readable where points crowd, by the extents that are really drawn."""

import itertools

from matplotlib.text import Annotation

from pfrnn.study.report.figures import labels
from pfrnn.study.report.figures.style import new_figure

CROWD = [("lpa", 50.0, 50.0), ("arem", 50.5, 51.0), ("maze27", 52.0, 50.0), ("gas", 51.0, 48.5)]


def drawn(points: list[tuple[str, float, float]]) -> list[Annotation]:
    figure, axes = new_figure(3.8, 3.6)
    ax = axes[0, 0]
    ax.set_xlim(0, 100)
    ax.set_ylim(0, 100)
    for _, x, y in points:
        ax.plot([x], [y], "o", ms=6)
    labels.name_points(ax, points)
    figure.canvas.draw()
    return [child for child in ax.get_children() if isinstance(child, Annotation)]


def overlaps(texts: list[Annotation]) -> int:
    boxes = [text.get_window_extent() for text in texts]
    return sum(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_names_in_a_crowd_do_not_cover_each_other() -> None:
    texts = drawn(CROWD)
    assert [text.get_text() for text in texts] == [name for name, *_ in CROWD]
    assert overlaps(texts) == 0


def test_names_all_at_one_offset_would() -> None:
    texts = drawn(CROWD)
    for text in texts:
        text.set_position((3, 3))
    texts[0].figure.canvas.draw()
    assert overlaps(texts) > 0


def test_two_points_close_by_share_a_name_and_distant_ones_do_not() -> None:
    texts = drawn([("mr", 20.0, 20.0), ("mr", 21.0, 21.0), ("mr", 80.0, 80.0)])
    assert [text.xy for text in texts] == [(20.0, 20.0), (80.0, 80.0)]
