"""Write a report: evidence, tables, figures and the page. The entry of the rule ``report``."""

from __future__ import annotations

from pathlib import Path

from pfrnn.files import write_json, write_text
from pfrnn.reporting import tables
from pfrnn.reporting.cells import Cell, Lookup, build_cells
from pfrnn.reporting.collect import collect
from pfrnn.reporting.evidence import Evidence, Study, read_evidence
from pfrnn.reporting.figures.belief import belief_panels
from pfrnn.reporting.figures.learning import learning_curves
from pfrnn.reporting.figures.style import Drawing, close, save
from pfrnn.reporting.localization import localization_matrix
from pfrnn.reporting.matrices import Records, paper_matrix, tier_note
from pfrnn.reporting.page import figure_view, write_page
from pfrnn.reporting.player import belief_player
from pfrnn.reporting.sections import controls_part, data_part, missing_part, runs_part, units_part
from pfrnn.reporting.views import Part

TABLES = (1, 2, 4, 5)


def write_report(results: Path, prepared: Path, study: Study, out: Path) -> Path:
    """Gather the evidence of a tier and render it; return the page's path.

    A folder that is itself evidence (``data/study.json``) is rendered as it stands.
    """
    if (results / "data" / "study.json").is_file():
        return render(results, out)
    collect(results, prepared, study, out)
    return render(out, out)


def render(evidence_folder: Path, out: Path) -> Path:
    """Render every table, figure and the page from an evidence folder; return the page's path."""
    evidence = read_evidence(evidence_folder)
    lookup = Lookup(evidence)
    cells = build_cells(lookup)
    records = Records(lookup)
    write_tables(cells, lookup, out / "tables")
    matrices = [paper_matrix(cells, lookup, records, table) for table in (1, 2)]
    matrices.append(localization_matrix(cells, lookup, records))
    matrices += [paper_matrix(cells, lookup, records, table) for table in (4, 5)]
    drawings = [*learning_curves(evidence), *belief_panels(evidence)]
    parts = [
        controls_part(lookup),
        *figure_parts(evidence, drawings),
        units_part(lookup),
        missing_part(lookup),
        data_part(lookup),
        runs_part(lookup),
    ]
    write_figures(drawings, out / "figures")
    write_page(out / "index.html", cells, lookup, matrices, parts, records.records)
    for drawing in drawings:
        close(drawing)
    return out / "index.html"


def figure_parts(evidence: Evidence, drawings: list[Drawing]) -> list[Part]:
    """Return the sections of figures."""
    learning = [one for one in drawings if one.name.startswith("learning-")]
    belief = [one for one in drawings if one.name.startswith("belief-")]
    return [
        Part(
            "learning",
            "Learning curves",
            () if learning else ("No final run has left a history yet.",),
            figures=tuple(figure_view(one) for one in learning),
        ),
        Part(
            "belief",
            "Belief in the maze",
            () if belief else ("No particle filter has run on a maze yet.",),
            figures=tuple(figure_view(one) for one in belief),
            player=belief_player(evidence),
        ),
    ]


def write_tables(cells: list[Cell], lookup: Lookup, folder: Path) -> None:
    """Write the tidy table of all cells, and each table as Markdown and LaTeX."""
    note = tier_note(lookup.evidence.study.tier)
    write_text(folder / "cells.csv", tables.tidy_csv(cells))
    for table in TABLES:
        part = [cell for cell in cells if cell.number.table == table]
        write_text(folder / f"table{table}.csv", tables.tidy_csv(part))
        write_text(folder / f"table{table}.md", tables.markdown(cells, table, note))
        write_text(folder / f"table{table}.tex", tables.latex(cells, table, note))


def write_figures(drawings: list[Drawing], folder: Path) -> None:
    """Write each figure as PDF and PNG, and the digests of the numbers drawn."""
    drawn = [one for one in drawings if one.figure is not None]
    for drawing in drawn:
        save(drawing, folder)
    write_json(folder / "digests.json", {one.name: one.digest for one in drawn})
