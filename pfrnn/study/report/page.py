"""index.html: one self-contained file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from pfrnn.study.config import TIERS
from pfrnn.study.files import write_text
from pfrnn.study.report.assets import asset
from pfrnn.study.report.claims import Judged, word_counts
from pfrnn.study.report.figures.belief import player
from pfrnn.study.report.figures.style import label, svg_text
from pfrnn.study.report.paper.numbers import TITLES
from pfrnn.study.report.results import Results
from pfrnn.study.report.sections import Part, joined
from pfrnn.study.report.summary import provenance, ran_sentence
from pfrnn.study.report.tables import laid_out, texts_of, tier_note
from pfrnn.study.report.units import reading_of
from pfrnn.study.report.verdicts import MEANINGS, NOT_RUN, REDUCED_TIERS, REFERENCE, SIGNS

# What a reader must know about when a tier was planned.
PLANNING = {
    "gpu_long": "This tier was planned after the results of tier gpu were seen: its tests are "
    "exploratory. They count in one family with those of tier gpu.",
    "study": "This tier was planned before its runs (reports/plan.md); its tests are a family of "
    "their own. The test sets had been read before, by tiers gpu and gpu_long.",
}
OTHERS = {
    "localization": (
        "Localisation",
        "Test errors in map units squared (mean of x and y); success: last step's error below 1. "
        "The mean hangs on a few mirrored poses, so the median stands beside. No method has a "
        "smaller expected error than the exact posterior, which knows map, rules and noise.",
    ),
    "own": (
        "Own models",
        "Models that were added to the paper's, below its main ones, all of this run: the same "
        "splits, search, repetitions and seeds.",
    ),
    "further": ("Further data sets", "Ours on sets that were added to the paper's."),
}


def write_page(
    path: Path, cells: pd.DataFrame, judged: Judged, results: Results, parts: Sequence[Part]
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
    environment.filters["svg"] = lambda drawing: Markup(svg_text(drawing))
    tier, data = results.study.tier, player(results)
    tables = _tables(cells, results)
    page: dict[str, Any] = {
        "tier": tier,
        "about": TIERS.get(tier, ""),
        "confidence": f"{100 * results.study.confidence:g} %",
        "banner": _banner(tier),
        "sentences": _sentences(cells, results),
        "verdicts": [] if tier in REDUCED_TIERS else _verdicts(cells),
        "claims": {} if tier in REDUCED_TIERS else word_counts(judged, results),
        "datasets": sorted({*cells["dataset"], *results.sets} - {"all"}),
        "variants": [(name, label(name)) for name in dict.fromkeys(cells["variant"]) if name],
        "tables": tables,
        "parts": parts,
        "player": Markup(data),
        "mazes": list(json.loads(data)["mazes"]) if data else [],
        "provenance": provenance(results),
        "sections": [
            *((table["anchor"], table["title"].partition(".")[0]) for table in tables),
            *((part.anchor, part.title) for part in parts),
        ],
    }
    template = environment.get_template("index.html")
    text = template.render(
        page=page, css=Markup(asset("style.css")), js=Markup(asset("page.js")), texts_of=texts_of
    )
    write_text(path, "\n".join(line.rstrip() for line in text.splitlines()) + "\n")


def _banner(tier: str) -> str:
    if tier not in REDUCED_TIERS:
        return ""
    return (
        f"{tier_note(tier)} Sizes, grid, epochs or data are cut down so that it ends soon; its "
        "numbers show that the line from raw data to report works, and no verdict is given."
    )


def _sentences(cells: pd.DataFrame, results: Results) -> list[str]:
    """Say in words what ran and what is missing."""
    study, rows = results.study, results.rows
    if rows.empty:
        said = ["Nothing has run yet: every cell below says why."]
    else:
        most = int(rows.groupby("final_id")["repetition"].nunique().max())
        said = [
            f"{ran_sentence(cells, results)} Ran: {joined(rows['dataset'])}; up to {most} "
            f"repetitions of {rows['final_id'].nunique()} settings."
        ]
    if study.tier in PLANNING:
        said.append(PLANNING[study.tier])
    if study.missing:
        names = "; ".join(f"{name} ({why})" for name, why in sorted(study.missing.items()))
        said.append(f"Missing: {names}. The section on missing data sets says how to add them.")
    if study.stand_ins:
        said.append(f"Stand-ins for missing sets: {joined(study.stand_ins)}.")
    excerpts = [name for name in results.sets if results.state(name) == "excerpt"]
    if excerpts:
        said.append(f"Excerpts of their data sets: {', '.join(excerpts)}.")
    return said


def _verdicts(cells: pd.DataFrame) -> list[dict[str, Any]]:
    """The verdicts with their meaning and their number."""
    printed = cells[cells["table"].isin(list(TITLES)) & ~cells["control"]]
    counts = printed["verdict"].value_counts()
    return [
        {
            "sign": SIGNS[word][0],
            "kind": SIGNS[word][2],
            "word": word,
            "meaning": meaning,
            "count": int(counts.get(word, 0)),
        }
        for word, meaning in MEANINGS.items()
        if word not in (REFERENCE, NOT_RUN) or counts.get(word, 0)
    ]


def _tables(cells: pd.DataFrame, results: Results) -> list[dict[str, Any]]:
    """The paper's tables and the others, as the page lays them out."""
    shown = []
    for table in ("1", "2", "localization", "3", "4", "5", "own", "further"):
        layout = laid_out(cells, table)
        if not layout.methods:
            continue
        part = cells[(cells["table"] == table) & ~cells["control"]]
        title, note = OTHERS.get(table, (f"Table {table}. {TITLES.get(table)}", ""))
        sets = dict(zip(part["column"], part["dataset"], strict=True))
        shown.append(
            {
                "anchor": table if table in OTHERS else f"table-{table}",
                "title": title,
                "note": f"{note} {_units(sets) if table != 'localization' else ''} "
                f"{tier_note(results.study.tier)}".strip(),
                "layout": layout,
                "sets": sets,
                "variants": dict(zip(part["method"], part["variant"], strict=True)),
                "empty": not (part["n"] > 0).any(),
            }
        )
    return shown


def _units(sets: dict[str, str]) -> str:
    """Say how the printed numbers of a table's columns are read."""
    units: dict[str, list[str]] = {}
    for column, dataset in sets.items():
        reading = reading_of(dataset)
        if dataset != "all" and reading.metric != "accuracy":
            doubt = "" if reading.certain else " (inferred)"
            units.setdefault(reading.unit + doubt, []).append(column)
    parts = [f"{', '.join(names)}: {unit}" for unit, names in units.items()]
    return f"Read as {'; '.join(parts)}." if parts else ""
