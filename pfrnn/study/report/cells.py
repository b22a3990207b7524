"""Our results beside the paper's numbers: one cell for every printed number and every own one."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pfrnn.study.evaluate.statistics import Interval, t_interval
from pfrnn.study.report.evidence import Evidence
from pfrnn.study.report.paper.numbers import PaperNumber, paper_numbers
from pfrnn.study.report.units import Reading, reading_of
from pfrnn.study.report.verdicts import (
    DIRECTION,
    NOT_RUN,
    REFERENCE,
    Verdict,
    direction,
    judge,
    obstacle,
)

# A variant that only fixes the particles is PF-LSTM at that number: one training serves both.
_SAME_AS_PF_LSTM = {"pf_lstm_p20": 20, "pf_lstm_p30": 30}
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


class Ours(NamedTuple):
    """Our result for one (data set, variant, size rule), in the paper's unit.

    Attributes:
        values: one a repetition, finite, in order of repetition.
        repetitions: their numbers.
        seeds: their seeds.
        errors: test-set standard error of each value.
        interval: Student's interval of the mean over repetitions; None below two.
        diverged: repetitions that gave no finite number.
        n_test: test items; 0 when unknown.
        reading: metric and unit.
        row: the result row of the first repetition, for provenance.
        selected: test value of the search's chosen member, as the paper probably reports; it
            enters no mean, interval or verdict. None where there is none.
    """

    values: tuple[float, ...]
    repetitions: tuple[int, ...]
    seeds: tuple[str, ...]
    errors: tuple[float, ...]
    interval: Interval | None
    diverged: int
    n_test: int
    reading: Reading
    row: dict[str, Any]
    selected: float | None = None

    @property
    def mean(self) -> float:
        """Mean over repetitions."""
        return float(np.mean(self.values))

    @property
    def sampling_error(self) -> float | None:
        """Root mean square of the test-set standard errors; None when unknown."""
        total = float(np.sqrt(np.mean(np.square(self.errors))))
        return total if math.isfinite(total) else None

    @property
    def n(self) -> int:
        """Repetitions that count."""
        return len(self.values)


class Cell(NamedTuple):
    """One printed number with ours.

    Attributes:
        number: the paper's.
        ours: None when nothing ran.
        verdict: with reason.
        state: state of the data: whole, excerpt, unverified, simulated, missing, or ``not run``.
    """

    number: PaperNumber
    ours: Ours | None
    verdict: Verdict
    state: str

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's; None without ours."""
        return None if self.ours is None else self.ours.mean - self.number.printed.value


class Lookup:
    """Finds our result for a data set, variant and size rule."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.confidence = evidence.study.confidence
        keys = ["dataset", "variant", "size_rule", "metric"]
        self._rows = {key: rows for key, rows in evidence.results.groupby(keys, sort=True)}
        self._found: dict[tuple[str, str, str, str, float], Ours | None] = {}

    def ours(
        self, dataset: str, variant: str, size_rule: str = "fixed", reading: Reading | None = None
    ) -> Ours | None:
        """Return our result, in the paper's unit unless another reading is asked for."""
        wanted = reading or reading_of(dataset)
        key = (dataset, variant, size_rule, wanted.metric, wanted.scale)
        if key not in self._found:
            rows = self._rows.get(key[:4])
            if rows is None and variant in _SAME_AS_PF_LSTM:
                rows = self._rows.get((dataset, "pf_lstm", size_rule, wanted.metric))
                if rows is not None:
                    rows = rows[rows["particles"] == _SAME_AS_PF_LSTM[variant]]
            self._found[key] = (
                None if rows is None or rows.empty else _ours(rows, wanted, self.confidence)
            )
        return self._found[key]

    def state(self, dataset: str) -> str:
        """State of a data set: its card's, ``missing``, or ``not run``."""
        if dataset in self.evidence.cards:
            return str(self.evidence.cards[dataset]["state"])
        return "missing" if dataset in self.evidence.study.missing else "not run"

    def described(self, dataset: str) -> str:
        """State of a data set as shown: a split that leaks on purpose says so."""
        notes = self.evidence.cards.get(dataset, {}).get("notes", [])
        leaky = any(str(note).upper().startswith("LEAKY") for note in notes)
        return self.state(dataset) + (", leaky on purpose" if leaky else "")

    def controls(self, dataset: str, reading: Reading | None = None) -> dict[str, float]:
        """Controls on the same test rows, in the paper's unit: name -> value."""
        wanted = reading or reading_of(dataset)
        card = self.evidence.cards.get(dataset, {})
        return {
            name: values[wanted.metric] * wanted.scale
            for name, values in sorted(card.get("controls", {}).items())
            if math.isfinite(values.get(wanted.metric, math.nan))
        }

    def control_errors(self, dataset: str, reading: Reading | None = None) -> dict[str, float]:
        """Standard errors of controls over the test sequences, where the card has them."""
        wanted = reading or reading_of(dataset)
        card = self.evidence.cards.get(dataset, {})
        return {
            name: values[f"{wanted.metric}_se"] * wanted.scale
            for name, values in sorted(card.get("controls", {}).items())
            if math.isfinite(values.get(f"{wanted.metric}_se", math.nan))
        }

    def why_not_run(self, dataset: str, variant: str, size_rule: str) -> str:
        """Say why a cell has no result."""
        study = self.evidence.study
        if any(key[:3] == (dataset, variant, size_rule) for key in self._rows):
            return "no finite result: every repetition diverged"
        if dataset in study.missing:
            return f"data set missing: {study.missing[dataset]}"
        if dataset not in study.datasets:
            return f"data set not in tier {study.tier}"
        if variant not in study.variants_of(dataset):
            return f"variant not in tier {study.tier}"
        if size_rule not in study.size_rules:
            return f"size rule {size_rule} not in tier {study.tier}"
        return "no result yet"


