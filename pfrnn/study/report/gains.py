"""Paired gains of each PF-RNN over its rivals: the study's unit of judgement.

A gain is the difference of two scores (minus log error, or logit accuracy) of one repetition, which
share seed and order of the data; positive: the PF-RNN is better. Its interval is Student's over
repetitions. It holds the seeds' variance alone: the finals recorded so far have no error per test
item, so the test set's own sampling error is not in it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from pfrnn.study.evaluate.paired import excluded_beyond
from pfrnn.study.evaluate.statistics import Interval, t_interval
from pfrnn.study.report.measures import Score, paper_score, scores_of
from pfrnn.study.report.numbers import DASH, known, significant
from pfrnn.study.report.results import Results
from pfrnn.study.variants import VARIANTS

RIVALS = {
    "pf_lstm": ("lstm", "lstm_ensemble", "bayes_lstm"),
    "pf_gru": ("gru", "gru_ensemble", "bayes_gru"),
}
HEADLINE = {("pf_lstm", "lstm"), ("pf_gru", "gru")}


def paired_gain(score: Score, dataset: str, better: str, worse: str, rule: str) -> list[float]:
    """Return one gain a repetition that both have."""
    mine, theirs = score(dataset, better, rule), score(dataset, worse, rule)
    return [mine[r] - theirs[r] for r in sorted(mine.keys() & theirs.keys())]


def gain_interval(
    results: Results, dataset: str, better: str, worse: str, rule: str
) -> Interval | None:
    """Return the interval of a mean paired gain; None below two pairs."""
    gains = paired_gain(scores_of(results), dataset, better, worse, rule)
    return t_interval(gains, results.study.confidence)


def gains_frame(results: Results) -> pd.DataFrame:
    """Return a row for each data set, PF-RNN and rival that have run, headline pairs first.

    Columns: ``gain``, ``low``, ``high`` (of the score's difference), ``p`` (paired t-test, two
    sides), ``excluded`` (larger effects either way are excluded at 5 %), ``paper`` (its gain).
    """
    score, rows = scores_of(results), []
    ablations = [("pf_lstm", name) for name in VARIANTS if name.startswith("pf_lstm_no")]
    pairs = [(pf, rival) for pf, rivals in RIVALS.items() for rival in rivals]
    pairs = sorted(pairs, key=lambda pair: pair not in HEADLINE)
    for pf, rival in [*pairs, *ablations, ("pf_lstm", "pf_lstm_elboonly")]:
        for dataset in results.study.datasets:
            gains = paired_gain(score, dataset, pf, rival, "fixed")
            if not gains:
                continue
            paper = paired_gain(paper_score, dataset, pf, rival, "fixed")
            interval = t_interval(gains, results.study.confidence)
            rows.append(
                {
                    "dataset": dataset,
                    "variant": pf,
                    "rival": rival,
                    "headline": (pf, rival) in HEADLINE,
                    "n": len(gains),
                    "gain": float(np.mean(gains)),
                    "low": interval.low if interval else math.nan,
                    "high": interval.high if interval else math.nan,
                    "p": _p_value(gains),
                    "excluded": excluded_beyond(gains),
                    "paper": paper[0] if paper else math.nan,
                }
            )
    columns = "dataset variant rival headline n gain low high p excluded paper".split()
    return pd.DataFrame(rows, columns=columns).astype({"headline": bool})


def _p_value(gains: list[float]) -> float:
    if len(gains) < 2 or np.ptp(gains) == 0:
        return math.nan
    return float(stats.ttest_1samp(gains, 0.0).pvalue)


def percent(gain: float) -> str:
    """Write a gain as the share by which the error (or the odds of a wrong class) changes."""
    if not known(gain):
        return DASH
    change = 100 * math.expm1(-gain)
    return ("+" if change > 0 else "") + significant(change, 2) + " %"


def shown_gains(frame: pd.DataFrame) -> pd.DataFrame:
    """Return gains as they are read: changes of the error, so that less than zero is better."""

    def row(one: Any) -> dict[str, str]:
        ends = f" [{percent(one.high)}, {percent(one.low)}]" if known(one.low) else ""
        return {
            "data set": one.dataset,
            "pair": f"{VARIANTS[one.variant].label} over {VARIANTS[one.rival].label}",
            "change of the error": percent(one.gain) + ends,
            "n": str(one.n),
            "p (Holm)": significant(one.p_holm, 2),
            "the paper's": percent(one.paper),
            "excluded": f"beyond a factor {significant(math.exp(one.excluded))}"
            if known(one.excluded)
            else DASH,
            "verdict": one.verdict,
        }

    return pd.DataFrame([row(one) for one in frame.itertuples()])
