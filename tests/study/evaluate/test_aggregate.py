"""Scores that are not whole are no results: a lost or doubled row changes every interval."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from pfrnn.errors import RecordError
from pfrnn.study.cli import main
from pfrnn.study.evaluate.aggregate import _check_data, check_scores
from pfrnn.study.files import write_json, write_text
from pfrnn.study.plan import Cell, Plan, cell_parameters
from pfrnn.study.recorded import whole_plan
from pfrnn.study.records import TEST_COLUMNS

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


def write_final(results: Path, plan: Plan, cell: Cell) -> None:
    """What `pfrnn aggregate` reads of a finished final, invented."""
    names = ("hidden_size", "particles", "batch_size", "learning_rate", "clip", "l2")
    budget = ("budget_configurations", "budget_epochs", "search_seconds")
    known = ("unit", "data_state", "data_digest", "trainable_parameters", "wall_seconds", "commit")
    record = dict.fromkeys(known, 1) | {
        "parameters": cell_parameters(plan, cell),
        "selection": dict.fromkeys(budget, 1) | {"chosen": dict.fromkeys(names, 1)},
        "machine": {"device_name": "test device"},
        "metric": "loss",
    }
    folder = results / cell.final_id
    write_json(folder / "run.json", record)
    repetitions = plan.config.for_dataset(cell.dataset).evaluation.repetitions
    lines = [f"{number},1,loss,1.5,1,0,0,9,1.5" for number in range(repetitions)]
    write_text(folder / "test.csv", "\n".join([",".join(TEST_COLUMNS), *lines, ""]))
    write_text(folder / "history.csv", "member,epoch,val_score\n0,1,1.5\n")


def test_a_substitute_that_ran_is_gathered_and_no_stranger(tmp_path, capsys):
    """Only the run that started it has its file; `pfrnn report` asks for its rows as well."""
    plan = whole_plan("params.yaml", "quick")
    for cell in plan.cells:
        if cell.dataset in ("maze10", "r52") and cell.variant == "lstm":
            write_final(tmp_path, plan, cell)
    options = ["aggregate", "--tier", "quick", "--results", str(tmp_path)]
    assert main(options) == 0
    said = capsys.readouterr()
    with (tmp_path / "results.csv").open() as source:
        assert {row["dataset"] for row in csv.DictReader(source)} == {"maze10", "r52"}
    assert "left out" not in said.err
    # Of the tier's own sets more is expected; what a run wants of a substitute nothing says.
    assert "absent: final/maze10/gru" in said.err
    assert "absent: final/r52" not in said.err
