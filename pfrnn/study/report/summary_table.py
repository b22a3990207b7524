"""Table 3: the ablations of table 5 in one number each, for the paper's values and for ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pfrnn.study.evaluate.statistics import t_interval
from pfrnn.study.report.cells import ABLATION_PARTNERS, Cell, Lookup, Ours, build_cells
from pfrnn.study.report.paper.numbers import PaperNumber, numbers_of, paper_numbers, printed_value
from pfrnn.study.report.units import Reading
from pfrnn.study.report.verdicts import (
    DIRECTION,
    NOT_COMPARABLE,
    NOT_RUN,
    REDUCED_TIERS,
    UNPUBLISHED_MAPS,
    Verdict,
    direction,
    judge,
    obstacle,
)

Table = Mapping[str, Mapping[str, float]]  # column -> method -> value

READINGS = {
    "Regression": Reading(
        "rescaled_regression_loss",
        1.0,
        "mean over 7 sets of value / largest of the ten methods",
        True,
        "It reproduces all ten printed numbers from table 5.",
    ),
    "Classification": Reading(
        "mean_accuracy",
        1.0,
        "mean of 6 accuracies, per cent",
        True,
        "It reproduces nine of ten printed numbers from table 5; P20 is a misprint.",
    ),
}
MISPRINT = ("PF-LSTM-P20", "Classification", 91.28, 91.95)


class Summary(NamedTuple):
    """Our summary of one method before its verdict.

    Attributes:
        values: one a repetition.
        errors: test-set standard error of each.
        repetitions: their numbers.
        n_test: test items over the summarised sets.
    """

    values: tuple[float, ...]
    errors: tuple[float, ...]
    repetitions: tuple[int, ...]
    n_test: int


def rescaled_losses(table: Table) -> dict[str, float]:
    """Mean over columns of value / largest value of the column, for each method.

    Example:
        >>> rescaled_losses({"a": {"x": 1.0, "y": 2.0}, "b": {"x": 6.0, "y": 3.0}})
        {'x': 0.75, 'y': 0.75}
    """
    methods = list(next(iter(table.values())))
    largest = {column: max(values.values()) for column, values in table.items()}
    return {
        method: float(np.mean([values[method] / largest[c] for c, values in table.items()]))
        for method in methods
    }


def mean_accuracies(table: Table) -> dict[str, float]:
    """Plain mean over columns, for each method."""
    methods = list(next(iter(table.values())))
    return {m: float(np.mean([values[m] for values in table.values()])) for m in methods}


def columns_summarised(column: str) -> tuple[str, ...]:
    """Columns of table 5 that a column of table 3 summarises."""
    accuracy = column == "Classification"
    found = (n.column for n in numbers_of(5) if ("accuracy" in n.metric) == accuracy)
    return tuple(dict.fromkeys(found))


def printed_table(column: str) -> dict[str, dict[str, float]]:
    """The paper's table 5, the part that ``column`` summarises."""
    wanted = columns_summarised(column)
    table: dict[str, dict[str, float]] = {name: {} for name in wanted}
    for number in numbers_of(5):
        if number.column in table:
            table[number.column][number.method] = number.printed.value
    return table


def summarise(column: str, table: Table) -> dict[str, float]:
    """Summarise a table as the paper's table 3 does."""
    return rescaled_losses(table) if column == "Regression" else mean_accuracies(table)


def all_cells(lookup: Lookup) -> list[Cell]:
    """Return a cell for each of the paper's numbers, in the paper's order."""
    plain = {cell.number.key: cell for cell in build_cells(lookup)}
    summaries = {column: _ours(lookup, column) for column in READINGS}
    for number in numbers_of(3):
        plain[number.key] = _cell(lookup, number, summaries[number.column])
    return [plain[number.key] for number in paper_numbers()]


def _columns(lookup: Lookup, column: str) -> tuple[str, ...]:
    """Those columns of table 5 whose data sets the tier has; a small tier has some of them."""
    datasets = {number.column: number.dataset for number in numbers_of(5)}
    had = lookup.evidence.study.datasets
    return tuple(name for name in columns_summarised(column) if datasets[name] in had)


def _part(lookup: Lookup, column: str) -> str:
    """Which part of the paper's sets is summarised, in words; empty when it is all."""
    columns, every = _columns(lookup, column), columns_summarised(column)
    return "" if columns == every else f"over {len(columns)} of {len(every)} sets"


def _unit_of_part(lookup: Lookup, column: str) -> str:
    every = len(columns_summarised(column))
    some = f" {len(_columns(lookup, column))} of {every} "
    return READINGS[column].unit.replace(f" {every} ", some)


