"""Write a report: evidence, tables, figures, claims and the page. The entry of rule ``report``."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
import matplotlib.pyplot as plt

from pfrnn.errors import ConfigError, RecordError
from pfrnn.study.files import write_json, write_text
from pfrnn.study.plan import Plan
from pfrnn.study.recorded import tier_recorded
from pfrnn.study.report import sections
from pfrnn.study.report.cells import all_cells
from pfrnn.study.report.claims import counted_claims, judge, shown_claims
from pfrnn.study.report.collect import check_cards, collect
from pfrnn.study.report.evidence import Evidence, Study, read_evidence, write_evidence
from pfrnn.study.report.fidelity import TITLE, fidelity_frame, fidelity_sentences, shown_fidelity
from pfrnn.study.report.figures import belief, points, sequences
from pfrnn.study.report.figures.lines import line_figures
from pfrnn.study.report.figures.style import Drawing, save
from pfrnn.study.report.merge import merge
from pfrnn.study.report.page import write_page
from pfrnn.study.report.results import Results
from pfrnn.study.report.sections import Part, Table
from pfrnn.study.report.summary import summary
from pfrnn.study.report.tables import latex, markdown, tier_note, write_csv, write_tables

# The tier with a plan of its own, whose tests are adjusted among themselves.
PLANNED = "study"
DIGESTS = "digests.json"
# Sections of figures alone.
FIGURES = (
    "Localisation",
    "Learning curves",
    "Belief in the maze",
    "Particles",
    "Bayesian RNNs and ensembles",
    "Cost",
)


class Slices(NamedTuple):
    """What a publication goes on from.

    Attributes:
        plan: the tier's whole plan.
        recorded: folder whose evidence is merged with the results; None: no merge.
        drop: SET or SET/VARIANT whose recorded results are given up.
    """

    plan: Plan
    recorded: Path | None = None
    drop: tuple[str, ...] = ()


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
        return render(read_evidence(results), out, published_beside(out))
    if slices is None:
        evidence, said = collect(results, prepared, study), []
    else:
        evidence, said = gather(results, prepared, study, slices)
    for line in said:
        say(line)
    write_evidence(evidence, out)
    return render(read_evidence(out), out, published_beside(out))


def gather(
    results: Path, prepared: Path, study: Study, slices: Slices
) -> tuple[Evidence, list[str]]:
    """Return the evidence of the results and of what is recorded, and what was done, in words.

    Evidence of the same tier is merged; another tier's is replaced.

    Raises:
        RecordError: there is nothing to replace another tier's evidence with, or results are of
            two versions of a data set, or of one without a card.
    """
    evidence, said = collect(results, prepared, study, slices.plan), []
    tier = tier_recorded(slices.recorded) if slices.recorded else None
    if slices.recorded and tier == study.tier:
        return merge(read_evidence(slices.recorded), evidence, slices.plan, slices.drop)
    if slices.drop:
        raise ConfigError(
            f"--drop {slices.drop[0]}: there is no evidence of tier {study.tier} to drop it from; "
            "name its folder (--out or --recorded)"
        )
    if tier is not None:
        if evidence.results.empty:
            raise RecordError(
                f"{results}: no results of tier {study.tier} to replace tier {tier}'s evidence in "
                f"{slices.recorded}; run the tier, or name another folder (--out)"
            )
        said.append(f"replaced: {slices.recorded} held the evidence of tier {tier}")
    check_cards(evidence, slices.plan)
    return evidence, said


def published_beside(folder: Path) -> list[Evidence]:
    """Return the evidence of the other published tiers whose tests are of one family with these.

    The main study's report lies in a folder, another tier's in a folder within. Tier study was
    planned on its own (reports/plan.md): its tests are a family of their own.
    """
    if folder.name == PLANNED:
        return []
    main = folder.parent if (folder.parent / "data" / "study.json").is_file() else folder
    every = [main, *(path.parents[1] for path in sorted(main.glob("*/data/study.json")))]
    others = [path for path in every if path.name != PLANNED]
    return [read_evidence(path) for path in others if path.resolve() != folder.resolve()]


def render(evidence: Evidence, out: Path, beside: Sequence[Evidence] = ()) -> Path:
    """Render every table, figure and the page; return the page's path.

    Args:
        evidence: what is reported.
        out: the report's folder.
        beside: the study's other tiers (:func:`published_beside`).
    """
    results = Results(evidence)
    tier = evidence.study.tier
    cells = all_cells(results)
    judged = judge(results, [Results(other) for other in beside])
    claims = judged.claims
    drawings = draw(results) | {"Gains": [points.forest(judged.gains)]}
    write_tables(cells, tier, out / "tables")
    write_csv(claims.drop(columns=["table", "named", "sets"]), out / "tables" / "claims.csv", 6)
    write_csv(judged.strata, out / "tables" / "claim_sets.csv", 6)
    write_csv(judged.gains, out / "tables" / "gains.csv", 6)
    if len(cost := sections.cost_frame(results)):
        write_csv(cost, out / "tables" / "cost.csv")
    text = f"# Claims\n\n{tier_note(tier)}\n\n{markdown(shown_claims(claims))}\n"
    text += "Rules: docs/statistics.md.\n\n" + markdown(counted_claims(results))
    write_text(out / "claims.md", text)
    flat = [drawing for several in drawings.values() for drawing in several]
    write_figures(flat, out / "figures")
    drawn = [drawing.name for drawing in flat if drawing.figure is not None]
    shown = next((n for n in drawn if n.startswith(("gains", "localization", "learn"))), "")
    write_text(out / "summary.md", summary(cells, judged, results, shown))
    parts = [
        sections.gains_part(judged, drawings["Gains"][0]),
        sections.claims_part(judged, results),
        *_fidelity(results, out / "tables"),
        sections.controls_part(results),
        *(figure_part(title, drawings[title]) for title in FIGURES),
        sections.units_part(results),
        sections.parity_part(results),
        *sections.gaps_parts(),
        sections.missing_part(results),
        sections.data_part(results, drawings["Data"]),
        sections.runs_part(results),
    ]
    write_page(out / "index.html", cells, judged, results, parts)
    plt.close("all")
    return out / "index.html"


def draw(results: Results) -> dict[str, list[Drawing]]:
    """Draw all figures, by the section that shows them."""
    lines = line_figures(results)
    return {
        "Localisation": [points.localization(results), lines["error"]],
        "Learning curves": [lines["learning"]],
        "Belief in the maze": belief.belief_panels(results),
        "Particles": [lines["ess"], points.particles(results), lines["calibration"]],
        "Bayesian RNNs and ensembles": points.scatter(results),
        "Cost": [points.cost(results)],
        "Data": sequences.sequence_pictures(results),
    }


def figure_part(title: str, drawings: Sequence[Drawing]) -> Part:
    """Return a section of figures."""
    anchor = "figures-" + title.lower().replace(" ", "-")
    said = () if drawings else ("No particle filter has run on a maze yet.",)
    return Part(anchor, f"{title}: figures", said, (), drawings)


def _fidelity(results: Results, folder: Path) -> list[Part]:
    """Write the fidelity's table where a row of it has run; return its section."""
    frame = fidelity_frame(results)
    if frame.empty:
        return []
    said, shown = fidelity_sentences(frame, results), shown_fidelity(frame)
    note = f"{tier_note(results.study.tier)} PF-LSTM from the paper's text to the authors' release."
    write_csv(frame, folder / "fidelity.csv")
    text = "\n\n".join([f"# {TITLE}", note, *said, markdown(shown)])
    write_text(folder / "fidelity.md", text)
    # Without the columns on all steps, which don't fit a page.
    narrow = shown.drop(columns=["switch moved", *(c for c in shown if "all steps" in c)])
    write_text(folder / "fidelity.tex", latex(narrow, f"{TITLE}. {note}", "fidelity"))
    tables = [
        Table(f"{name}: one switch at a time.", shown[(frame["dataset"] == name).to_numpy()])
        for name in dict.fromkeys(frame["dataset"])
    ]
    return [Part("fidelity", TITLE, said, tables)]


def renderer() -> dict[str, str]:
    """What a figure's bytes depend on besides its numbers."""
    system = f"{platform.system()} {platform.machine()}"
    return {"matplotlib": matplotlib.__version__, "system": system}


def write_figures(drawings: Sequence[Drawing], folder: Path) -> None:
    """Write each figure as PDF and PNG, and the digests of their numbers; remove all others."""
    drawn = {one.name: one for one in drawings if one.figure is not None}
    for path in [*folder.glob("*.pdf"), *folder.glob("*.png")]:
        if path.stem not in drawn:
            path.unlink()
    for drawing in drawn.values():
        save(drawing, folder)
    digests = {name: drawing.digest for name, drawing in drawn.items()}
    write_json(folder / DIGESTS, {"renderer": renderer(), "figures": digests})
