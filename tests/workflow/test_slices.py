"""A fresh clone goes on from the evidence that earlier slices of a study committed."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "study" / "report"))

from planned import files, publish, write_slice

from pfrnn.study.files import read_json
from pfrnn.study.recorded import whole_plan

# Of the four variants that run in the copies (_copy.py).
REST = {
    "prepare": 1,
    "train": 2,
    "select": 2,
    "finalise": 2,
    "aggregate": 1,
    "mlflow_import": 1,
    "report": 1,
}


def recorded(folder: Path, tier: str, *variants: str, dataset: str = "maze10") -> Path:
    """Evidence of simulated finals under the tier's ids."""
    plan = whole_plan("params.yaml", tier)
    results, prepared = write_slice(
        folder,
        plan,
        lambda cell: cell.dataset == dataset and cell.variant in variants,
        finals=False,
    )
    publish(results, prepared, plan, folder / "reports")
    return folder / "reports"


def test_recorded_finals_are_left_out(planned, tmp_path: Path) -> None:
    reports = recorded(tmp_path, "smoke", "lstm", "pf_gru")
    asked = ("--config", "tier=smoke", f"recorded={reports}")
    assert planned.plan(*asked) == REST
    done = planned.snakemake("-n", "--quiet", *asked)
    assert "tier smoke: 2 blocks, 2 finals" in done.stdout
    assert f"left out is what is recorded in {reports}" in done.stdout
    # Without the key all is rebuilt from raw data.
    assert planned.plan()["train"] == 4


def test_nothing_is_left(planned, tmp_path: Path) -> None:
    reports = recorded(tmp_path, "smoke", "lstm", "gru", "pf_lstm", "pf_gru")
    asked = ("--config", "tier=smoke", f"recorded={reports}")
    for target in ("all", "data", "results", "reports"):
        done = planned.snakemake("-n", target, *asked)
        assert done.returncode == 0, done.stdout
        assert f"nothing is left to run: all is recorded in {reports}" in done.stdout
        assert "rule train" not in done.stdout
        assert "rule aggregate" not in done.stdout
        assert "rule prepare" not in done.stdout


def test_another_tiers_evidence_is_an_error(planned, tmp_path: Path) -> None:
    reports = recorded(tmp_path, "quick", "lstm")
    done = planned.snakemake("-n", "--config", "tier=smoke", f"recorded={reports}")
    assert done.returncode != 0
    assert "expected the evidence of a report of tier smoke, got evidence of tier quick" in (
        done.stdout
    )


def test_the_command_that_drops_results_is_of_the_runs_own_study(planned, tmp_path: Path) -> None:
    """Under params.yaml alone it would drop every final that only this study holds."""
    reports = recorded(tmp_path, "smoke", "lstm")
    plan = whole_plan("params.yaml", "smoke")
    card = planned.folder / "data" / "prepared" / plan.prepared_id("maze10") / "card.json"
    card.parent.mkdir(parents=True)
    card.write_text('{"arrays_digest": "9876543210"}')
    mine = tmp_path / "mine.yaml"
    mine.write_text("study: {variants: [lstm, gru]}\n")
    try:
        asked = ("--configfile", str(mine), "--config", "tier=smoke", f"recorded={reports}")
        said = " ".join(planned.snakemake("-n", *asked).stdout.split())
    finally:
        shutil.rmtree(card.parents[1])
    found = re.search(r"--params params.yaml,(results/overrides/\S+.yaml) --out \S+ --drop", said)
    assert found, said
    assert read_json(planned.folder / found[1]) == {"study": {"variants": ["lstm", "gru"]}}


def test_a_recorded_set_need_not_be_had(planned, tmp_path: Path, nothing) -> None:
    reports = recorded(tmp_path, "quick", "lstm", "gru", "pf_lstm", "pf_gru", dataset="air")
    for asked, missing in (((), ["air", "arem"]), ((f"recorded={reports}",), ["arem"])):
        done = planned.snakemake("-n", "--quiet", "--config", "tier=quick", *asked, **nothing)
        assert done.returncode == 0, done.stdout
        left_out = [
            line.split("data set ")[1].split()[0]
            for line in done.stdout.splitlines()
            if "is left out:" in line
        ]
        assert left_out == missing


@pytest.mark.slow
def test_two_slices_make_the_whole_report(finished, tmp_path: Path) -> None:
    """The one ran here (``finished``) and publishes two of its variants; a clone runs the rest."""
    here = finished.again(tmp_path / "here")
    some = tmp_path / "some.yaml"
    some.write_text("study: {variants: [lstm, pf_gru]}\n")

    def pfrnn(folder: Path, *arguments: str) -> str:
        command = [sys.executable, "-m", "pfrnn", *arguments]
        return subprocess.run(
            command, cwd=folder, check=True, capture_output=True, text=True
        ).stdout

    pfrnn(here.folder, "aggregate", "--tier", "smoke", "--params", f"params.yaml,{some}")
    for final in (here.folder / "results" / "smoke" / "final" / "maze10").iterdir():
        if final.name.startswith(("gru-", "pf_lstm-")):
            shutil.rmtree(final)
    pfrnn(here.folder, "report", "--tier", "smoke", "--out", "reports")
    # A clone has what is committed, no result and no data.
    clone = here.again(tmp_path / "clone")
    for name in ("results", "data", "mlflow.db", ".snakemake"):
        path = clone.folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    asked = ("--config", "tier=smoke", "recorded=reports")
    assert clone.plan(*asked) == REST
    done = clone.snakemake("--cores", "2", *asked)
    assert done.returncode == 0, done.stdout
    said = pfrnn(clone.folder, "report", "--tier", "smoke", "--out", "reports")
    assert "merged: 2 finals as recorded, 2 from the results" in said
    assert "everything follows" in pfrnn(clone.folder, "check", "--reports", "reports")
    with (clone.folder / "reports" / "results.csv").open() as source:
        order = dict.fromkeys(row["variant"] for row in csv.DictReader(source))
    assert list(order) == ["lstm", "gru", "pf_lstm", "pf_gru"]
    # The run's own report has merged as well.
    reports, own = clone.folder / "reports", clone.folder / "results" / "smoke" / "report"
    assert files(reports, "**/*") == files(own, "**/*")
    assert "nothing is left to run" in clone.snakemake("-n", *asked).stdout
