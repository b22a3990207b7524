"""Verdict rules of docs/statistics.md."""

import math

import pytest

from pfrnn.study.report import verdicts
from pfrnn.study.report.verdicts import direction, judge, obstacle

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
    found = obstacle(tier, "air", "whole")
    assert found is not None
    assert found == (verdicts.NOT_COMPARABLE, "reduced tier", *found[2:])


def test_obstacles_by_data() -> None:
    assert obstacle("paper", "air", "whole") is None
    assert obstacle("gpu", "maze10", "simulated") is None

    def word(dataset: str, state: str) -> str:
        found = obstacle("paper", dataset, state)
        assert found is not None
        return found.word

    assert word("pm", "excerpt") == verdicts.DIRECTION
    assert word("maze18", "simulated") == verdicts.DIRECTION
    assert word("air", "simulated") == verdicts.NOT_COMPARABLE


@pytest.mark.parametrize(
    ("ours", "said"),
    [((1.0, 2.0), "same order"), ((2.0, 1.0), "opposite order"), ((), "no partner")],
)
def test_direction(ours: tuple[float, ...], said: str) -> None:
    found = direction("excerpt", "error", ours, (10.0, 20.0), "LSTM")
    assert found.word == verdicts.DIRECTION
    assert said in found.reason


def test_a_tie_in_the_paper_has_no_direction() -> None:
    assert "ties" in direction("excerpt", "error", (1.0, 2.0), (10.0, 10.0), "LSTM").reason
