"""The localisation table: the mazes' errors with median, tail and success beside the mean."""

from __future__ import annotations

import math

from pfrnn.study.report.cells import Cell, Lookup, Ours
from pfrnn.study.report.matrices import (
    KINDS,
    Records,
    control_spread,
    signed,
    spread_text,
    tier_note,
)
from pfrnn.study.report.numbers import SYMBOLS, decimals_for, number, plain, scored
from pfrnn.study.report.paper.numbers import paper_numbers
from pfrnn.study.report.tables import matrix
from pfrnn.study.report.units import Reading, reading_of
from pfrnn.study.report.verdicts import NOT_COMPARABLE, Verdict
from pfrnn.study.report.views import CellView, Column, Matrix, MatrixRow
from pfrnn.study.variants import VARIANTS

MAZES = ("maze10", "maze18", "maze27")
METHODS = (
    "lstm",
    "pf_lstm",
    "gru",
    "pf_gru",
    "bayes_lstm",
    "lstm_ensemble",
    "bayes_gru",
    "gru_ensemble",
)
# Beside the mean, which hangs on a few mirrored poses: name -> (our metric, unit).
FURTHER = {
    "all steps": ("all_steps_mse", ""),
    "median": ("median", ""),
    "90th percentile": ("p90", ""),
    "success": ("success", " %"),
}
# What the posterior's own variance says about its errors: the same floor, less noise.
EXPECTED = {"last_step_mse": "last_step_expected", "all_steps_mse": "all_steps_expected"}
BAR_CHART = "bar chart only"


def localization_matrix(cells: list[Cell], lookup: Lookup, records: Records) -> Matrix:
    """Return the table of last-step errors with three further columns for each maze that ran."""
    mazes = [name for name in MAZES if _ran(lookup, name)] or list(MAZES[:1])
    columns: list[Column] = []
    for maze in mazes:
        columns.append(Column(f"{maze}, last-step MSE", maze))
        columns.extend(Column(f"{maze}, {name}", maze) for name in FURTHER)
    rows = []
    for variant in METHODS:
        for rule in ("fixed", "best"):
            if any(lookup.ours(maze, variant, rule) for maze in mazes) or rule == "fixed":
                views = [
                    view
                    for maze in mazes
                    for view in _views(cells, lookup, records, maze, variant, rule)
                ]
                label = VARIANTS[variant].label + ("-best" if rule == "best" else "")
                rows.append(MatrixRow(label, variant, tuple(views)))
    rows += _controls(lookup, mazes)
    absent = [name for name in MAZES if not _ran(lookup, name)]
    others = f" Not run: {', '.join(absent)}." if absent else ""
    return Matrix(
        "localization",
        "Localisation",
        "Test errors in map units squared (mean of x and y); success: last step's error below 1.",
        f"{tier_note(lookup.evidence.study.tier)} The paper prints localisation numbers for the "
        "particle, Bayesian and ensemble variants (table 4); those of LSTM and GRU stand in a bar "
        "chart only. The mean hangs on a few mirrored poses, so the median stands beside."
        f"{_bracket(lookup, mazes)}{others}",
        tuple(columns),
        tuple(rows),
    )


def _bracket(lookup: Lookup, mazes: list[str]) -> str:
    if not any("exact_posterior" in lookup.controls(maze) for maze in mazes):
        return ""
    return (
        " Two controls bracket every number: the map centre, and the exact posterior, which knows "
        "map, rules and noise and is computed from the same inputs of the same trajectories. No "
        "method has a smaller expected error; how small that is, the length of the trajectories "
        "decides."
    )


def _ran(lookup: Lookup, maze: str) -> bool:
    return bool((lookup.evidence.results["dataset"] == maze).any())


