"""The report's one table: a row for each number that the paper prints or that we have beside.

Every table, in the page, as Markdown, LaTeX or CSV, is a part of this frame, laid out by ``method``
and ``column``. ``table`` is the paper's ("1" to "5"), or ``localization``, ``own``, ``further``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pfrnn.study.evaluate.statistics import t_interval
from pfrnn.study.report.gains import gain_interval
from pfrnn.study.report.paper.numbers import paper_numbers, printed
from pfrnn.study.report.results import Ours, Results, summarised
from pfrnn.study.report.units import Reading, reading_of
from pfrnn.study.report.verdicts import (
    DIRECTION,
    NOT_COMPARABLE,
    NOT_RUN,
    REDUCED_TIERS,
    REFERENCE,
    Verdict,
    judge,
    obstacle,
    order,
)
from pfrnn.study.variants import FIDELITY, SEARCHED, VARIANTS, variant

# Columns of cells.csv; a row of a control has ``control`` set besides.
COLUMNS = (
    "table method column dataset variant size_rule metric unit paper ours low high n diverged "
    "sampling_error n_test selected_member difference prediction_low prediction_high verdict "
    "reason state interval_method final_id"
).split()
# Where values can't be compared, the order of two methods can: the first partner that both have.
PARTNERS = {
    "pf_lstm": ("lstm", "bayes_lstm", "lstm_ensemble"),
    "pf_gru": ("gru", "bayes_gru", "gru_ensemble"),
    "lstm": ("pf_lstm",),
    "gru": ("pf_gru",),
    "bayes_lstm": ("pf_lstm",),
    "bayes_gru": ("pf_gru",),
    "lstm_ensemble": ("pf_lstm",),
    "gru_ensemble": ("pf_gru",),
}
ABLATION_PARTNERS = ("pf_lstm_p30", "pf_lstm_p20", "pf_lstm_p1")
MAZES = ("maze10", "maze18", "maze27")
# Beside the mean, which hangs on a few mirrored poses.
FURTHER = {
    "all steps": "all_steps_mse",
    "median": "median",
    "90th percentile": "p90",
    "success": "success",
}
BAR_CHART = "bar chart only"
REGRESSION = Reading(
    "rescaled_regression_loss", 1.0, "mean over 7 sets of value / largest of the ten methods"
)
CLASSIFICATION = Reading("mean_accuracy", 1.0, "mean of 6 accuracies, per cent")


def all_cells(results: Results) -> pd.DataFrame:
    """Return the frame of all numbers: the paper's in its order, then the others, then controls."""
    numbers = [*paper_numbers().itertuples(index=False)]
    summaries = {column: _summaries(results, column) for column in ("Regression", "Classification")}
    rows = [
        _summary_cell(results, number, *summaries[number.column])
        if number.table == "3"
        else _printed_cell(results, number)
        for number in numbers
    ]
    rows += [*_localization(results), *_further_sets(results), *_own_models(results)]
    rows += _controls(results, rows)
    return pd.DataFrame(rows, columns=[*COLUMNS, "control"])


def cell(
    number: Any, ours: Ours | None, verdict: Verdict, state: str, paper: str = ""
) -> dict[str, Any]:
    """Return a row of the frame.

    Args:
        number: names table, method, column, dataset, variant and size_rule.
        ours: our result, or None.
        verdict: on the printed number.
        state: of the data, as shown.
        paper: the printed digits.
    """
    interval = ours is not None and not math.isnan(ours.low)
    value = float(paper) if paper and paper != BAR_CHART else math.nan
    return {
        "table": number.table,
        "method": number.method,
        "column": number.column,
        "dataset": number.dataset,
        "variant": number.variant,
        "size_rule": number.size_rule if number.variant else "",
        "metric": ours.metric if ours else "",
        "unit": ours.unit if ours else "",
        "paper": paper,
        "ours": ours.mean if ours else math.nan,
        "low": ours.low if ours else math.nan,
        "high": ours.high if ours else math.nan,
        "n": ours.n if ours else 0,
        "diverged": ours.diverged if ours else math.nan,
        "sampling_error": ours.sampling_error if ours else math.nan,
        "n_test": ours.n_test if ours else math.nan,
        "selected_member": ours.selected if ours else math.nan,
        "difference": ours.mean - value if ours else math.nan,
        "prediction_low": verdict.low,
        "prediction_high": verdict.high,
        "verdict": verdict.word,
        "reason": verdict.reason,
        "state": state,
        "interval_method": f"t 0.95, n = {ours.n}" if ours and interval else "",
        "final_id": str(ours.row["final_id"]) if ours else "",
        "control": False,
    }


