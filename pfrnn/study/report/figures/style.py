"""One colour and one marker a method everywhere; figures whose bytes depend on the data only.

Colours follow Okabe and Ito (2008), darkened where needed so that each has a contrast of at least
3 to 1 on a white and on a dark page; markers and dashes say the same to those who see no colour.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from pfrnn.study.files import atomic_path
from pfrnn.study.report.numbers import steady
from pfrnn.study.variants import FIDELITY, OWN, VARIANTS

INK = "#1b1e22"  # text and axes; becomes the page's text colour in the page
FAINT = "#9a9ea3"  # grid and secondary lines; becomes the page's line colour
PAPER = "#b3403a"  # the paper's printed numbers: an open diamond in this colour
WALL, LANDMARK = "#b9bcc0", "#55595f"

COLOURS = {
    "lstm": "#c27a00",
    "gru": "#b8578e",
    "pf_lstm": "#0e7fc0",
    "pf_gru": "#00916c",
    "bayes_lstm": "#d2600f",
    "bayes_gru": "#8f6fc9",
    "lstm_ensemble": "#7d8a2e",
    "gru_ensemble": "#9b6a52",
    "lstm_bnrelu": "#a8763e",
}
MARKERS = {
    "lstm": "s",
    "gru": "D",
    "pf_lstm": "o",
    "pf_gru": "^",
    "bayes_lstm": "v",
    "bayes_gru": "<",
    "lstm_ensemble": "P",
    "gru_ensemble": "X",
    "lstm_bnrelu": "p",
}
# Numbers between powers of ten on a logarithmic axis of less than a decade.
FEW = (2.0, 3.0, 5.0)
MANY = (1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
DASHES = {"lstm": "--", "gru": "-.", "pf_lstm": "-", "pf_gru": (0, (5, 1, 1, 1))}


class Drawing(NamedTuple):
    """A finished figure.

    Attributes:
        name: file name without ending.
        title: one line.
        caption: what is drawn, with units and numbers of runs.
        alt: what the figure shows, in words.
        data: the numbers drawn, plain data: their digest decides whether a file is up to date.
        figure: the matplotlib figure; None when there is nothing to draw.
        absent: why there is nothing to draw.
    """

    name: str
    title: str
    caption: str
    alt: str
    data: Any
    figure: Figure | None
    absent: str = ""

    @property
    def digest(self) -> str:
        """Digest of the numbers drawn."""
        text = json.dumps(steady(self.data), sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def colour(variant: str) -> str:
    """Return a variant's colour; an ablation of PF-LSTM has PF-LSTM's."""
    return COLOURS.get(variant, COLOURS["pf_lstm"])


def marker(variant: str) -> str:
    """Return a variant's marker."""
    return MARKERS.get(variant, "o")


def dashes(variant: str) -> Any:
    """Return a variant's line style."""
    return DASHES.get(variant, "-")


def label(variant: str) -> str:
    """Return the paper's spelling of a variant."""
    known = VARIANTS.get(variant) or FIDELITY.get(variant) or OWN.get(variant)
    return variant if known is None else known.label


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, Any]:
    """Make a figure with axes, sizes in inches; axes always as a 2-d array."""
    settings: Any = {
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "axes.titlesize": 9.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "legend.frameon": False,
        "legend.fontsize": 8,
        "lines.linewidth": 1.6,
        "figure.max_open_warning": 0,
    }
    plt.rcdefaults()  # a user's own style must not change the report's bytes
    plt.rcParams.update(settings)
    return plt.subplots(rows, columns, figsize=(width, height), squeeze=False, layout="constrained")


def shown_as(variant: str, *, points: bool = False) -> dict[str, Any]:
    """Return a variant's line style, or its style as points."""
    look = {"color": colour(variant)}
    return look | ({"marker": marker(variant), "ls": ""} if points else {"ls": dashes(variant)})


def legend_above(figure: Figure, axes: Any, columns: int = 4) -> None:
    """Draw one legend for all panels, above them."""
    handles = {}
    for ax in axes.flat:
        for handle, text in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(text, handle)
    figure.legend(
        handles.values(), handles.keys(), loc="outside upper left", ncols=columns, borderpad=0
    )


def light_grid(axes: Any, axis: str = "y") -> None:
    """Draw a faint grid behind the data."""
    axes.grid(True, axis=axis, color=FAINT, linewidth=0.4, alpha=0.6)
    axes.set_axisbelow(True)


def log_axis(axes: Any, which: str = "y") -> None:
    """Make an axis logarithmic with plain numbers; below a decade also between powers of ten."""
    (axes.set_yscale if which == "y" else axes.set_xscale)("log")
    axis = axes.yaxis if which == "y" else axes.xaxis
    low, high = axis.get_view_interval()
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    narrow = high < 12 * low
    if narrow:
        few = which == "x" or high > 8 * low  # numbers side by side need more room
        axis.set_minor_locator(LogLocator(subs=FEW if few else MANY))
    axis.set_minor_formatter(
        FuncFormatter(lambda value, _: f"{value:g}") if narrow else NullFormatter()
    )


def svg_text(drawing: Drawing) -> str:
    """Return the figure as SVG for the page: no prologue, no date, the page's own ink."""
    buffer = io.StringIO()
    with plt.rc_context({"svg.hashsalt": drawing.name, "svg.fonttype": "none"}):
        _figure(drawing).savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = _numbered_ids(text)
    # Ids are unique in the page, not only in the figure.
    text = re.sub(r'id="([^"]+)"', rf'id="{drawing.name}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{drawing.name}-\1)", text)
    text = re.sub(r'xlink:href="#([^"]+)"', rf'xlink:href="#{drawing.name}-\1"', text)
    text = text.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
    text = text.replace(INK, "currentColor").replace(FAINT, "var(--line)")
    text = re.sub(r"-?\d+\.\d{3,}", lambda found: f"{float(found[0]):.1f}", text)
    return "\n".join(line.strip() for line in text.splitlines())


def _numbered_ids(svg: str) -> str:
    """Number the ids of clips and markers in the order in which they appear.

    Matplotlib derives them from all digits of a place, whose last ones depend on the processor.
    """
    numbers: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        return numbers.setdefault(found[0], f"{found[0][0]}{len(numbers)}")

    return re.sub(r"(?<=[\"#])[a-z][0-9a-f]{10}(?=[\")])", numbered, svg)


def save(drawing: Drawing, folder: Path) -> None:
    """Write ``<name>.pdf`` and ``<name>.png``; the same numbers give the same bytes."""
    kinds: tuple[tuple[str, dict[str, Any]], ...] = (
        ("pdf", {"metadata": {"CreationDate": None, "Creator": None, "Producer": None}}),
        ("png", {"dpi": 130, "facecolor": "white", "metadata": {"Software": None}}),
    )
    for kind, options in kinds:
        with atomic_path(folder / f"{drawing.name}.{kind}") as path:
            _figure(drawing).savefig(path, format=kind, **options)


def _figure(drawing: Drawing) -> Figure:
    figure = drawing.figure
    if figure is None:
        raise ValueError(f"figure {drawing.name} has nothing to draw: {drawing.absent}")
    if figure.get_layout_engine() is not None:
        # Lay out once: each format would do it again.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    return figure
