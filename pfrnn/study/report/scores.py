"""Scores that claims compare: larger is better, on the transformed scale, ours and the paper's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

from pfrnn.study.evaluate.statistics import transform
from pfrnn.study.report.cells import Lookup
from pfrnn.study.report.paper.numbers import SOTA, paper_numbers
from pfrnn.study.report.units import reading_of

# Only signs of the paper's differences are used, so its 100 % may stand anywhere above 99.95 %.
_PAPER_TEST_ITEMS = 10_000


class Scores(Protocol):
    """Scores by repetition for one (data set, variant, size rule); empty when there are none."""

    def score(self, dataset: str, variant: str, size_rule: str) -> Mapping[int, float]:
        """Minus the log error, or the logit accuracy."""

    def reference(self, dataset: str) -> float | None:
        """Score of the paper's state-of-the-art reference, or None."""


class OurScores:
    """Scores of our results."""

    def __init__(self, lookup: Lookup) -> None:
        self.lookup = lookup

    def score(self, dataset: str, variant: str, size_rule: str) -> Mapping[int, float]:
        """Minus the log error, or the logit accuracy; an error of zero has no score."""
        ours = self.lookup.ours(dataset, variant, size_rule)
        if ours is None or ours.n_test < 1:
            return {}
        pairs = zip(ours.repetitions, ours.values, strict=True)
        if ours.reading.metric == "accuracy":
            return {r: transform(value, "accuracy", ours.n_test) for r, value in pairs}
        return {r: -math.log(value) for r, value in pairs if value > 0}

    def reference(self, dataset: str) -> float | None:
        """Score of the paper's state-of-the-art reference, or None."""
        return _reference(dataset)


class PaperScores:
    """Scores of the printed numbers, as one repetition."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str, str], float] = {}
        for number in paper_numbers():
            if number.table != 3 and number.variant is not None:
                key = (number.dataset, number.variant, number.size_rule)
                self._values.setdefault(key, number.printed.value)

    def score(self, dataset: str, variant: str, size_rule: str) -> Mapping[int, float]:
        """Minus the log error, or the logit accuracy, of the first printed number."""
        value = self._values.get((dataset, variant, size_rule))
        return {} if value is None else {0: _paper_score(dataset, value)}

    def reference(self, dataset: str) -> float | None:
        """Score of the paper's state-of-the-art reference, or None."""
        return _reference(dataset)


class EveryScore:
    """A score for whatever is asked: what a claim then measures is all that it names."""

    def score(self, dataset: str, variant: str, size_rule: str) -> Mapping[int, float]:
        """One repetition, whose score says nothing."""
        return {0: 0.0}

    def reference(self, dataset: str) -> float | None:
        """The same."""
        return 0.0


def _paper_score(dataset: str, value: float) -> float:
    if reading_of(dataset).metric == "accuracy":
        return transform(value, "accuracy", _PAPER_TEST_ITEMS)
    return -math.log(value)


def _reference(dataset: str) -> float | None:
    for number in paper_numbers():
        if number.method == SOTA and number.dataset == dataset:
            return _paper_score(dataset, number.printed.value)
    return None
