"""Scores that are not whole are no results: a lost or doubled row changes every interval."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfrnn.errors import RecordError
from pfrnn.evaluation.aggregate import _check_data, check_scores

PATH = Path("final/x/test.csv")


def scores(*repetitions, metric="mse", value="1.5"):
    return [{"repetition": str(r), "metric": metric, "value": value} for r in repetitions]


def test_whole_scores_pass():
    check_scores(PATH, scores(0, 1, 2) + scores(0, 1, 2, metric="mae"), 3)
    # What a diverged training scores is its score.
    check_scores(PATH, scores(0, 1, value="nan"), 2)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (scores(0, 2), "expected mse of 3 repetitions, each once, got 0, 2"),
        (scores(0, 1, 1), "each once, got 0, 1, 1"),
        (scores(0, 1, 2, 0, 1, 2), "each once, got 0, 1, 2, 0, 1, 2"),
        (scores(0, 1, 2) + scores(0, 1, metric="mae"), "expected mae of 3 repetitions"),
        (scores(0, 1, 2, value="abc"), "expected a number for mse of repetition 0, got 'abc'"),
        (scores(0, 1, 2, value=""), "expected a number for mse of repetition 0, got ''"),
        ([{"repetition": "0", "metric": "mse", "value": None}], "expected repetition, metric and"),
        ([], "expected scores of 3 repetitions, got none"),
    ],
)
def test_others_are_refused_with_what_to_do(rows, words):
    with pytest.raises(RecordError, match=words) as caught:
        check_scores(PATH, rows, 3)
    assert "delete the final's folder" in str(caught.value)


def test_finals_of_other_data_share_no_table():
    rows = [
        {"dataset": name, "final_id": f"final/{name}/{model}", "data_digest": digest}
        for name, model, digest in (
            ("air", "lstm", "1a"),
            ("pm", "lstm", "2b"),
            ("air", "gru", "1a"),
        )
    ]
    _check_data(rows, Path("results"))
    rows.append({"dataset": "pm", "final_id": "final/pm/gru", "data_digest": "3c"})
    with pytest.raises(RecordError, match=r"final/pm/lstm \(2b\) and final/pm/gru \(3c\)"):
        _check_data(rows, Path("results"))