def _printed_cell(results: Results, number: Any) -> dict[str, Any]:
    state, ours = results.described(number.dataset), None
    if not number.variant:
        verdict = Verdict(REFERENCE)
    elif (ours := results.get(number.dataset, number.variant, number.size_rule)) is None:
        why = results.why_not_run(number.dataset, number.variant, number.size_rule)
        verdict = Verdict(NOT_RUN, why)
    else:
        verdict = _verdict(results, number, ours)
    return cell(number, ours, verdict, state, number.paper)


def _verdict(results: Results, number: Any, ours: Ours) -> Verdict:
    found = obstacle(results.study.tier, number.dataset, results.state(number.dataset))
    if found is None:
        confidence = results.study.confidence
        trivial = results.controls(number.dataset)
        trivial.pop("exact_posterior", None)
        return judge(
            number.paper,
            ours.values,
            ours.errors,
            number.scale,
            ours.n_test,
            confidence,
            trivial,
        )
    if found.word != DIRECTION:
        return found
    for partner in PARTNERS.get(number.variant, ABLATION_PARTNERS):
        theirs = results.get(number.dataset, partner, number.size_rule)
        other = _beside(number, partner)
        if theirs is not None and other is not None and partner != number.variant:
            pair = (number.variant, partner, number.size_rule)
            gain = gain_interval(results, number.dataset, *pair)
            return order(found.reason, gain, _paper_gain(number, other), other.method)
    return order(found.reason, None, 0.0, "")


def _paper_gain(number: Any, other: Any) -> float:
    """The paper's difference, positive where the number is better than the other."""
    sign = 1.0 if number.scale == "accuracy" else -1.0
    return float(sign * (number.value - other.value))


def _beside(number: Any, partner: str) -> Any:
    """The partner's number in the same table, column and size rule."""
    numbers = paper_numbers()
    same = numbers[
        (numbers["table"] == number.table)
        & (numbers["column"] == number.column)
        & (numbers["variant"] == partner)
        & (numbers["size_rule"] == number.size_rule)
    ]
    return next(same.itertuples(index=False), None)


def summarise(values: pd.Series, column: str) -> pd.Series:
    """Summarise table 5 as the paper's table 3 does, by method.

    Args:
        values: by data set's column and method.
        column: ``Regression`` (mean over columns of value / the column's largest) or
            ``Classification`` (plain mean).
    """
    if column == "Regression":
        values = values / values.groupby(level="column").transform("max")
    return values.groupby(level="method", sort=False).mean()


def _summarised_columns(results: Results | None, column: str) -> list[str]:
    """Columns of table 5 behind a column of table 3: all, or those whose sets the tier has."""
    numbers = paper_numbers()
    scale = "accuracy" if column == "Classification" else "error"
    part = numbers[(numbers["table"] == "5") & (numbers["scale"] == scale)]
    if results is not None:
        part = part[part["dataset"].isin(list(results.study.datasets))]
    return list(dict.fromkeys(part["column"]))


