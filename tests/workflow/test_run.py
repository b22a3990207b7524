"""The smoke tier, run once; then what each change would run again."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from _copy import ROOT, SMOKE, Copy, parse_jobs

from pfrnn.study.evaluate.selection import select_cell
from pfrnn.study.files import read_json
from pfrnn.study.plan import load_plan
from pfrnn.study.records import RESULT_COLUMNS
from pfrnn.study.train.block import train_block
from pfrnn.study.train.final import run_final
from pfrnn.study.train.places import Places
from pfrnn.study.variants import VARIANTS

pytestmark = pytest.mark.slow

REPORT = {"aggregate": 1, "report": 1, "reports": 1}
# One of each kind that the four variants lack: their jobs are Snakemake's, like all in a real run.
NEW_KINDS = {"bayes_gru", "gru_ensemble", "pf_lstm_noelbo"}
DOWNSTREAM = {"select": 4, "finalise": 4, "aggregate": 1, "mlflow_import": 1, "report": 1}


def test_the_line_is_whole(finished) -> None:
    results = finished.folder / "results" / "smoke"
    with (results / "results.csv").open() as source:
        reader = csv.DictReader(source)
        rows = list(reader)
        assert tuple(reader.fieldnames or ()) == RESULT_COLUMNS
    assert {row["variant"] for row in rows} == {"lstm", "gru", "pf_lstm", "pf_gru"}
    assert {row["repetition"] for row in rows} == {"1", "2"}
    page = (results / "report" / "index.html").read_text()
    assert "maze10" in page
    assert "http-equiv" not in page
    assert read_json(results / "mlflow.json") == {"jobs": 8}
    assert (finished.folder / "mlflow.db").exists()
    assert list(results.rglob("checkpoint.pt*")) == []


def test_status_counts_the_jobs(finished) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pfrnn", "status", "--tier", "smoke"],
        cwd=finished.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "tier smoke: 8 jobs: 8 done, 0 running, 0 failed, 0 waiting" in done.stdout


def test_a_second_run_has_nothing_to_do(finished) -> None:
    assert finished.plan() == {}


def test_snakemakes_own_report_has_the_page_and_the_captions(finished) -> None:
    done = finished.snakemake("--report", "own.html")
    assert done.returncode == 0, done.stdout
    text = (finished.folder / "own.html").read_text()
    for caption in (finished.folder / "workflow" / "captions").glob("*.rst"):
        assert caption.read_text().strip().splitlines()[-1] in text, caption
    for name in ("index.html", "cells.csv", "claims.csv", "results.csv"):
        assert f"Adding {name}" in done.stdout


def test_patience_replans_training_and_what_follows(finished) -> None:
    with finished.changed("workflow/tiers/smoke.yaml", "patience: 2", "patience: 3"):
        assert finished.plan() == {"train": 4} | DOWNSTREAM
    assert finished.plan() == {}


@pytest.mark.parametrize(
    ("old", "new", "jobs"),
    [
        # Paths hold a digest of what a stage depends on, so these plan exactly their descendants.
        ("repetitions: 2", "repetitions: 3", DOWNSTREAM),
        ("bootstrap: 200", "bootstrap: 300", {"report": 1}),
        ("steps: 6", "steps: 7", {"prepare": 1, "train": 4} | DOWNSTREAM),
        ("on_missing: report", "on_missing: report, threads: 2", {}),
    ],
)
def test_a_changed_number_replans_its_descendants(
    finished, old: str, new: str, jobs: dict[str, int]
) -> None:
    with finished.changed("workflow/tiers/smoke.yaml", old, new):
        assert finished.plan() == jobs


def test_the_filters_parameter_leaves_plain_models_alone(finished) -> None:
    with finished.changed("params.yaml", "  alpha: 0.5", "  alpha: 0.4"):
        jobs = finished.plan()
    assert jobs == {"train": 2} | DOWNSTREAM | {"select": 2, "finalise": 2}


@pytest.mark.parametrize(
    ("name", "jobs"),
    [
        ("pfrnn/study/report/report.py", {"report": 1}),
        ("pfrnn/study/train/networks.py", {"train": 4} | DOWNSTREAM),
        ("pfrnn/functional/resampling.py", {"train": 4} | DOWNSTREAM),
        ("pfrnn/study/train/final.py", DOWNSTREAM | {"select": 0}),
        ("pfrnn/study/evaluate/aggregate.py", {"aggregate": 1, "report": 1}),
        ("pfrnn/study/track/jobs.py", {"mlflow_import": 1}),
        ("pfrnn/study/cli/status.py", {}),
        ("pfrnn/study/data/sets/air.py", {}),
        ("pfrnn/study/data/sets/maze10.py", {"prepare": 1, "train": 4} | DOWNSTREAM),
    ],
)
def test_an_edit_of_the_package_replans_its_stage(
    finished, name: str, jobs: dict[str, int]
) -> None:
    with finished.appended(name, "\nEDITED = True\n"):
        assert finished.plan() == {rule: count for rule, count in jobs.items() if count}


def test_an_edit_of_a_template_replans_the_report(finished) -> None:
    with finished.appended("pfrnn/study/report/templates/index.html", "\n"):
        assert finished.plan() == {"report": 1}


def test_a_comment_replans_nothing(finished) -> None:
    with finished.appended("pfrnn/study/train/networks.py", "\n# a comment\n"):
        assert finished.plan() == {}


def test_a_deleted_record_is_made_again(finished) -> None:
    (folder,) = (finished.folder / "results" / "smoke" / "search" / "maze10" / "gru").iterdir()
    record = folder / "run.json"
    aside = finished.folder / "aside.json"
    record.rename(aside)
    try:
        jobs = finished.plan()
    finally:
        aside.rename(record)
    assert jobs == {"train": 1, "select": 1, "finalise": 1} | {
        "aggregate": 1,
        "mlflow_import": 1,
        "report": 1,
    }
    assert finished.plan() == {}


def test_without_snakemakes_metadata_a_changed_parameter_still_replans(finished) -> None:
    """The trap of clones: paths hold digests, so staleness shows as a missing file."""
    metadata = finished.folder / ".snakemake" / "metadata"
    aside = finished.folder / "metadata-aside"
    metadata.rename(aside)
    try:
        with finished.changed("workflow/tiers/smoke.yaml", "patience: 2", "patience: 3"):
            jobs = finished.plan()
    finally:
        aside.rename(metadata)
    assert (jobs["train"], jobs["finalise"], jobs["aggregate"], jobs["report"]) == (4, 4, 1, 1)


def train_here(copy: Copy, variants: set[str]) -> None:
    """Finish the variants in this process, as their jobs would: those are mostly imports.

    Snakemake makes the last output of a job, ``finished``, itself.
    """
    plan = load_plan(copy.folder / "params.yaml", "smoke")
    places = Places(copy.folder / "results" / "smoke", copy.folder / "data" / "prepared")
    for cell in plan.cells:
        if cell.variant in variants:
            for block in cell.blocks:
                if not (places.results / block.id / "run.json").exists():
                    train_block(plan, block.id, places)
                    (places.results / block.id / "finished").touch()
            select_cell(plan, cell.selection_id, places.results)
            run_final(plan, cell.final_id, places)
            (places.results / cell.final_id / "finished").touch()


def test_every_variant_fills_its_rows(finished, tmp_path: Path) -> None:
    """The tier as the repository has it, on top of the four variants that have run."""
    whole = finished.again(tmp_path / "whole")
    shutil.copy(ROOT / SMOKE, whole.folder / SMOKE)
    # An ensemble's search is its single model's, which is there; its final isn't.
    new = len(VARIANTS) - 4
    assert whole.plan("reports") == {"train": new - 2, "select": new, "finalise": new} | REPORT
    train_here(whole, set(VARIANTS) - {"lstm", "gru", "pf_lstm", "pf_gru"} - NEW_KINDS)
    done = whole.snakemake("--cores", "2", "reports")
    assert done.returncode == 0, done.stdout
    jobs = parse_jobs(done.stdout)
    kinds = len(NEW_KINDS)
    assert jobs == {"train": kinds - 1, "select": kinds, "finalise": kinds} | REPORT
    results = whole.folder / "results" / "smoke"
    with (results / "results.csv").open() as source:
        assert {row["variant"] for row in csv.DictReader(source)} == set(VARIANTS)
    with (results / "report" / "tables" / "cells.csv").open() as source:
        cells = list(csv.DictReader(source))
    filled = {
        table: {row["variant"] for row in cells if row["table"] == table and row["n"] != "0"}
        for table in ("3", "4", "5")
    }
    ablations = {name for name in VARIANTS if name.startswith("pf_lstm_")}
    assert filled["5"] == filled["3"] == ablations | {"lstm_bnrelu"}
    assert filled["4"] == {
        "pf_lstm",
        "pf_gru",
        "bayes_lstm",
        "bayes_gru",
        "lstm_ensemble",
        "gru_ensemble",
    }
