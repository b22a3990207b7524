"""Which switch between the paper's text and the authors' release matters: one moved at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from pfrnn.study.evaluate.statistics import Interval, t_interval
from pfrnn.study.report.numbers import DASH, with_interval
from pfrnn.study.report.paper.numbers import printed
from pfrnn.study.report.results import Results
from pfrnn.study.report.units import Reading, reading_of
from pfrnn.study.report.verdicts import (
    BETTER,
    CONSISTENT,
    NOISY,
    NOT_COMPARABLE,
    NOT_RUN,
    REDUCED_TIERS,
    SIGNS,
    WORSE,
    Verdict,
    judge,
    obstacle,
)
from pfrnn.study.variants import FIDELITY, MOVES, Fidelity, Variant

TITLE = "Fidelity: which switch matters"
TEXT, RELEASE = "pf_lstm_paper", "pf_lstm_release"
# Better conditioned than the last step's error, whose mean hangs on a few mirrored poses.
ALL_STEPS = Reading("all_steps_mse")
_MOVES = {move.switch: move for move in MOVES}


def fidelity_frame(results: Results) -> pd.DataFrame:
    """Return a row for each variant of the family, on every data set that has some of it."""
    ran = results.rows[results.rows["variant"].isin(list(FIDELITY))]
    rows = [
        _row(results, dataset, model)
        for dataset in sorted(set(ran["dataset"]))
        for model in FIDELITY.values()
    ]
    return pd.DataFrame(rows)


def _row(results: Results, dataset: str, model: Variant) -> dict[str, Any]:
    reading, name = reading_of(dataset), model.name
    ours = results.get(dataset, name)
    fidelity = model.fidelity or Fidelity("paper")
    move = _MOVES.get(fidelity.moved)
    value = (move.release if fidelity.preset == "paper" else move.paper) if move else ""
    back = fidelity.preset != "paper" and fidelity.moved
    maze = dataset.startswith("maze")
    all_steps = results.get(dataset, name, "fixed", ALL_STEPS) if maze else None
    paper = printed(dataset, "pf_lstm")
    verdict = _verdict(results, dataset, name, paper)
    return {
        "dataset": dataset,
        "variant": name,
        "start": fidelity.preset,
        "switch": fidelity.moved,
        "value": str(value),
        "fidelity": str(ours.row["fidelity"]) if ours else "",
        "metric": reading.metric,
        "mean": ours.mean if ours else math.nan,
        "low": ours.low if ours else math.nan,
        "high": ours.high if ours else math.nan,
        "n": ours.n if ours else 0,
        "diverged": ours.diverged if ours else math.nan,
        **_difference(results, dataset, name, TEXT, reading, "difference"),
        **_difference(
            results, dataset, name, RELEASE if back else name, reading, "release_difference"
        ),
        "all_steps": all_steps.mean if all_steps else math.nan,
        "all_steps_low": all_steps.low if all_steps else math.nan,
        "all_steps_high": all_steps.high if all_steps else math.nan,
        **_difference(
            results, dataset, name, TEXT if maze else name, ALL_STEPS, "all_steps_difference"
        ),
        "paper": paper,
        "verdict": verdict.word,
        "reason": verdict.reason,
        "final_id": str(ours.row["final_id"]) if ours else "",
    }


def _difference(
    results: Results, dataset: str, name: str, base: str, reading: Reading, column: str
) -> dict[str, float]:
    """Differences over the repetitions that both have: they share seed and order of the data."""
    both = [results.get(dataset, each, "fixed", reading) for each in (name, base)]
    mine, other = (dict(zip(o.repetitions, o.values, strict=True)) if o else {} for o in both)
    shared = sorted(mine.keys() & other.keys()) if name != base else []
    d = np.array([mine[r] - other[r] for r in shared])
    interval = t_interval(d, results.study.confidence) or Interval(math.nan, math.nan, 0, 0, "")
    found = {
        column: float(d.mean()) if shared else math.nan,
        f"{column}_low": interval.low,
        f"{column}_high": interval.high,
    }
    return found | ({"pairs": len(shared) or math.nan} if column == "difference" else {})


def _verdict(results: Results, dataset: str, name: str, paper: str) -> Verdict:
    ours = results.get(dataset, name)
    if ours is None:
        return Verdict(NOT_RUN, results.why_not_run(dataset, name, "fixed"))
    if not paper:
        return Verdict(NOT_COMPARABLE, "the paper prints no number")
    barred = obstacle(results.study.tier, dataset, results.state(dataset))
    return barred or judge(
        paper, ours.values, ours.errors, "error", ours.n_test, results.study.confidence
    )


def shown_fidelity(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table as it is read."""
    rows = []
    for row in frame.itertuples():
        whole = "none (the text)" if row.start == "paper" else "all (the release)"
        rows.append(
            {
                "row": FIDELITY[row.variant].label,
                "switch moved": _MOVES[row.switch].text if row.switch else whole,
                "to": row.value or DASH,
                "ours": with_interval(row.mean, row.low, row.high),
                "n": str(row.n),
                "ours − text": with_interval(
                    row.difference, row.difference_low, row.difference_high, True
                ),
                "ours − release": with_interval(
                    row.release_difference,
                    row.release_difference_low,
                    row.release_difference_high,
                    True,
                ),
                "all steps": with_interval(row.all_steps, row.all_steps_low, row.all_steps_high),
                "all steps: ours − text": with_interval(
                    row.all_steps_difference,
                    row.all_steps_difference_low,
                    row.all_steps_difference_high,
                    True,
                ),
                "paper prints": row.paper or DASH,
                "verdict": f"{SIGNS[row.verdict][0]} {row.verdict}"
                + (f" ({row.reason})" if row.reason else ""),
            }
        )
    return pd.DataFrame(rows)