def _summaries(results: Results, column: str) -> tuple[dict[str, Ours], str, list[str]]:
    """Our summaries by method; which part of the sets they are of; the sets' states.

    Over the repetitions that all cells have; empty where a cell has none.
    """
    columns, every = _summarised_columns(results, column), _summarised_columns(None, column)
    part = "" if columns == every else f"over {len(columns)} of {len(every)} sets"
    numbers = paper_numbers()
    shown = numbers[(numbers["table"] == "5") & numbers["column"].isin(columns or every)]
    real = {name for name in shown["dataset"] if not name.startswith("maze")}
    states = sorted({results.state(name) for name in real}) or ["simulated"]
    found = {(n.column, n.method): results.get(n.dataset, n.variant) for n in shown.itertuples()}
    if not columns or None in found.values():
        return {}, part if columns else "the tier has none of its sets", states
    cells = pd.DataFrame(
        [
            (*key, *values)
            for key, ours in found.items()
            if ours
            for values in zip(ours.repetitions, ours.values, ours.errors, strict=True)
        ],
        columns=["column", "method", "repetition", "value", "error"],
    )
    table = cells.set_index(["column", "method", "repetition"]).unstack("repetition").dropna(axis=1)
    scaled = table["value"]
    largest = scaled.groupby(level="column").transform("max") if column == "Regression" else 1.0
    values = (scaled / largest).groupby(level="method").mean()
    # Errors of the sets are taken as independent.
    squares = np.square(table["error"].reindex(columns=scaled.columns) / largest)
    errors = np.sqrt(squares.groupby(level="method").sum()) / len(columns)
    reading = REGRESSION if column == "Regression" else CLASSIFICATION
    if part:
        some = reading.unit.replace(f" {len(every)} ", f" {len(columns)} of {len(every)} ")
        reading = reading._replace(unit=some)
    n_test = sum(
        ours.n_test for (_, method), ours in found.items() if ours and method == values.index[0]
    )
    summaries = {
        method: summarised(
            row.to_numpy(),
            row.index,
            errors.loc[method],
            reading,
            results.study.confidence,
            diverged=0,
            n_test=n_test,
            selected=math.nan,
            row={"final_id": "all finals of table 5"},
        )
        for method, row in values.iterrows()
        if len(row)
    }
    return summaries, part, states


def _summary_cell(
    results: Results, number: Any, summaries: dict[str, Ours], part: str, states: Sequence[str]
) -> dict[str, Any]:
    ours, tier = summaries.get(number.method), results.study.tier
    state = states[0] if len(states) == 1 else "mixed"
    if ours is None:
        why = part if "none" in part else "needs every cell of its table 5 row"
        return cell(number, None, Verdict(NOT_RUN, why), state, number.paper)
    if tier in REDUCED_TIERS:
        verdict = Verdict(NOT_COMPARABLE, ", ".join(filter(None, ["reduced tier", part])))
    elif part:
        verdict = Verdict(NOT_COMPARABLE, part)
    else:
        # Most of its sets have no published split: order alone, over our shared repetitions.
        partner = next(name for name in ABLATION_PARTNERS if name != number.variant)
        other = _beside(number, partner)
        sign = 1.0 if number.scale == "accuracy" else -1.0
        theirs = summaries[other.method]
        gains = [sign * (a - b) for a, b in zip(ours.values, theirs.values, strict=True)]
        gain = t_interval(gains, results.study.confidence)
        reason = "protocols of its sets not published"
        verdict = order(reason, gain, _paper_gain(number, other), other.method)
    return cell(number, ours, verdict, state, number.paper)


class _Place:
    """Where a number stands that the paper doesn't print."""

    def __init__(self, table: str, column: str, dataset: str, name: str, size_rule: str) -> None:
        label = variant(name).label if name in {*VARIANTS, *FIDELITY} else _own_label(name)
        self.table, self.column, self.dataset = table, column, dataset
        self.method = label + ("-best" if size_rule == "best" else "")
        self.variant, self.size_rule = name, size_rule


def _own_label(name: str) -> str:
    try:
        return variant(name).label
    except ValueError:  # removed from the code since it ran
        return name


def _other_cell(
    results: Results, place: _Place, reason: str, reading: Reading | None = None
) -> dict[str, Any]:
    """A number of ours that no printed one stands beside."""
    ours = results.get(place.dataset, place.variant, place.size_rule, reading)
    if ours is None:
        why = results.why_not_run(place.dataset, place.variant, place.size_rule)
        return cell(place, None, Verdict(NOT_RUN, why), "")
    return cell(place, ours, Verdict(NOT_COMPARABLE, reason), results.described(place.dataset))


