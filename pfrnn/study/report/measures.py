"""What a claim measures: differences of scores by stratum, positive in the claimed direction.

A score is minus the log of an error, or the logit of an accuracy: larger is better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pfrnn.study.evaluate.statistics import transform
from pfrnn.study.report.paper.numbers import SOTA, paper_numbers, printed
from pfrnn.study.report.results import Results
from pfrnn.study.report.units import reading_of

# (data set, variant, size rule) -> score by repetition; empty when there is none.
Score = Callable[[str, str, str], Mapping[int, float]]
# "data set / pair" -> one difference a repetition.
Strata = dict[str, list[float]]
Measure = Callable[[Score], Strata]
Pair = tuple[str, str]  # the first is claimed to be better

PARTICLES = {f"pf_lstm_p{k}": k for k in (1, 5, 10, 20, 30)}
# Only signs of the paper's differences are used, so its 100 % may stand anywhere above 99.95 %.
_PAPER_TEST_ITEMS = 10_000


def scores_of(results: Results) -> Score:
    """Return the score of our results; an error of zero has none."""

    def score(dataset: str, variant: str, size_rule: str) -> Mapping[int, float]:
        ours = results.get(dataset, variant, size_rule)
        if ours is None or ours.n_test < 1:
            return {}
        pairs = zip(ours.repetitions, ours.values, strict=True)
        if ours.metric == "accuracy":
            return {r: transform(value, "accuracy", ours.n_test) for r, value in pairs}
        return {r: -math.log(value) for r, value in pairs if value > 0}

    return score


def paper_score(dataset: str, variant: str, size_rule: str) -> Mapping[int, float]:
    """Score of the first printed number, as one repetition."""
    digits = printed(dataset, variant, size_rule)
    return {0: _of_paper(dataset, float(digits))} if digits else {}


def every_score(dataset: str, variant: str, size_rule: str) -> Mapping[int, float]:
    """A score for whatever is asked: what a claim then measures is all that it names."""
    return {0: 0.0}


def _of_paper(dataset: str, value: float) -> float:
    if reading_of(dataset).metric == "accuracy":
        return transform(value, "accuracy", _PAPER_TEST_ITEMS)
    return -math.log(value)


def _differences(better: Mapping[int, float], worse: Mapping[int, float]) -> list[float]:
    return [better[r] - worse[r] for r in sorted(better.keys() & worse.keys())]


def order(sets: Sequence[str], pairs: Sequence[Pair], rule: str = "fixed") -> Measure:
    """Measure whether each pair's first variant is better, on each set."""

    def measure(score: Score) -> Strata:
        found = {
            f"{name} / {better} over {worse}": _differences(
                score(name, better, rule), score(name, worse, rule)
            )
            for name in sets
            for better, worse in pairs
        }
        return {label: d for label, d in found.items() if d}

    return measure


def growth(small: str, large: str, pairs: Sequence[Pair]) -> Measure:
    """Measure whether the first variant's advantage is larger on the larger maze."""

    def gap(score: Score, name: str, pair: Pair) -> dict[int, float]:
        better, worse = (score(name, variant, "fixed") for variant in pair)
        return {r: better[r] - worse[r] for r in better.keys() & worse.keys()}

    def measure(score: Score) -> Strata:
        found = {
            f"{large} against {small} / {' over '.join(pair)}": _differences(
                gap(score, large, pair), gap(score, small, pair)
            )
            for pair in pairs
        }
        return {label: d for label, d in found.items() if d}

    return measure


def trend(sets: Sequence[str]) -> Measure:
    """Measure the slope of the score on log2 of the particles, for each repetition.

    Least squares over the numbers of particles that a repetition has, at least three.
    """

    def measure(score: Score) -> Strata:
        found = {}
        for name in sets:
            series = {k: score(name, variant, "fixed") for variant, k in PARTICLES.items()}
            points = [
                {k: s[r] for k, s in series.items() if r in s}
                for r in sorted(set().union(*series.values()))
            ]
            slopes = [
                float(np.polyfit(np.log2(list(own)), list(own.values()), 1)[0])
                for own in points
                if len(own) >= 3
            ]
            if slopes:
                found[f"{name} / slope over particles"] = slopes
        return found

    return measure


def against_reference(sets: Sequence[str], variants: Sequence[str], better: bool) -> Measure:
    """Measure whether the best-size variants beat (or fall behind) the printed reference."""
    numbers = paper_numbers()
    references = numbers[numbers["method"] == SOTA].set_index("dataset")["value"]

    def measure(score: Score) -> Strata:
        found = {}
        for name in sets:
            reference = _of_paper(name, references[name])
            for variant in variants:
                own = score(name, variant, "best")
                sign = 1.0 if better else -1.0
                if own:
                    label = f"{name} / {variant} against the reference"
                    found[label] = [sign * (own[r] - reference) for r in sorted(own)]
        return found

    return measure
