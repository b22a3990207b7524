"""Colours are readable on both pages and by colour-blind readers; text contrast is enough."""

import itertools
import re
from importlib import resources

import numpy as np
import pytest

from pfrnn.study.report.figures.style import COLOURS, MARKERS, Drawing, new_figure, svg_text
from pfrnn.study.report.verdicts import SIGNS

CSS = resources.files("pfrnn.study.report").joinpath("templates", "style.css").read_text("utf-8")
# Viénot, Brettel, Mollon (1999): linear RGB as a protanope and a deuteranope see it.
BLIND = {
    "protanope": [[0.1124, 0.8876, 0.0], [0.1124, 0.8876, 0.0], [0.004, -0.004, 1.0]],
    "deuteranope": [[0.2927, 0.7073, 0.0], [0.2927, 0.7073, 0.0], [-0.0223, 0.0223, 1.0]],
}
MAIN = ("lstm", "gru", "pf_lstm", "pf_gru")


def linear(colour: str) -> np.ndarray:
    rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """WCAG contrast ratio."""
    low, high = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, other))
    return (high + 0.05) / (low + 0.05)


def variables(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))


LIGHT = variables(CSS[: CSS.index("@media")])
DARK = LIGHT | variables(CSS[CSS.index("@media (prefers") : CSS.index("* {")])


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_contrast(theme: dict[str, str]) -> None:
    for name in ("ink", "soft", "accent", "consistent", "better", "worse", "noisy"):
        assert contrast(theme[name], theme["paper"]) >= 4.5, name
    assert contrast(theme["ink"], theme["warn-band"]) >= 4.5


@pytest.mark.parametrize("paper", ["#ffffff", "#15181c"])
def test_method_colours_stand_out_on_both_pages(paper: str) -> None:
    for name, colour in COLOURS.items():
        assert contrast(colour, paper) >= 3.0, name


@pytest.mark.parametrize("kind", [None, *BLIND])
def test_main_methods_differ_also_without_red_or_green(kind: str | None) -> None:
    seen = {name: linear(COLOURS[name]) for name in MAIN}
    if kind is not None:
        seen = {name: np.array(BLIND[kind]) @ value for name, value in seen.items()}
    for one, other in itertools.combinations(MAIN, 2):
        # Cube roots are close to even steps of lightness; 0.1 is a visible one.
        steps = [np.cbrt(np.clip(seen[name], 0, 1)) for name in (one, other)]
        assert np.linalg.norm(steps[0] - steps[1]) > 0.1, (one, other)


def test_every_method_has_its_own_marker_and_every_verdict_its_own_symbol() -> None:
    assert len(set(MARKERS.values())) == len(MARKERS) == len(COLOURS)
    assert len({sign for sign, _, _ in SIGNS.values()}) == len(SIGNS)


def test_a_digest_ignores_what_another_processor_rounds_otherwise() -> None:
    """0.1 + 0.2 and 0.3 differ in the last bit; 0.3 and 0.3 + 1e-9 are different numbers."""
    digests = [
        Drawing("n", "t", "c", "a", {"x": [value]}, None).digest for value in (0.1 + 0.2, 0.3)
    ]
    assert digests[0] == digests[1]
    assert Drawing("n", "t", "c", "a", {"x": [0.3 + 1e-9]}, None).digest != digests[0]


def drawn(shift: float) -> str:
    """A figure in which every place is a little further to the right."""
    figure, axes = new_figure(3, 2)
    axes[0, 0].plot([1, 2, 3], [1, 4, 9], marker="o")
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    box = axes[0, 0].get_position()
    axes[0, 0].set_position((box.x0 + shift, box.y0, box.width, box.height))
    drawing = Drawing("n", "t", "c", "a", {}, figure)
    text = svg_text(drawing)
    return text


def test_a_picture_in_the_page_ignores_it_too() -> None:
    """The ids of clips don't depend on the last bits of a place."""
    one = drawn(0.0)
    assert 'clip-path="url(#n-p' in one
    assert one == drawn(1e-12)
    assert one != drawn(1e-3)