def _ours(rows: pd.DataFrame, reading: Reading, confidence: float) -> Ours | None:
    rows = rows.sort_values(["repetition", "final_id"], kind="stable")
    finite = rows[np.isfinite(rows["value"])]
    first = {str(name): value for name, value in rows.iloc[0].items()}
    if finite.empty:
        return None
    values = tuple(float(value) * reading.scale for value in finite["value"])
    selected = float(first["selected_member_value"])
    return Ours(
        values=values,
        repetitions=tuple(int(value) for value in finite["repetition"]),
        seeds=tuple(str(seed) for seed in finite["seed"]),
        errors=tuple(float(value) * reading.scale for value in finite["sampling_error"]),
        interval=_possible(t_interval(values, confidence), reading.metric),
        diverged=len(rows) - len(finite),
        n_test=int(finite["n_test"].where(np.isfinite(finite["n_test"]), 0).max()),
        reading=reading,
        row=first,
        selected=selected * reading.scale if math.isfinite(selected) else None,
    )


def _possible(interval: Interval | None, metric: str) -> Interval | None:
    """Cut an interval at the ends of the possible range."""
    if interval is None:
        return None
    top = 100.0 if metric in ("accuracy", "success") else math.inf
    return interval._replace(low=max(0.0, interval.low), high=min(top, interval.high))


def build_cells(lookup: Lookup) -> list[Cell]:
    """Return a cell for every printed number but table 3's, which summarises table 5."""
    return [_cell(lookup, number) for number in paper_numbers() if number.table != 3]


def _cell(lookup: Lookup, number: PaperNumber) -> Cell:
    state, shown = lookup.state(number.dataset), lookup.described(number.dataset)
    if number.variant is None:
        return Cell(number, None, Verdict(REFERENCE), shown)
    ours = lookup.ours(number.dataset, number.variant, number.size_rule)
    if ours is None:
        why = lookup.why_not_run(number.dataset, number.variant, number.size_rule)
        return Cell(number, None, Verdict(NOT_RUN, why), shown)
    verdict = obstacle(lookup.evidence.study.tier, number.dataset, state)
    if verdict is None:
        verdict = judge(
            number.printed,
            ours.values,
            ours.errors,
            number.scale,
            ours.n_test,
            lookup.confidence,
        )
    elif verdict.word == DIRECTION:
        verdict = _direction(lookup, number, ours, verdict.reason)
    return Cell(number, ours, verdict, shown)


def _direction(lookup: Lookup, number: PaperNumber, ours: Ours, reason: str) -> Verdict:
    variant = number.variant or ""
    for partner in PARTNERS.get(variant, ABLATION_PARTNERS):
        theirs = lookup.ours(number.dataset, partner, number.size_rule)
        printed = _printed(number, partner)
        if theirs is not None and printed is not None and partner != variant:
            return direction(
                reason,
                number.scale,
                ours.mean,
                theirs.mean,
                number.printed.value,
                printed.printed.value,
                printed.method,
            )
    return direction(reason, number.scale, ours.mean, None, 0.0, None, "")


def _printed(number: PaperNumber, partner: str) -> PaperNumber | None:
    """The partner's number in the same table, column and size rule."""
    for other in paper_numbers():
        if (
            other.table == number.table
            and other.column == number.column
            and other.variant == partner
            and other.size_rule == number.size_rule
        ):
            return other
    return None
