"""The paper's tables as files and on the page: parts of the cells' frame, laid out as printed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from pfrnn.study.files import write_text
from pfrnn.study.report.cells import COLUMNS
from pfrnn.study.report.numbers import DASH, decimals_for, interval_text, known, number
from pfrnn.study.report.paper.numbers import TITLES
from pfrnn.study.report.verdicts import REDUCED_TIERS, SIGNS

LEGEND = (
    "Each cell: our mean over n repetitions, its interval [low, high] over seeds; the paper's "
    "number; verdict; state of the data. Rules: docs/statistics.md."
)


class Layout(NamedTuple):
    """A part of the frame as rows and columns; a cell that isn't there wasn't printed."""

    methods: list[str]
    columns: list[str]
    cells: dict[tuple[str, str], Any]


def laid_out(frame: pd.DataFrame, table: str) -> Layout:
    """Lay out a table by method and column, in the frame's order."""
    part = frame[frame["table"] == table]
    cells = {(row.method, row.column): row for row in part.itertuples()}
    return Layout(list(dict.fromkeys(part["method"])), list(dict.fromkeys(part["column"])), cells)


def tier_note(tier: str) -> str:
    """Return the label that every table of a reduced tier carries."""
    if tier in REDUCED_TIERS:
        return f"Tier {tier}: small training; not a reproduction of the paper's number."
    return f"Tier {tier}."


def texts_of(row: Any) -> dict[str, str]:
    """Write a cell: ours, half width, spread, paper, difference, sign, verdict."""
    digits = decimals_for(row.ours, row.paper if isinstance(row.paper, str) else "")
    if row.control is True:
        error = f"± {number(row.sampling_error, digits)} (standard error)"
        spread = error if known(row.sampling_error) else ""
        bound = "≤ " if row.reason == "at most" else ""
        return {"ours": bound + number(row.ours, digits), "spread": spread}
    spread = " ".join(
        [
            interval_text(row.low, row.high, digits),
            f"n = {row.n}" + (", no interval from one run" if row.n == 1 else ""),
        ]
    ).strip()
    more = f", {row.diverged:.0f} diverged" if row.diverged > 0 else ""
    # One end may be cut at the end of the possible range: the longer half.
    half = max(row.high - row.ours, row.ours - row.low)
    prediction = interval_text(row.prediction_low, row.prediction_high, digits)
    plus = "+" if row.difference > 0 else ""
    return {
        "ours": number(row.ours, digits),
        "half": f"± {number(half, digits)}" if known(half) else "",
        "spread": spread + more if known(row.ours) else "",
        "selected": number(row.selected_member, digits) if known(row.selected_member) else "",
        "paper": row.paper,
        "difference": plus + number(row.difference, digits) if known(row.difference) else "",
        "prediction": prediction,
        "sign": SIGNS[row.verdict][0],
        "kind": SIGNS[row.verdict][2],
        "verdict": f"{row.verdict} ({row.reason})" if row.reason else row.verdict,
    }


def markdown(frame: pd.DataFrame) -> str:
    """Return a frame of text as a Markdown table."""
    rows = [list(map(str, frame.columns))]
    rows += [[str(value) for value in row] for row in frame.itertuples(index=False)]
    lines = [f"| {' | '.join(text.replace('|', chr(92) + '|') for text in row)} |" for row in rows]
    lines.insert(1, "|---" * frame.shape[1] + "|")
    return "\n".join(lines) + "\n"


def latex(frame: pd.DataFrame, caption: str, name: str) -> str:
    """Return a frame of text as a LaTeX table for the package booktabs; ``$`` marks are kept."""
    escaped = frame.map(escape).rename(columns=escape)
    text = escaped.to_latex(
        index=False,
        column_format="l" + "c" * (frame.shape[1] - 1),
        caption=escape(caption),
        label=f"tab:{name}",
        position="t",
    )
    text = text.replace(r"\begin{table}[t]", "\\begin{table*}[t]\n\\centering\\scriptsize")
    return text.replace(r"\end{table}", r"\end{table*}")


_TEX = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "^": r"\^{}"} | {
    sign: tex for sign, tex, _ in SIGNS.values()
}
_TEX |= {"−": "$-$", "±": r"$\pm$", "²": "$^2$"}


def escape(text: str) -> str:
    """Write text for LaTeX; signs of verdicts become symbols."""
    return "".join(_TEX.get(character, character) for character in str(text))


def _grid(layout: Layout, write: Any) -> pd.DataFrame:
    """Write a layout as a frame of text."""
    rows = [
        [method] + [write(layout.cells.get((method, column))) for column in layout.columns]
        for method in layout.methods
    ]
    return pd.DataFrame(rows, columns=["", *layout.columns])


def _markdown_cell(row: Any) -> str:
    if row is None:
        return "not printed"
    shown = texts_of(row)
    ours = f"{shown['ours']} {shown['spread']}".strip().replace(" n =", ", n =")
    return f"{ours}; paper {row.paper}; {shown['sign']} {shown['verdict']}; {row.state}"


def _latex_cell(row: Any) -> str:
    if row is None:
        return DASH
    shown = texts_of(row)
    if not known(row.ours):
        return f"{shown['sign']} ({row.paper})"
    return f"{shown['ours']}{shown['half'].replace('± ', '±')} ({row.paper}) {shown['sign']}"


def write_tables(frame: pd.DataFrame, tier: str, folder: Path) -> None:
    """Write ``cells.csv``, and each of the paper's tables as CSV, Markdown and LaTeX."""
    printed = frame[frame["table"].isin(list(TITLES)) & ~frame["control"]]
    write_csv(printed[list(COLUMNS)], folder / "cells.csv")
    for table, title in TITLES.items():
        part = printed[printed["table"] == table]
        layout = laid_out(part, table)
        write_csv(part[list(COLUMNS)], folder / f"table{table}.csv")
        text = markdown(_grid(layout, _markdown_cell))
        note = tier_note(tier)
        write_text(
            folder / f"table{table}.md", f"# Table {table}. {title}\n\n{note}\n\n{text}\n{LEGEND}\n"
        )
        caption = f"{title}: ours, the paper in brackets. {note}"
        tex = latex(_grid(layout, _latex_cell), caption, f"reproduction-{table}")
        write_text(folder / f"table{table}.tex", tex)


def write_csv(frame: pd.DataFrame, path: Path, digits: int = 12) -> None:
    """Write a frame as CSV: the same text on every processor, nothing for what isn't there."""
    write_text(path, frame.to_csv(index=False, float_format=f"%.{digits}g", lineterminator="\n"))


def labelled(rows: Sequence[Sequence[str]], *columns: str) -> pd.DataFrame:
    """Return rows of text as a frame."""
    return pd.DataFrame(rows, columns=list(columns))
