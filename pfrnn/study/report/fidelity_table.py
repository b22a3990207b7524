"""The one-at-a-time table of the fidelity's switches: page, CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Container, Iterable, Sequence
from pathlib import Path

from pfrnn.study.evaluate.paired import PairedDifference
from pfrnn.study.files import write_text
from pfrnn.study.report.cells import Lookup, Ours
from pfrnn.study.report.fidelity import MAIN, Row, fidelity_rows, moved_most
from pfrnn.study.report.figures.style import label
from pfrnn.study.report.matrices import tier_note
from pfrnn.study.report.numbers import DASH, SYMBOLS, decimals_for, interval_text, number, plain
from pfrnn.study.report.tables import escape
from pfrnn.study.report.verdicts import BETTER, CONSISTENT, NOISY, NOT_RUN, REDUCED_TIERS, WORSE
from pfrnn.study.report.views import Part, PlainRow, PlainTable

TITLE = "Fidelity: which switch matters"
HEADER = (
    "row",
    "switch moved",
    "to",
    "ours",
    "n",
    "ours − text",
    "ours − release",
    "all steps: ours",
    "all steps: ours − text",
    "paper prints",
    "verdict",
)
TIDY = (
    "dataset",
    "variant",
    "start",
    "switch",
    "value",
    "fidelity",
    "metric",
    "mean",
    "low",
    "high",
    "n",
    "diverged",
    "difference",
    "difference_low",
    "difference_high",
    "pairs",
    "release_difference",
    "release_difference_low",
    "release_difference_high",
    "all_steps",
    "all_steps_difference",
    "all_steps_difference_low",
    "all_steps_difference_high",
    "paper",
    "verdict",
    "reason",
    "final_id",
)


def fidelity_part(lookup: Lookup) -> Part | None:
    """Return the page's section; None where no row of the family has run."""
    rows = fidelity_rows(lookup)
    if not rows:
        return None
    tables = []
    for name in _sets(rows):
        own = [row for row in rows if row.dataset == name]
        plain_rows = tuple(PlainRow(texts(row), name, row.model.name) for row in own)
        tables.append(PlainTable(_caption(own), HEADER, plain_rows))
    return Part("fidelity", TITLE, tuple(_sentences(rows, lookup)), tuple(tables))


def write_fidelity(lookup: Lookup, folder: Path) -> None:
    """Write ``fidelity.csv``, ``.md`` and ``.tex``; remove them where no row has run."""
    rows = fidelity_rows(lookup)
    forms = {"csv": tidy_csv, "md": markdown, "tex": latex}
    for ending, form in forms.items():
        path = folder / f"fidelity.{ending}"
        if rows:
            write_text(path, form(rows, lookup))
        else:
            path.unlink(missing_ok=True)


def texts(row: Row) -> tuple[str, ...]:
    """Return a row as it is shown."""
    found = row.verdict
    verdict = f"{SYMBOLS[found.word]} {found.text}"
    ours = row.ours
    return (
        label(row.model.name),
        row.switch,
        row.value or DASH,
        _mean(ours),
        str(ours.n) if ours else "0",
        _differs(row.to_text),
        _differs(row.to_release),
        _mean(row.all_steps),
        _differs(row.all_steps_to_text),
        row.printed.printed.text if row.printed else DASH,
        verdict,
    )


def _mean(ours: Ours | None) -> str:
    if ours is None:
        return DASH
    digits = decimals_for(ours.mean)
    text = number(ours.mean, digits)
    return text if ours.interval is None else f"{text} {interval_text(ours.interval, digits)}"


def _differs(found: PairedDifference | None) -> str:
    if found is None:
        return DASH
    digits = decimals_for(found.mean)
    text = ("+" if found.mean > 0 else "") + number(found.mean, digits)
    return text if found.interval is None else f"{text} {interval_text(found.interval, digits)}"


def _sets(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.dataset for row in rows))


def _caption(rows: Sequence[Row]) -> str:
    reading = rows[0].reading
    return (
        f"{rows[0].dataset}, {reading.metric} ({reading.unit}): PF-LSTM from the paper's text to "
        "the authors' release, one switch at a time."
    )


def _sentences(rows: Sequence[Row], lookup: Lookup) -> list[str]:
    """Say how to read the table, what it found, and what is missing."""
    tier = lookup.evidence.study.tier
    percent = f"{100 * lookup.confidence:g} %"
    said = [
        f"{tier_note(tier)} Upper rows: the text's equations with exactly one switch at the "
        "release's value; lower rows: the whole release, and the release with one switch back at "
        "the text's. docs/fidelity.md says what each switch is. Each row searched the same grid "
        f"for itself. In brackets: {percent} intervals over repetitions; differences are paired "
        "by repetition, which share seed and order of the data. The intervals are each by "
        f"itself: of {_compared(rows)} differences to the text without any effect about "
        f"{(1 - lookup.confidence) * _compared(rows):.1f} would leave zero out.",
        *(_found(rows, name, tier) for name in _sets(rows)),
    ]
    absent = [row for row in rows if row.verdict.word == NOT_RUN]
    if absent:
        named = "; ".join(
            f"{label(row.model.name)} on {row.dataset}: {row.verdict.reason}" for row in absent
        )
        said.append(f"Missing: {named}.")
    return said


