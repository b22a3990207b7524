"""Write a report: evidence, tables, figures, claims and the page. The entry of rule ``report``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pfrnn.study.report.cells import Lookup
from pfrnn.study.report.claim_parts import claim_tiles, claims_part, parity_part
from pfrnn.study.report.claims import judge_claims, judge_strata
from pfrnn.study.report.collect import collect
from pfrnn.study.report.counted_claims import counted_claims
from pfrnn.study.report.data_part import data_part
from pfrnn.study.report.evidence import Evidence, Study, read_evidence
from pfrnn.study.report.fidelity_table import fidelity_part
from pfrnn.study.report.figures.belief import belief_panels
from pfrnn.study.report.figures.calibration import calibration
from pfrnn.study.report.figures.cost import cost_against_quality
from pfrnn.study.report.figures.learning import learning_curves
from pfrnn.study.report.figures.localization import localization_points
from pfrnn.study.report.figures.over_time import error_over_time, ess_over_time
from pfrnn.study.report.figures.particles import particles_against_error
from pfrnn.study.report.figures.scatter import scatter_plots
from pfrnn.study.report.figures.sequences import sequence_pictures
from pfrnn.study.report.figures.style import Drawing, close
from pfrnn.study.report.front import write_readme_block
from pfrnn.study.report.further import further_matrices, own_matrices
from pfrnn.study.report.gaps import deviations_part, unknown_part
from pfrnn.study.report.localization import localization_matrix
from pfrnn.study.report.matrices import Records, paper_matrix
from pfrnn.study.report.outputs import write_claims, write_figures, write_tables
from pfrnn.study.report.page import figure_view, write_page
from pfrnn.study.report.player import belief_player
from pfrnn.study.report.publish import Slices, gather
from pfrnn.study.report.sections import controls_part, missing_part, runs_part, units_part
from pfrnn.study.report.summary_table import all_cells
from pfrnn.study.report.views import Part


def write_report(
    results: Path,
    prepared: Path,
    study: Study,
    out: Path,
    slices: Slices | None = None,
    say: Callable[[str], None] = print,
) -> Path:
    """Gather the evidence of a tier and render it; return the page's path.

    A folder that is itself evidence (``data/study.json``) is rendered as it stands.

    Args:
        results: ``results/<tier>``, or an evidence folder.
        prepared: ``data/prepared``.
        study: what the tier set out to run.
        out: the report's folder.
        slices: the plan, and recorded evidence to go on from; None: the results alone.
        say: is given what was kept, dropped or replaced, line by line.
    """
    if (results / "data" / "study.json").is_file():
        return render(results, out)
    if slices is None:
        collect(results, prepared, study, out)
    else:
        for line in gather(results, prepared, study, out, slices):
            say(line)
    return render(out, out)


def render(evidence_folder: Path, out: Path) -> Path:
    """Render every table, figure and the page from an evidence folder; return the page's path."""
    evidence = read_evidence(evidence_folder)
    lookup = Lookup(evidence)
    tier = evidence.study.tier
    cells = all_cells(lookup)
    claims = judge_claims(lookup)
    strata = judge_strata(claims, tier)
    counted = counted_claims(lookup)
    records = Records(lookup)
    matrices = [paper_matrix(cells, lookup, records, table) for table in (1, 2)]
    matrices.append(localization_matrix(cells, lookup, records))
    matrices += [paper_matrix(cells, lookup, records, table) for table in (3, 4, 5)]
    matrices += own_matrices(lookup, records)
    matrices += further_matrices(lookup, records)
    figures = draw(evidence, lookup)
    pictures = sequence_pictures(evidence)
    fidelity = fidelity_part(lookup)
    parts = [
        claims_part(claims, strata, counted, lookup),
        *([fidelity] if fidelity else []),
        controls_part(lookup),
        *(figure_part(title, drawings, evidence) for title, drawings in figures.items()),
        units_part(lookup),
        parity_part(lookup),
        deviations_part(),
        unknown_part(),
        missing_part(lookup),
        data_part(lookup, pictures),
        runs_part(lookup),
    ]
    drawings = [one for several in figures.values() for one in several] + pictures
    write_tables(cells, lookup, out / "tables")
    write_claims(claims, strata, counted, tier, out)
    write_figures(drawings, out / "figures")
    write_readme_block(cells, claims, lookup, drawings, out)
    tiles = claim_tiles(claims, tier)
    write_page(out / "index.html", cells, lookup, matrices, parts, records.records, tiles)
    for drawing in drawings:
        close(drawing)
    return out / "index.html"


def draw(evidence: Evidence, lookup: Lookup) -> dict[str, list[Drawing]]:
    """Draw all figures, by the section that shows them."""
    return {
        "Localisation": [localization_points(lookup), *error_over_time(evidence)],
        "Learning curves": learning_curves(evidence),
        "Belief in the maze": belief_panels(evidence),
        "Particles": [
            *ess_over_time(evidence),
            particles_against_error(lookup),
            *calibration(evidence),
        ],
        "Bayesian RNNs and ensembles": scatter_plots(lookup),
        "Cost": cost_against_quality(lookup),
    }


_NOTHING = {
    "Learning curves": "No final of the four main models has left a history yet; those of the "
    "other variants stand in their history.csv.",
    "Belief in the maze": "No particle filter has run on a maze yet.",
}
_PLAYER = (
    "Step by step: true pose (blue), predicted pose (red), poses predicted by the particles (green)"
    " and, as a violet circle where it is known, the mean of the exact posterior."
)


def figure_part(title: str, drawings: list[Drawing], evidence: Evidence) -> Part:
    """Return a section of figures."""
    anchor = "figures-" + title.lower().replace(" ", "-")
    player = belief_player(evidence) if title == "Belief in the maze" else None
    paragraphs = (_PLAYER,) if player else () if drawings else (_NOTHING[title],)
    shown = f"{title}: figures" if title in ("Localisation", "Particles", "Cost") else title
    return Part(anchor, shown, paragraphs, (), tuple(map(figure_view, drawings)), player)