def _ours(lookup: Lookup, column: str) -> dict[str, Summary]:
    """Summaries of every method over the repetitions that all cells have; empty if one lacks."""
    cells: dict[tuple[str, str], Ours] = {}
    columns = _columns(lookup, column)
    if not columns:
        return {}
    for number in numbers_of(5):
        if number.column in columns:
            ours = lookup.ours(number.dataset, number.variant or "")
            if ours is None:
                return {}
            cells[number.column, number.method] = ours
    shared = set.intersection(*(set(ours.repetitions) for ours in cells.values()))
    methods = tuple(dict.fromkeys(method for _, method in cells))
    values: dict[str, list[float]] = {method: [] for method in methods}
    errors: dict[str, list[float]] = {method: [] for method in methods}
    for repetition in sorted(shared):
        at = {key: ours.repetitions.index(repetition) for key, ours in cells.items()}
        table = {c: {m: cells[c, m].values[at[c, m]] for m in methods} for c in columns}
        spread = {c: {m: cells[c, m].errors[at[c, m]] for m in methods} for c in columns}
        for method, value in summarise(column, table).items():
            values[method].append(value)
            errors[method].append(_error(column, table, spread, method))
    n_test = sum(cells[c, methods[0]].n_test for c in columns)
    return {
        m: Summary(tuple(values[m]), tuple(errors[m]), tuple(sorted(shared)), n_test)
        for m in methods
        if shared
    }


def _error(column: str, table: Table, spread: Table, method: str) -> float:
    """Error of a mean over sets whose errors are independent."""
    scales = [max(row.values()) if column == "Regression" else 1.0 for row in table.values()]
    parts = [row[method] / scale for row, scale in zip(spread.values(), scales, strict=True)]
    return float(np.sqrt(np.sum(np.square(parts))) / len(parts))


def _cell(lookup: Lookup, number: PaperNumber, summaries: Mapping[str, Summary]) -> Cell:
    states = _states(lookup, number.column)
    state = states[0] if len(states) == 1 else "mixed"
    found = summaries.get(number.method)
    if found is None:
        some = _columns(lookup, number.column)
        why = "needs every cell of its table 5 row" if some else "the tier has none of its sets"
        return Cell(number, None, Verdict(NOT_RUN, why), state)
    reading, part = READINGS[number.column], _part(lookup, number.column)
    ours = Ours(
        values=found.values,
        repetitions=found.repetitions,
        seeds=(),
        errors=found.errors,
        interval=t_interval(found.values, lookup.confidence),
        diverged=0,
        n_test=found.n_test,
        reading=reading._replace(unit=_unit_of_part(lookup, number.column)) if part else reading,
        row={
            "final_id": "all finals of table 5",
            "variant": number.variant,
            "dataset": number.dataset,
        },
    )
    return Cell(number, ours, _verdict(lookup, number, ours, states, summaries), state)


def _verdict(
    lookup: Lookup,
    number: PaperNumber,
    ours: Ours,
    states: Sequence[str],
    summaries: Mapping[str, Summary],
) -> Verdict:
    tier, part = lookup.evidence.study.tier, _part(lookup, number.column)
    if tier in REDUCED_TIERS:
        found = obstacle(tier, "all", states[0]) or Verdict(NOT_RUN)
        return found._replace(reason=f"{found.reason}, {part}") if part else found
    if part:
        return Verdict(NOT_COMPARABLE, part)
    reasons = []
    if "excerpt" in states:
        reasons.append("some data are excerpts")
    if number.column == "Regression":
        reasons.append(f"the maps of {' and '.join(UNPUBLISHED_MAPS)} are not published")
    if not reasons:
        return judge(
            number.printed,
            ours.values,
            ours.errors,
            number.scale,
            ours.n_test,
            lookup.confidence,
        )
    for variant in ABLATION_PARTNERS:
        partner = next(n for n in numbers_of(3) if n.variant == variant)
        if partner.method != number.method:
            printed = printed_value(3, partner.method, number.column)
            mean = float(np.mean(summaries[partner.method].values))
            paper = number.printed.value
            return direction(
                "; ".join(reasons), number.scale, ours.mean, mean, paper, printed, partner.method
            )
    return Verdict(DIRECTION, "; ".join(reasons))


def _states(lookup: Lookup, column: str) -> list[str]:
    """States of the summarised sets; a maze is always simulated and sets no state of its own."""
    columns = _columns(lookup, column) or columns_summarised(column)
    sets = [n.dataset for n in numbers_of(5) if n.column in columns]
    states = {lookup.state(name) for name in sets if not name.startswith("maze")}
    return sorted(states) or ["simulated"]