def _compared(rows: Sequence[Row]) -> int:
    return sum(row.to_text is not None and row.to_text.interval is not None for row in rows)


def _found(rows: Sequence[Row], name: str, tier: str) -> str:
    """Which switches matter on a data set, and which rows the printed number fits."""
    own = [row for row in rows if row.dataset == name]
    if tier in REDUCED_TIERS:
        return f"{name}: no conclusion from a reduced tier."
    clear = ", ".join(
        f"{label(row.model.name)} ({_differs(row.to_text)})" for row in moved_most(own)
    )
    said = f"{name}: the difference to the text leaves zero out for {clear or 'no row'}."
    printed = own[0].printed
    if printed is not None:
        narrow = _named(own, (CONSISTENT,))
        said += (
            f" The printed {printed.printed.text} for {label(MAIN)} lies outside the prediction "
            f"interval of {_named(own, (BETTER, WORSE))}, inside that of "
            f"{_named(own, (CONSISTENT, NOISY))}. Narrow enough to be called consistent with "
            f"it is that of {narrow}."
        )
    return said


def _named(rows: Iterable[Row], words: Container[str]) -> str:
    """The rows with one of these verdicts."""
    return ", ".join(label(r.model.name) for r in rows if r.verdict.word in words) or "no row"


def tidy_csv(rows: Sequence[Row], lookup: Lookup) -> str:
    """Return a row a variant and data set, for a machine; what doesn't exist is empty."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, TIDY, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_tidy(row) for row in rows)
    return buffer.getvalue()


def _tidy(row: Row) -> dict[str, str]:
    ours = row.ours
    interval = ours.interval if ours else None
    return {
        "dataset": row.dataset,
        "variant": row.model.name,
        "start": row.fidelity.preset,
        "switch": row.fidelity.moved,
        "value": row.value,
        "fidelity": str(ours.row["fidelity"]) if ours else "",
        "metric": row.reading.metric,
        "mean": plain(ours.mean if ours else None),
        "low": plain(interval.low if interval else None),
        "high": plain(interval.high if interval else None),
        "n": str(ours.n) if ours else "0",
        "diverged": str(ours.diverged) if ours else "",
        **_tidy_difference("difference", row.to_text),
        "pairs": str(row.to_text.n) if row.to_text else "",
        **_tidy_difference("release_difference", row.to_release),
        "all_steps": plain(row.all_steps.mean if row.all_steps else None),
        **_tidy_difference("all_steps_difference", row.all_steps_to_text),
        "paper": row.printed.printed.text if row.printed else "",
        "verdict": row.verdict.word,
        "reason": row.verdict.reason,
        "final_id": str(ours.row["final_id"]) if ours else "",
    }


def _tidy_difference(name: str, found: PairedDifference | None) -> dict[str, str]:
    interval = found.interval if found else None
    return {
        name: plain(found.mean if found else None),
        f"{name}_low": plain(interval.low if interval else None),
        f"{name}_high": plain(interval.high if interval else None),
    }


def markdown(rows: Sequence[Row], lookup: Lookup) -> str:
    """Return the tables as Markdown."""
    lines = [f"# {TITLE}", ""]
    for said in _sentences(rows, lookup):
        lines += [said, ""]
    for name in _sets(rows):
        own = [row for row in rows if row.dataset == name]
        lines += [_caption(own), "", f"| {' | '.join(HEADER)} |", "|---" * len(HEADER) + "|"]
        lines += [f"| {' | '.join(t.replace('|', chr(92) + '|') for t in texts(r))} |" for r in own]
        lines.append("")
    return "\n".join(lines)


# Without the columns on all steps, which don't fit a page: they stand in the other forms.
_LATEX = [0, 2, 3, 4, 5, 6, 9, 10]


def latex(rows: Sequence[Row], lookup: Lookup) -> str:
    """Return the tables as LaTeX for the package booktabs."""
    note = tier_note(lookup.evidence.study.tier)
    lines = []
    for name in _sets(rows):
        own = [row for row in rows if row.dataset == name]
        lines += [
            r"\begin{table*}[t]",
            r"\centering\scriptsize",
            rf"\caption{{{escape(f'{_caption(own)} {note}')}}}",
            rf"\label{{tab:fidelity-{name}}}",
            r"\begin{tabular}{" + "l" * len(_LATEX) + "}",
            r"\toprule",
            " & ".join(_tex(HEADER[i]) for i in _LATEX) + r" \\",
            r"\midrule",
        ]
        for row in own:
            shown = (*texts(row)[:-1], row.verdict.word)
            lines.append(" & ".join(_tex(shown[i]) for i in _LATEX) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}", r"\end{table*}", ""]
    return "\n".join(lines)


def _tex(text: str) -> str:
    return escape(text).replace(DASH, "--").replace("−", "$-$")
