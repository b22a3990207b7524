"""index.html: one self-contained file, from views that are text already."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

from pfrnn.study.config import TIERS
from pfrnn.study.files import write_text
from pfrnn.study.report.assets import asset
from pfrnn.study.report.cells import Cell, Lookup
from pfrnn.study.report.figures.style import Drawing, label, svg_text
from pfrnn.study.report.summary import banner, commits_said, joined, legend, sentences, tiles
from pfrnn.study.report.views import FigureView, Matrix, Part, Record, Tile
from pfrnn.study.variants import FIDELITY, VARIANTS

WIDE = ("belief-",)


def figure_view(drawing: Drawing) -> FigureView:
    """Return a drawing as the page shows it."""
    return FigureView(
        drawing.name,
        drawing.title,
        drawing.caption,
        drawing.alt,
        svg_text(drawing) if drawing.figure is not None else "",
        drawing.name.startswith(WIDE),
        drawing.absent,
    )


def write_page(
    path: Path,
    cells: Sequence[Cell],
    lookup: Lookup,
    matrices: Sequence[Matrix],
    parts: Sequence[Part],
    records: Sequence[Record],
    further_tiles: Sequence[Tile] = (),
) -> None:
    """Render the page."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    evidence = lookup.evidence
    results = evidence.results
    ran = set(results["variant"])
    others = [*FIDELITY, *sorted(ran - set(VARIANTS) - set(FIDELITY))]
    shown = [*VARIANTS, *(name for name in others if name in ran)]
    states = (f"{name} {card['state']}" for name, card in evidence.cards.items())
    page: dict[str, Any] = {
        "tier": evidence.study.tier,
        "about": TIERS.get(evidence.study.tier, ""),
        "commits": commits_said(evidence),
        "devices": joined(results["device"], "none (nothing ran)"),
        "states": joined(states, "none prepared"),
        "confidence": f"{100 * evidence.study.confidence:g} %",
        "banner": banner(evidence.study.tier),
        "tiles": [*tiles(cells, lookup), *further_tiles],
        "sentences": sentences(cells, lookup),
        "legend": legend(),
        "datasets": sorted(
            ({cell.number.dataset for cell in cells} | set(results["dataset"])) - {"all"}
        ),
        "variants": [(name, label(name)) for name in shown],
        "matrices": matrices,
        "parts": parts,
        "records": json_text([{"title": r.title, "lines": r.lines} for r in records]),
        "sections": [
            ("summary", "Summary"),
            *((matrix.anchor, matrix.title.partition(".")[0]) for matrix in matrices),
            *((part.anchor, part.title) for part in parts),
        ],
    }
    template = environment.get_template("index.html")
    text = template.render(page=page, css=_css(), js=asset("page.js"))
    write_text(path, "\n".join(line.rstrip() for line in text.splitlines()) + "\n")


def _css() -> Any:
    from markupsafe import Markup

    return Markup(asset("style.css"))  # our own file, written for a style element


def json_text(value: Any) -> str:
    """Write JSON for a script element: no text in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.replace("<", "\\u003c")