def _localization(results: Results) -> Iterator[dict[str, Any]]:
    """The mazes' errors with median, tail and success beside the mean."""
    mazes = [name for name in MAZES if name in results.sets] or list(MAZES[:1])
    for name in PARTNERS:
        for rule in ("fixed", "best"):
            if rule == "best" and not any(results.get(maze, name, rule) for maze in mazes):
                continue
            for maze in mazes:
                place = _Place("localization", f"{maze}, last-step MSE", maze, name, rule)
                first = _other_cell(results, place, "the paper prints no number")
                digits = printed(maze, name, rule)
                if digits and rule == "fixed":
                    number = next(
                        n
                        for n in paper_numbers().itertuples(index=False)
                        if (n.table, n.dataset, n.variant) == ("4", maze, name)
                    )
                    first = _printed_cell(results, number)
                    first |= {"table": place.table, "column": place.column}
                yield first | {"paper": digits or BAR_CHART}
                for words, metric in FURTHER.items():
                    place = _Place("localization", f"{maze}, {words}", maze, name, rule)
                    yield _other_cell(results, place, "", Reading(metric))


def _further_sets(results: Results) -> Iterator[dict[str, Any]]:
    """Data sets that the paper doesn't have."""
    names = [name for name in results.sets if name not in set(paper_numbers()["dataset"])]
    rows = results.rows[results.rows["dataset"].isin(names)]
    for name, rule in dict.fromkeys(zip(rows["variant"], rows["size_rule"], strict=True)):
        for dataset in names:
            column = f"{dataset}, {reading_of(dataset).metric}"
            place = _Place("further", column, dataset, name, rule)
            yield _other_cell(results, place, "not in the paper")


def _own_models(results: Results) -> Iterator[dict[str, Any]]:
    """Models that are neither the paper's nor between text and release, beside the main ones."""
    own = sorted(set(results.rows["variant"]) - set(VARIANTS) - set(FIDELITY))
    if not own:
        return
    rows = results.rows
    ran = dict.fromkeys(zip(rows["variant"], rows["size_rule"], strict=True))
    pairs = [pair for pair in ran if pair[0] in SEARCHED] + [p for p in ran if p[0] in own]
    for name, rule in pairs:
        for dataset in sorted(set(rows[rows["variant"].isin(own)]["dataset"])):
            column = f"{dataset}, {reading_of(dataset).metric}"
            place = _Place("own", column, dataset, name, rule)
            yield _other_cell(results, place, "the paper's numbers stand in its own tables")


def _controls(results: Results, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of simple predictors on the same test rows, for every column that has some."""
    places = {(r["table"], r["column"], r["dataset"]): r["metric"] for r in rows if r["metric"]}
    found = []
    for (table, column, dataset), metric in places.items():
        main = reading_of(dataset)
        scale = main.scale if metric == main.metric else 1.0
        for name, values in sorted(results.card(dataset).get("controls", {}).items()):
            if not math.isfinite(values.get(metric, math.nan)):
                continue
            value, bound = values[metric] * scale, ""
            lost = values.get("success") == 100.0 and metric == "last_step_mse"
            if name == "exact_posterior" and lost and "trajectories" in values:
                # None of n is lost: at most 3 / n are, by the rule of three, as far off as a guess.
                guess = results.card(dataset)["controls"]["map_centre"][metric]
                value, bound = 3.0 / values["trajectories"] * guess, "at most"
            found.append(
                {
                    "table": table,
                    "method": f"control: {name.replace('_', ' ')}",
                    "column": column,
                    "dataset": dataset,
                    "variant": "",
                    "size_rule": "",
                    "metric": metric,
                    "paper": "",
                    "n": 0,
                    "ours": value,
                    "sampling_error": math.nan
                    if bound
                    else values.get(f"{metric}_se", math.nan) * scale,
                    "reason": bound,
                    "control": True,
                }
            )
    return sorted(found, key=lambda row: row["method"])
