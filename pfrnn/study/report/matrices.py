"""The paper's tables as they stand in the page, with controls below and records behind."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from typing import Any

from pfrnn.study.config import options_of
from pfrnn.study.report.cells import Cell, Lookup, Ours
from pfrnn.study.report.numbers import (
    SYMBOLS,
    decimals_for,
    interval_text,
    number,
    plain,
    scored,
    seconds_text,
    significant,
)
from pfrnn.study.report.paper.numbers import TITLES, columns_of, numbers_of, rows_of
from pfrnn.study.report.tables import matrix
from pfrnn.study.report.units import reading_of
from pfrnn.study.report.verdicts import (
    BETTER,
    CONSISTENT,
    DIRECTION,
    NOISY,
    NOT_COMPARABLE,
    NOT_RUN,
    REDUCED_TIERS,
    REFERENCE,
    WORSE,
)
from pfrnn.study.report.views import CellView, Column, Matrix, MatrixRow, Record

KINDS = {
    CONSISTENT: "consistent",
    BETTER: "better",
    WORSE: "worse",
    NOISY: "noisy",
    DIRECTION: "direction",
    NOT_COMPARABLE: "none",
    NOT_RUN: "none",
    REFERENCE: "reference",
}


class Records:
    """Collects the runs behind the page's numbers; each result is written once."""

    def __init__(self, lookup: Lookup) -> None:
        self.lookup = lookup
        self.records: list[Record] = []
        self._numbers: dict[tuple[str, str, str], int] = {}

    def index(self, ours: Ours) -> int:
        """Return the number of a result's record, adding it when it is new."""
        key = (str(ours.row["final_id"]), str(ours.row["variant"]), ours.reading.metric)
        if key not in self._numbers:
            self._numbers[key] = len(self.records)
            summary = ours.row["dataset"] == "all"
            self.records.append(_summary(ours) if summary else _record(self.lookup, ours))
        return self._numbers[key]


def _summary(ours: Ours) -> Record:
    digits = decimals_for(ours.mean)
    lines = (
        ("value", ours.reading.unit),
        ("by repetition", _values(ours, digits)),
        ("test-set error", significant(ours.sampling_error)),
        ("made of", str(ours.row["final_id"])),
    )
    return Record(f"Summary of {ours.row['variant']}", lines)


def _values(ours: Ours, digits: int) -> str:
    pairs = zip(ours.repetitions, ours.values, strict=True)
    return ", ".join(f"{repetition}: {number(value, digits)}" for repetition, value in pairs)


def _record(lookup: Lookup, ours: Ours) -> Record:
    row, tier = ours.row, lookup.evidence.study.tier
    files = lookup.evidence.study.parameter_files
    by_hand = options_of(tier, ",".join(("params.yaml", *files)))
    run = lookup.evidence.runs.get(str(row["final_id"]), {})
    digits = decimals_for(ours.mean)
    diverged = max(ours.diverged, int(run.get("diverged", 0) or 0))
    lines = [
        ("value", f"{ours.reading.metric}, {ours.reading.unit}"),
        ("by repetition", _values(ours, digits)),
        ("seeds", ", ".join(ours.seeds)),
        ("test-set error", significant(ours.sampling_error)),
        ("diverged", str(diverged)),
        ("size", _size(row)),
        ("setting", _setting(row)),
        ("parameters", significant_count(row["parameters"])),
        ("searched", _budget(row)),
        ("selected", _selected(lookup, str(row["final_id"]))),
        ("its own test score", _selected_value(ours, digits)),
        ("final block", str(row["final_id"])),
        ("data", f"{row['data_state']}, digest {row['data_digest']}"),
        ("device", str(row["device"])),
        ("commit", lookup.evidence.commit_of(str(row["final_id"]), str(row["commit"]))),
        ("MLflow run", f"tag pfrnn.key = {tier}/{row['final_id']}"),
        ("rebuild", rebuild_command(tier, str(row["final_id"]), files)),
        ("by hand", f"pfrnn final {row['final_id']} {by_hand}"),
    ]
    title = f"{row['dataset']}, {row['variant']}, {row['size_rule']} size"
    return Record(title, tuple(lines))


def rebuild_command(tier: str, final_id: str, files: Sequence[str] = ()) -> str:
    """Return the command that trains and tests one final again, also where it is finished.

    Args:
        tier: the report's.
        final_id: the final.
        files: parameter files of the study, over params.yaml.
    """
    folder = f"results/{tier}/{final_id}"
    # A forced job of a finished final exits at once (jobfolder.py): only without its folder is it
    # trained. The dry run comes first: where the plan lacks the final, as without a study's own
    # file, nothing is removed.
    own = f"--configfile {shlex.join(files)} " if files else ""
    asked = f"{own}--config tier={tier} -- {folder}/test.csv"
    return (
        f"snakemake -n -q {asked} && rm -rf {folder} && "
        f"snakemake --cores 2 --resources gpu=1 {asked}"
    )


def significant_count(value: Any) -> str:
    """Write a count with thin separators; a dash when unknown."""
    return f"{int(value):,}" if value is not None and math.isfinite(value) else "not recorded"


def _size(row: dict[str, Any]) -> str:
    particles = f", {int(row['particles'])} particles" if row["particles"] > 0 else ""
    return f"hidden {significant_count(row['hidden_size'])}{particles}"


def _setting(row: dict[str, Any]) -> str:
    return (
        f"learning rate {plain(row['learning_rate'])}, batch {significant_count(row['batch_size'])}"
        f", clip {plain(row['clip'])}, L2 {plain(row['l2'])}, fidelity {row['fidelity']}"
    )


