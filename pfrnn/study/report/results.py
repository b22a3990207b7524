"""Our results by data set, variant, size rule and metric, in the paper's unit."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pfrnn.study.evaluate.statistics import t_interval
from pfrnn.study.report.evidence import Evidence, marked, numeric
from pfrnn.study.report.units import Reading, reading_of

# A variant that only fixes the particles is PF-LSTM at that number: one training serves both.
_SAME_AS_PF_LSTM = {"pf_lstm_p20": 20, "pf_lstm_p30": 30}


class Ours(NamedTuple):
    """Our result of one final.

    Attributes:
        values: one a repetition, finite, in order of repetition.
        repetitions: their numbers.
        errors: test-set standard error of each value.
        n: repetitions that count.
        mean: over repetitions.
        low: lower end of Student's interval of that mean; NaN below two repetitions.
        high: its upper end.
        diverged: repetitions that gave no finite number.
        sampling_error: root mean square of the test-set standard errors; NaN when unknown.
        n_test: test items; 0 when unknown.
        selected: test value of the search's chosen member, as the paper probably reports; it
            enters no mean, interval or verdict. NaN where there is none.
        metric: its metric.
        unit: its unit, in words.
        row: the result row of the first repetition, for provenance.
    """

    values: tuple[float, ...]
    repetitions: tuple[int, ...]
    errors: tuple[float, ...]
    n: int
    mean: float
    low: float
    high: float
    diverged: int
    sampling_error: float
    n_test: int
    selected: float
    metric: str
    unit: str
    row: dict[str, Any]


def summarised(
    values: Any, repetitions: Any, errors: Any, reading: Reading, confidence: float, **known: Any
) -> Ours:
    """Sum repetitions up; the interval ends where the metric does."""
    interval = t_interval(values, confidence)
    top = 100.0 if reading.metric in ("accuracy", "success") else math.inf
    error = float(np.sqrt(np.mean(np.square(errors))))
    return Ours(
        values=tuple(map(float, values)),
        repetitions=tuple(map(int, repetitions)),
        errors=tuple(map(float, errors)),
        n=len(values),
        mean=float(np.mean(values)),
        low=max(0.0, interval.low) if interval else math.nan,
        high=min(top, interval.high) if interval else math.nan,
        sampling_error=error if math.isfinite(error) else math.nan,
        metric=reading.metric,
        unit=reading.unit,
        **known,
    )


class Results:
    """Finds our result, controls and state of a data set."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence, self.study = evidence, evidence.study
        self.rows = numeric(evidence.results)
        self.sets = sorted(set(self.rows["dataset"]))
        keys = ["dataset", "variant", "size_rule", "metric"]
        self._rows = {key: rows for key, rows in self.rows.groupby(keys, sort=True)}
        self._found: dict[tuple[Any, ...], Ours | None] = {}

    def get(
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
            found = (
                None if rows is None or rows.empty else _ours(rows, wanted, self.study.confidence)
            )
            self._found[key] = found
        return self._found[key]

    def card(self, dataset: str) -> dict[str, Any]:
        """Return a data set's prepared card; empty where there is none."""
        return self.evidence.cards.get(dataset, {})

    def state(self, dataset: str) -> str:
        """State of a data set: its card's, ``missing``, or ``not run``."""
        missing = "missing" if dataset in self.study.missing else "not run"
        return str(self.card(dataset).get("state", missing))

    def described(self, dataset: str) -> str:
        """State of a data set as shown: a split that leaks on purpose says so."""
        notes = self.card(dataset).get("notes", [])
        leaky = any(str(note).upper().startswith("LEAKY") for note in notes)
        return self.state(dataset) + (", leaky on purpose" if leaky else "")

    def controls(self, dataset: str, reading: Reading | None = None) -> dict[str, float]:
        """Controls on the same test rows, in the paper's unit: name -> value."""
        wanted = reading or reading_of(dataset)
        return {
            name: values[wanted.metric] * wanted.scale
            for name, values in sorted(self.card(dataset).get("controls", {}).items())
            if math.isfinite(values.get(wanted.metric, math.nan))
        }

    def commit(self, final: str, commit: str) -> str:
        """Return a final's commit, marked where the source had other changes."""
        return marked(commit, self.evidence.runs.get(final, {}))

    def why_not_run(self, dataset: str, variant: str, size_rule: str) -> str:
        """Say why a cell has no result."""
        study = self.study
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
    if finite.empty:
        return None
    first = rows.iloc[0].to_dict()
    return summarised(
        finite["value"] * reading.scale,
        finite["repetition"],
        finite["sampling_error"] * reading.scale,
        reading,
        confidence,
        diverged=len(rows) - len(finite),
        n_test=int(finite["n_test"].where(np.isfinite(finite["n_test"]), 0).max()),
        selected=float(first["selected_member_value"]) * reading.scale,
        row=first,
    )
