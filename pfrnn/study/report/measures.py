"""What a claim measures: differences of scores by stratum, positive in the claimed direction."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pfrnn.study.report.scores import Scores

# "data set / pair" -> one difference a repetition, positive in the claimed direction.
Strata = dict[str, list[float]]

PARTICLES = {
    "pf_lstm_p1": 1,
    "pf_lstm_p5": 5,
    "pf_lstm_p10": 10,
    "pf_lstm_p20": 20,
    "pf_lstm_p30": 30,
}


class Pair(NamedTuple):
    """Two variants of which the first is claimed to be better."""

    better: str
    worse: str


def differences(better: Mapping[int, float], worse: Mapping[int, float]) -> list[float]:
    """Differences of the repetitions that both have."""
    return [better[r] - worse[r] for r in sorted(better.keys() & worse.keys())]


def order(sets: Sequence[str], pairs: Sequence[Pair], rule: str) -> Callable[[Scores], Strata]:
    """Measure whether each pair's first variant is better, on each set."""

    def measure(scores: Scores) -> Strata:
        found = {
            f"{name} / {pair.better} over {pair.worse}": differences(
                scores.score(name, pair.better, rule), scores.score(name, pair.worse, rule)
            )
            for name in sets
            for pair in pairs
        }
        return {label: d for label, d in found.items() if d}

    return measure


def growth(small: str, large: str, pairs: Sequence[Pair]) -> Callable[[Scores], Strata]:
    """Measure whether the first variant's advantage is larger on the larger maze."""

    def measure(scores: Scores) -> Strata:
        found = {}
        for pair in pairs:
            gaps = [_gap(scores, name, pair) for name in (small, large)]
            label = f"{large} against {small} / {pair.better} over {pair.worse}"
            found[label] = differences(gaps[1], gaps[0])
        return {label: d for label, d in found.items() if d}

    return measure


def _gap(scores: Scores, name: str, pair: Pair) -> dict[int, float]:
    better, worse = (scores.score(name, variant, "fixed") for variant in pair)
    return {r: better[r] - worse[r] for r in better.keys() & worse.keys()}


def trend(sets: Sequence[str]) -> Callable[[Scores], Strata]:
    """Measure the slope of the score on log2 of the particles, for each repetition.

    Least squares over the numbers of particles that a repetition has, at least three.
    """

    def measure(scores: Scores) -> Strata:
        found = {}
        for name in sets:
            series = {k: scores.score(name, v, "fixed") for v, k in PARTICLES.items()}
            repetitions = sorted(set().union(*series.values()))
            slopes = [_slope({k: s[r] for k, s in series.items() if r in s}) for r in repetitions]
            found[f"{name} / slope over particles"] = [s for s in slopes if s is not None]
        return {label: d for label, d in found.items() if d}

    return measure


def _slope(points: Mapping[int, float]) -> float | None:
    if len(points) < 3:
        return None
    x = [math.log2(k) for k in points]
    centre, level = sum(x) / len(x), sum(points.values()) / len(points)
    products = [(a - centre) * (b - level) for a, b in zip(x, points.values(), strict=True)]
    return sum(products) / sum((a - centre) ** 2 for a in x)


def against_reference(
    sets: Sequence[str], variants: Sequence[str], better: bool
) -> Callable[[Scores], Strata]:
    """Measure whether the best-size variants beat (or fall behind) the printed reference."""

    def measure(scores: Scores) -> Strata:
        found = {}
        for name in sets:
            reference = scores.reference(name)
            for variant in variants:
                own = scores.score(name, variant, "best")
                if reference is not None and own:
                    sign = 1.0 if better else -1.0
                    label = f"{name} / {variant} against the reference"
                    found[label] = [sign * (own[r] - reference) for r in sorted(own)]
        return found

    return measure