def _selected(lookup: Lookup, final_id: str) -> str:
    """Name the search's member whose setting the final has."""
    chosen = lookup.evidence.choices.get(final_id, {}).get("chosen", {})
    if not chosen:
        return "not recorded"
    return f"{chosen.get('block_id')}, member {chosen.get('member')}"


def _selected_value(ours: Ours, digits: int) -> str:
    if ours.selected is None:
        return "not recorded (an ensemble has no such run)"
    return f"{scored(ours.selected, digits)} (one selected run; in no mean and no verdict)"


def _budget(row: dict[str, Any]) -> str:
    return (
        f"{significant_count(row['budget_configurations'])} configurations, "
        f"{significant_count(row['budget_epochs'])} epochs, {seconds_text(row['search_seconds'])};"
        f" final {seconds_text(row['final_seconds'])}"
    )


def cell_view(cell: Cell, records: Records) -> CellView:
    """Write one cell for the page."""
    paper, ours = cell.number, cell.ours
    common: dict[str, Any] = {
        "dataset": paper.dataset,
        "paper": paper.printed.text,
        "kind": KINDS[cell.verdict.word],
        "symbol": SYMBOLS[cell.verdict.word],
        "word": cell.verdict.word,
        "reason": cell.verdict.reason,
    }
    if ours is None:
        return CellView(ours=SYMBOLS[NOT_RUN], state="", **common)
    digits = decimals_for(ours.mean, paper.printed)
    return CellView(
        ours=number(ours.mean, digits),
        spread=spread_text(ours, digits),
        difference=signed(cell.difference, digits),
        state=cell.state,
        sort=plain(ours.mean),
        record=records.index(ours),
        selected=scored(ours.selected, digits) if ours.selected is not None else "",
        **common,
    )


def signed(value: float | None, digits: int) -> str:
    """Write a difference with its sign."""
    return number(value, digits) if value is None or value < 0 else f"+{number(value, digits)}"


def spread_text(ours: Ours, digits: int) -> str:
    """Write interval, number of repetitions and diverged ones."""
    if ours.interval is None:
        text = f"n = {ours.n}, no interval from one run" if ours.n == 1 else f"n = {ours.n}"
    else:
        text = f"{interval_text(ours.interval, digits)} n = {ours.n}"
    return f"{text}, {ours.diverged} diverged" if ours.diverged else text


def paper_matrix(cells: list[Cell], lookup: Lookup, records: Records, table: int) -> Matrix:
    """Lay a table out as the paper prints it; controls follow as rows."""
    found = matrix(cells, table)
    columns = tuple(
        Column(column, next(n.dataset for n in numbers_of(table) if n.column == column))
        for column in columns_of(table)
    )
    rows = []
    for method in rows_of(table):
        views = []
        for column in columns:
            cell = found.get((method, column.text))
            views.append(
                cell_view(cell, records)
                if cell
                else CellView(column.dataset, "not printed", kind="none")
            )
        variant = next(n.variant for n in numbers_of(table) if n.method == method)
        rows.append(MatrixRow(method, variant or "", tuple(views)))
    rows += control_rows(lookup, columns)
    return Matrix(
        f"table-{table}",
        f"Table {table}. {TITLES[table]}",
        "Ours, the paper's number and the verdict; last rows: controls on the same test rows.",
        table_note(lookup, columns),
        columns,
        tuple(rows),
    )


def control_rows(lookup: Lookup, columns: tuple[Column, ...]) -> list[MatrixRow]:
    """Return a row for each control that some column has."""
    controls = {column.dataset: lookup.controls(column.dataset) for column in columns}
    names = sorted({name for values in controls.values() for name in values})
    rows = []
    for name in names:
        views = []
        for column in columns:
            value = controls[column.dataset].get(name)
            digits = decimals_for(value) if value is not None else 2
            error = lookup.control_errors(column.dataset).get(name)
            spread = error_text(error, digits)
            views.append(CellView(column.dataset, scored(value, digits), spread, sort=plain(value)))
        rows.append(MatrixRow(f"control: {name.replace('_', ' ')}", "", tuple(views), True))
    return rows


def control_spread(control: dict[str, float], metric: str, digits: int) -> str:
    """Write a control's standard error over the test sequences; empty when it has none."""
    return error_text(control.get(f"{metric}_se"), digits)


def error_text(error: float | None, digits: int) -> str:
    """Write a standard error; empty when there is none."""
    if error is None or not math.isfinite(error):
        return ""
    return f"± {scored(error, digits)} (standard error)"


def table_note(lookup: Lookup, columns: tuple[Column, ...]) -> str:
    """Say how the printed numbers are read, and whether the tier is reduced."""
    sets: dict[str, list[str]] = {}
    for column in columns:
        reading = reading_of(column.dataset)
        if column.dataset != "all" and reading.metric != "accuracy":
            doubt = "" if reading.certain else " (inferred)"
            sets.setdefault(reading.unit + doubt, []).append(column.text)
    parts = [f"{', '.join(names)}: {unit}" for unit, names in sets.items()]
    units = f"Read as {'; '.join(parts)}. " if parts else ""
    return units + tier_note(lookup.evidence.study.tier)


def tier_note(tier: str) -> str:
    """Return the label that every table of a reduced tier carries."""
    if tier in REDUCED_TIERS:
        return f"Tier {tier}: small training; not a reproduction of the paper's number."
    return f"Tier {tier}."
