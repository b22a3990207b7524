"""Verdict rules of docs/statistics.md."""

import math

import pytest

from pfrnn.study.evaluate.statistics import Interval
from pfrnn.study.report import verdicts
from pfrnn.study.report.verdicts import judge, obstacle, order

SEEDS = [10.0, 10.1, 9.9, 10.05, 9.95, 10.02]
NONE = [0.01] * 6


@pytest.mark.parametrize(
    ("printed", "word"),
    [("10.0", verdicts.CONSISTENT), ("12.0", verdicts.BETTER), ("8.0", verdicts.WORSE)],
)
def test_an_error_is_judged_in_the_right_direction(printed: str, word: str) -> None:
    assert judge(printed, SEEDS, NONE, "error", 1000).word == word


@pytest.mark.parametrize(
    ("printed", "word"),
    [("90.0", verdicts.CONSISTENT), ("96.0", verdicts.WORSE), ("80.0", verdicts.BETTER)],
)
def test_an_accuracy_is_judged_the_other_way(printed: str, word: str) -> None:
    values = [90.0, 90.1, 89.9, 90.05, 89.95, 90.0]
    assert judge(printed, values, [0.3] * 6, "accuracy", 10000).word == word


def test_a_wide_interval_supports_nothing() -> None:
    values = [5.0, 10.0, 20.0, 8.0]
    assert judge("10", values, [0.1] * 4, "error", 1000).word == verdicts.NOISY
    # but a number far outside is still better or worse
    assert judge("900", values, [0.1] * 4, "error", 1000).word == verdicts.BETTER


def test_one_seed_gives_no_interval_and_no_verdict() -> None:
    verdict = judge("10", [10.0], [0.1], "error", 1000)
    assert (verdict.word, verdict.reason) == (verdicts.NOT_COMPARABLE, "one repetition")
    assert math.isnan(verdict.low)


def test_what_cannot_be_transformed_is_not_compared() -> None:
    assert judge("1", [0.0, 1.0], [0.1] * 2, "error", 10).word == verdicts.NOT_COMPARABLE
    missing = judge("1", [1.0, 1.0], [math.nan] * 2, "error", 10)
    assert missing.word == verdicts.NOT_COMPARABLE


@pytest.mark.parametrize("tier", ["smoke", "quick", "quick_all"])
def test_reduced_tiers_are_never_compared(tier: str) -> None:
    found = obstacle(tier, "r52", "whole")
    assert found is not None
    assert found == (verdicts.NOT_COMPARABLE, "reduced tier", *found[2:])


def test_obstacles_by_data() -> None:
    assert obstacle("paper", "r52", "whole") is None
    assert obstacle("gpu", "maze10", "simulated") is None

    def word(dataset: str, state: str) -> str:
        found = obstacle("paper", dataset, state)
        assert found is not None
        return found.word

    assert word("r52", "excerpt") == verdicts.DIRECTION
    assert word("maze18", "simulated") == verdicts.DIRECTION
    assert word("air", "simulated") == verdicts.NOT_COMPARABLE


@pytest.mark.parametrize("dataset", verdicts.OPEN)
def test_one_rule_for_all_that_is_not_published(dataset: str) -> None:
    """Split, windows, unit or map: whichever is missing, values aren't judged."""
    found = obstacle("gpu", dataset, "simulated" if dataset.startswith("maze") else "whole")
    assert found is not None
    assert found.word == verdicts.DIRECTION
    assert "not published" in found.reason


def test_an_agreement_that_a_trivial_control_shares_says_nothing() -> None:
    inside, outside = {"persistence": 10.1}, {"persistence": 24.0}
    found = judge("10.0", SEEDS, NONE, "error", 1000, controls=inside)
    assert found.word == verdicts.UNINFORMATIVE
    assert "persistence" in found.reason
    assert judge("10.0", SEEDS, NONE, "error", 1000, controls=outside).word == verdicts.CONSISTENT
    # What the interval leaves out is a finding, whatever a control does.
    assert judge("12.0", SEEDS, NONE, "error", 1000, controls=inside).word == verdicts.BETTER


@pytest.mark.parametrize(
    ("gain", "paper", "word"),
    [
        ((0.1, 0.3), 2.0, verdicts.SAME),
        ((0.1, 0.3), -2.0, verdicts.OPPOSITE),
        ((-0.3, -0.1), -2.0, verdicts.SAME),
        ((-0.1, 0.3), 2.0, verdicts.UNDECIDED),
        ((0.1, 0.3), 0.0, verdicts.UNDECIDED),
        (None, 2.0, verdicts.UNDECIDED),
    ],
)
def test_order(gain: tuple[float, float] | None, paper: float, word: str) -> None:
    interval = Interval(*gain, 0.95, 6, "t") if gain else None
    assert order("split not published", interval, paper, "LSTM").word == word
    assert order("split not published", interval, paper, "").word == verdicts.DIRECTION