def fidelity_sentences(frame: pd.DataFrame, results: Results) -> list[str]:
    """Say how to read the table, what it found, and what is missing."""
    confidence = results.study.confidence
    compared = int(frame["difference_low"].notna().sum())
    said = [
        "Upper rows: the text's equations with exactly one switch at the release's value; lower "
        "rows: the whole release, and the release with one switch back at the text's. "
        "docs/fidelity.md says what each switch is. Each row searched the same grid for itself. In "
        f"brackets: {100 * confidence:g} % intervals over repetitions; differences are paired by "
        "repetition. The intervals are each by itself: of "
        f"{compared} differences to the text without any effect about "
        f"{(1 - confidence) * compared:.1f} would leave zero out."
    ]
    for name, own in frame.groupby("dataset"):
        if results.study.tier in REDUCED_TIERS:
            said.append(f"{name}: no conclusion from a reduced tier.")
            continue
        clear = own[(own["difference_low"] > 0) | (own["difference_high"] < 0)]
        moved = ", ".join(
            f"{FIDELITY[row.variant].label} ("
            + with_interval(row.difference, row.difference_low, row.difference_high, True)
            + ")"
            for row in clear.itertuples()
        )
        said.append(f"{name}: the difference to the text leaves zero out for {moved or 'no row'}.")
        if paper := own["paper"].iloc[0]:
            outside, inside, narrow = (
                ", ".join(FIDELITY[v].label for v in own[own["verdict"].isin(words)]["variant"])
                or "no row"
                for words in ((BETTER, WORSE), (CONSISTENT, NOISY), (CONSISTENT,))
            )
            said.append(
                f"The printed {paper} for PF-LSTM lies outside the prediction interval of "
                f"{outside}, inside that of {inside}. Narrow enough to be called consistent with "
                f"it is that of {narrow}."
            )
    absent = frame[frame["verdict"] == NOT_RUN]
    if len(absent):
        named = "; ".join(
            f"{FIDELITY[row.variant].label} on {row.dataset}: {row.reason}"
            for row in absent.itertuples()
        )
        said.append(f"Missing: {named}.")
    return said
