"""The tables as files: tidy CSV, Markdown and LaTeX, laid out as the paper prints them."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from pfrnn.study.evaluate.statistics import Interval
from pfrnn.study.report.cells import Cell, Lookup
from pfrnn.study.report.numbers import SYMBOLS, decimals_for, interval_text, number, plain
from pfrnn.study.report.paper.numbers import TITLES, columns_of, rows_of

TIDY = (
    "table",
    "method",
    "column",
    "dataset",
    "variant",
    "size_rule",
    "metric",
    "unit",
    "paper",
    "ours",
    "low",
    "high",
    "n",
    "diverged",
    "sampling_error",
    "n_test",
    "selected_member",
    "difference",
    "prediction_low",
    "prediction_high",
    "verdict",
    "reason",
    "state",
    "interval_method",
    "final_id",
)


def tidy_row(cell: Cell) -> dict[str, str]:
    """Return one cell as text for a machine; what doesn't exist is empty."""
    ours, paper, verdict = cell.ours, cell.number, cell.verdict
    interval = ours.interval if ours else None
    return {
        "table": str(paper.table),
        "method": paper.method,
        "column": paper.column,
        "dataset": paper.dataset,
        "variant": paper.variant or "",
        "size_rule": paper.size_rule if paper.variant else "",
        "metric": ours.reading.metric if ours else "",
        "unit": ours.reading.unit if ours else "",
        "paper": paper.printed.text,
        "ours": plain(ours.mean) if ours else "",
        "low": plain(interval.low if interval else None),
        "high": plain(interval.high if interval else None),
        "n": str(ours.n) if ours else "0",
        "diverged": str(ours.diverged) if ours else "",
        "sampling_error": plain(ours.sampling_error if ours else None),
        "n_test": str(ours.n_test) if ours else "",
        "selected_member": plain(ours.selected if ours else None),
        "difference": plain(cell.difference),
        "prediction_low": plain(verdict.interval.low if verdict.interval else None),
        "prediction_high": plain(verdict.interval.high if verdict.interval else None),
        "verdict": verdict.word,
        "reason": verdict.reason,
        "state": cell.state,
        "interval_method": _method(interval),
        "final_id": str(ours.row.get("final_id", "")) if ours else "",
    }


def _method(interval: Interval | None) -> str:
    return f"{interval.method} {interval.confidence:g}, n = {interval.n}" if interval else ""


def tidy_csv(cells: Sequence[Cell]) -> str:
    """Return all cells as CSV, one a row, in the paper's order."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, TIDY, lineterminator="\n")
    writer.writeheader()
    writer.writerows(tidy_row(cell) for cell in cells)
    return buffer.getvalue()


def ours_text(cell: Cell) -> str:
    """Write our mean with its interval, or a dash."""
    if cell.ours is None:
        return SYMBOLS["not run"]
    digits = decimals_for(cell.ours.mean, cell.number.printed)
    text = number(cell.ours.mean, digits)
    if cell.ours.interval is not None:
        text += f" {interval_text(cell.ours.interval, digits)}"
    return f"{text}, n = {cell.ours.n}"


def matrix(cells: Sequence[Cell], table: int) -> dict[tuple[str, str], Cell]:
    """Return a table's cells by (method, column)."""
    return {
        (cell.number.method, cell.number.column): cell
        for cell in cells
        if cell.number.table == table
    }


def markdown(cells: Sequence[Cell], table: int, note: str) -> str:
    """Return a table as Markdown: ours, the paper's, verdict and state in each cell."""
    found, columns = matrix(cells, table), columns_of(table)
    lines = [f"# Table {table}. {TITLES[table]}", "", note, ""]
    lines.append("| | " + " | ".join(columns) + " |")
    lines.append("|---|" + "---|" * len(columns))
    for method in rows_of(table):
        texts = []
        for column in columns:
            cell = found.get((method, column))
            texts.append(_markdown_cell(cell) if cell else "not printed")
        lines.append(f"| {method} | " + " | ".join(texts) + " |")
    lines += ["", _legend(), ""]
    return "\n".join(lines)


def _markdown_cell(cell: Cell) -> str:
    verdict = f"{SYMBOLS[cell.verdict.word]} {cell.verdict.text}"
    text = f"{ours_text(cell)}; paper {cell.number.printed.text}; {verdict}; {cell.state}"
    return text.replace("|", "\\|")


def _legend() -> str:
    return (
        "Each cell: our mean over n repetitions, its interval [low, high] over seeds; the paper's "
        "number; verdict; state of the data. Rules: docs/statistics.md."
    )


def latex(cells: Sequence[Cell], table: int, note: str) -> str:
    """Return a table as LaTeX for the packages booktabs and amssymb."""
    found, columns = matrix(cells, table), columns_of(table)
    lines = [
        r"\begin{table*}[t]",
        r"\centering\scriptsize",
        rf"\caption{{{escape(f'{TITLES[table]}: ours, the paper in brackets. {note}')}}}",
        rf"\label{{tab:reproduction-{table}}}",
        r"\begin{tabular}{l" + "c" * len(columns) + "}",
        r"\toprule",
        " & " + " & ".join(escape(column) for column in columns) + r" \\",
        r"\midrule",
    ]
    for method in rows_of(table):
        texts = [_latex_cell(found.get((method, column))) for column in columns]
        lines.append(f"{escape(method)} & " + " & ".join(texts) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", r"\end{table*}", ""]
    return "\n".join(lines)


_LATEX_SYMBOLS = {
    "consistent": r"$\bullet$",
    "better": r"$\blacktriangle$",
    "worse": r"$\blacktriangledown$",
    "too noisy to say": r"$\approx$",
    "direction only": r"$\rightarrow$",
    "not comparable": r"$\circ$",
    "not run": "--",
    "reference": r"$\diamond$",
}


def _latex_cell(cell: Cell | None) -> str:
    if cell is None:
        return "--"
    paper = f"({cell.number.printed.text})"
    if cell.ours is None:
        return f"{_LATEX_SYMBOLS[cell.verdict.word]} {paper}"
    digits = decimals_for(cell.ours.mean, cell.number.printed)
    interval = cell.ours.interval
    # Its upper half: the lower one may be cut at zero. An upper one cut at 100 is the longer below.
    half = max(interval.high - cell.ours.mean, cell.ours.mean - interval.low) if interval else 0.0
    spread = f"$\\pm${half:.{digits}f}" if interval else ""
    mean = f"{cell.ours.mean:.{digits}f}"
    return f"{mean}{spread} {paper} {_LATEX_SYMBOLS[cell.verdict.word]}"


def escape(text: str) -> str:
    """Escape what LaTeX reads as commands."""
    for plain_text, command in (("\\", r"\textbackslash{}"), ("&", r"\&"), ("%", r"\%")):
        text = text.replace(plain_text, command)
    for character in "_#$":
        text = text.replace(character, f"\\{character}")
    return text.replace("^", r"\^{}")


def controls_text(lookup: Lookup, dataset: str) -> str:
    """Write the controls of a data set in the paper's unit."""
    controls = lookup.controls(dataset)
    if not controls:
        return "no control recorded"
    return ", ".join(
        f"{name.replace('_', ' ')} {number(value, decimals_for(value))}"
        for name, value in controls.items()
    )
