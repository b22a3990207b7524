"""``summary.md``: what the README shows of a report, with date and commit of the runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pfrnn.study.files import write_text
from pfrnn.study.report.cells import Cell, Lookup
from pfrnn.study.report.claims import ClaimResult
from pfrnn.study.report.figures.style import Drawing, label
from pfrnn.study.report.matrices import tier_note
from pfrnn.study.report.numbers import DASH, SYMBOLS, decimals_for, interval_text, number
from pfrnn.study.report.summary import commits_said, joined
from pfrnn.study.report.units import reading_of
from pfrnn.study.report.verdicts import NOT_RUN, REDUCED_TIERS, REFERENCE, WORDS

MAIN = ("lstm", "pf_lstm", "gru", "pf_gru")
# Beginnings of names; the first that was drawn is shown.
FIGURES = ("localization", "scatter-", "cost-", "learning-")


def write_readme_block(
    cells: Sequence[Cell],
    claims: Sequence[ClaimResult],
    lookup: Lookup,
    drawings: Sequence[Drawing],
    out: Path,
) -> None:
    """Write ``summary.md``."""
    evidence = lookup.evidence
    results = evidence.results
    counts = Counter(cell.verdict.word for cell in cells)
    fillable = sum(cell.number.variant is not None for cell in cells)
    ran = fillable - counts[NOT_RUN]
    tier = evidence.study.tier
    lines = [f"{tier_note(tier)} {ran} of the paper's {fillable} numbers have one of ours.", ""]
    lines += main_table(cells, lookup)
    if tier not in REDUCED_TIERS:
        lines += ["| verdict on a printed number | cells |", "|---|---|"]
        lines += [
            f"| {SYMBOLS[word]} {word} | {counts[word]} |" for word in WORDS if word != REFERENCE
        ]
        verdicts = Counter(claim.verdict.partition(" (")[0] for claim in claims)
        lines += ["", "| the paper's claims | number |", "|---|---|"]
        lines += [f"| {word} | {count} |" for word, count in sorted(verdicts.items())]
        lines.append("")
    dates = joined((str(run.get("finished", ""))[:10] for run in evidence.runs.values()), "")
    when = f"Runs finished: {dates}." if dates else "The records name no date."
    devices = joined(results["device"], "none")
    lines.append(f"Commit {commits_said(evidence)}. {when} Devices: {devices}.")
    lines += _figure(drawings)
    write_text(out / "summary.md", "\n".join([*lines, ""]))


def main_table(cells: Sequence[Cell], lookup: Lookup) -> list[str]:
    """Return the four main models at fixed size, a data set a row, ours beside the paper's."""
    found: dict[tuple[str, str | None], Cell] = {}
    for cell in cells:
        if cell.number.size_rule == "fixed":
            found.setdefault((cell.number.dataset, cell.number.variant), cell)
    ran = lookup.evidence.results
    sets = [name for name in lookup.evidence.study.datasets if name in set(ran["dataset"])]
    if not sets:
        return []
    head = ["data set", "metric", *(label(name) for name in MAIN), "data"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name in sets:
        reading = reading_of(name)
        metric = "accuracy, %" if reading.metric == "accuracy" else reading.unit
        texts = [_cell(lookup, name, variant, found.get((name, variant))) for variant in MAIN]
        lines.append(f"| {' | '.join([name, metric, *texts, lookup.described(name)])} |")
    return [*lines, "", _how_to_read(lookup, sets), ""]


def _how_to_read(lookup: Lookup, sets: Sequence[str]) -> str:
    """Say what a cell of the table holds and over how many repetitions."""
    found = [lookup.ours(name, variant) for name in sets for variant in MAIN]
    counts = sorted({ours.n for ours in found if ours is not None})
    if not counts:
        return "Fixed size: none of the four has a finite value; the paper's numbers in brackets."
    several = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    interval = f" [{100 * lookup.confidence:g} % interval of it]" if counts[-1] > 1 else ""
    return (
        f"Fixed size: our mean over {several} repetition{'s' if counts[-1] > 1 else ''}{interval} "
        "(the paper's number) and the verdict's sign."
    )


def _cell(lookup: Lookup, dataset: str, variant: str, cell: Cell | None) -> str:
    """Write ours, the paper's in brackets where it prints one, and the sign of the verdict."""
    ours = lookup.ours(dataset, variant)
    printed = cell.number.printed if cell else None
    text = DASH
    if ours:
        decimals = decimals_for(ours.mean, printed)
        text = number(ours.mean, decimals)
        if ours.interval is not None:
            text += f" {interval_text(ours.interval, decimals)}"
    if cell is None:
        return text
    sign = f" {SYMBOLS[cell.verdict.word]}" if ours else ""
    return f"{text} ({cell.number.printed.text}){sign}"


def _figure(drawings: Sequence[Drawing]) -> list[str]:
    """Return the lines that show one figure; none when nothing was drawn."""
    drawn = {one.name: one.title for one in drawings if one.figure is not None}
    for start in FIGURES:
        for name, title in drawn.items():
            if name.startswith(start):
                return ["", f"![{title}](figures/{name}.png)"]
    return []