def _views(
    cells: list[Cell], lookup: Lookup, records: Records, maze: str, variant: str, rule: str
) -> list[CellView]:
    ours = lookup.ours(maze, variant, rule)
    verdict = _paper_verdict(cells, maze, variant, rule)
    printed = _printed(maze, variant, rule)
    if ours is None:
        why = lookup.why_not_run(maze, variant, rule)
        first = CellView(
            maze,
            SYMBOLS["not run"],
            paper=printed,
            word="not run",
            reason=why,
            symbol=SYMBOLS["not run"],
        )
        return [first, *(CellView(maze, SYMBOLS["not run"]) for _ in FURTHER)]
    views = [_main_view(maze, ours, printed, verdict, lookup.state(maze), records)]
    for metric, unit in FURTHER.values():
        further = lookup.ours(maze, variant, rule, Reading(metric, 1.0, "", True, ""))
        views.append(_further_view(maze, further, unit))
    return views


def _main_view(
    maze: str, ours: Ours, printed: str, verdict: Verdict, state: str, records: Records
) -> CellView:
    digits = decimals_for(ours.mean)
    return CellView(
        maze,
        number(ours.mean, digits),
        spread_text(ours, digits),
        printed,
        signed(ours.mean - float(printed), digits) if printed != BAR_CHART else "",
        KINDS[verdict.word],
        SYMBOLS[verdict.word],
        verdict.word,
        verdict.reason,
        state,
        plain(ours.mean),
        records.index(ours),
        scored(ours.selected, digits) if ours.selected is not None else "",
    )


def _further_view(maze: str, ours: Ours | None, unit: str) -> CellView:
    if ours is None:
        return CellView(maze, SYMBOLS["not run"])
    digits = 0 if unit else decimals_for(ours.mean)
    spread = spread_text(ours, digits) if ours.interval else ""
    return CellView(maze, number(ours.mean, digits) + unit, spread, sort=plain(ours.mean))


def _paper_verdict(cells: list[Cell], maze: str, variant: str, rule: str) -> Verdict:
    if rule == "fixed":
        cell = matrix(cells, 4).get((VARIANTS[variant].label, maze))
        if cell is not None:
            return cell.verdict
    return Verdict(NOT_COMPARABLE, "the paper prints no number")


def _printed(maze: str, variant: str, rule: str) -> str:
    for one in paper_numbers():
        if one.table == 4 and (one.dataset, one.variant, one.size_rule) == (maze, variant, rule):
            return one.printed.text
    return BAR_CHART


def _controls(lookup: Lookup, mazes: list[str]) -> list[MatrixRow]:
    """Rows of controls, with the standard error over trajectories that the card has."""
    cards = {maze: lookup.evidence.cards.get(maze, {}).get("controls", {}) for maze in mazes}
    rows = []
    for name in sorted({name for controls in cards.values() for name in controls}):
        found = {maze: cards[maze].get(name, {}) for maze in mazes}
        label = f"control: {name.replace('_', ' ')}"
        rows.append(_control_row(label, found, {}))
        if any("last_step_expected" in control for control in found.values()):
            rows.append(_control_row(f"{label}, by its own variance", found, EXPECTED))
    return rows


def _control_row(
    label: str, controls: dict[str, dict[str, float]], renamed: dict[str, str]
) -> MatrixRow:
    """One row; with ``renamed`` only the metrics that it names."""
    metrics = {metric: unit for metric, unit in FURTHER.values()}
    views = []
    for maze, control in controls.items():
        for metric, unit in {reading_of(maze).metric: "", **metrics}.items():
            known = not renamed or metric in renamed
            shown = renamed.get(metric, metric) if known else ""
            first = metric == reading_of(maze).metric
            views.append(_control_view(maze, control, shown, unit, first))
    return MatrixRow(label, "", tuple(views), True)


def _control_view(
    maze: str, control: dict[str, float], metric: str, unit: str, first: bool
) -> CellView:
    value = control.get(metric, math.nan)
    if not math.isfinite(value):
        return CellView(maze, SYMBOLS["not run"])
    digits = 0 if unit else decimals_for(value)
    spread = control_spread(control, metric, digits)
    if first and "trajectories" in control:
        spread = f"{spread} {int(control['trajectories']):,} trajectories".strip()
    return CellView(maze, scored(value, digits) + unit, spread, sort=plain(value))
