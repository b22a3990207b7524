"""Dry runs in a copy where nothing has run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from invented_raw import write_air

from pfrnn.study.config import TIERS
from pfrnn.study.data.fetch import fetch
from pfrnn.study.data.registry import dataset
from pfrnn.study.data.sets import air
from pfrnn.study.plan import load_plan
from pfrnn.study.report.sections import rebuild_command

SMOKE = {
    "prepare": 1,
    "train": 4,
    "select": 4,
    "finalise": 4,
    "aggregate": 1,
    "mlflow_import": 1,
    "report": 1,
}


def test_the_smoke_tiers_jobs(planned) -> None:
    assert planned.plan() == SMOKE


def test_the_reports_command_plans_a_study_with_a_file_of_its_own(planned) -> None:
    mine = planned.folder / "mine.yaml"
    mine.write_text("study: {variants: [lstm_bnrelu]}\n", encoding="utf-8")
    try:
        (cell,) = load_plan(f"params.yaml,{mine}", "smoke").cells
        asks = [
            rebuild_command("smoke", cell.final_id, files).partition(" && ")[0]
            for files in (("mine.yaml",), ())
        ]
        assert [planned.shell(ask).returncode == 0 for ask in asks] == [True, False]
    finally:
        mine.unlink()


@pytest.mark.parametrize("tier", [tier for tier in TIERS if tier != "smoke"])
def test_every_tier_can_be_planned(planned, tier: str) -> None:
    done = planned.snakemake("-n", "--quiet", tier=tier)
    assert done.returncode == 0, done.stdout
    assert f"tier {tier}: " in done.stdout


def test_the_tier_and_the_hours_come_first(planned) -> None:
    output = planned.snakemake("-n", "--quiet").stdout
    line = next(line for line in output.splitlines() if line.startswith("tier smoke"))
    assert "4 blocks, 4 finals, 16 runs" in line
    assert "at 20 steps a second on one device at most 0.0 hours" in line
    assert output.index(line) < output.index("Building DAG")


def test_a_machine_without_a_gpu_is_told_what_the_study_takes_there(planned, tmp_path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("execution: {steps_per_second: null}\n")
    asked = ("-n", "--quiet", "--configfile", str(mine))
    told = planned.snakemake(*asked, CUDA_VISIBLE_DEVICES="").stdout
    assert "no GPU on this machine: at most " in told
    assert "snakemake --cores 2 --config tier=quick" in told
    assert told.index("no GPU") < told.index("Building DAG")
    assert "no GPU" not in planned.snakemake(*asked, CUDA_VISIBLE_DEVICES="0").stdout
    # A tier whose rate was measured on a CPU has its hours already.
    assert "no GPU" not in planned.snakemake("-n", "--quiet", CUDA_VISIBLE_DEVICES="").stdout


def test_values_on_the_command_line_are_read_as_yaml(planned) -> None:
    asked = ("--config", "tier=smoke", "training={max_epochs: 1}", "grid={l2: [1e-4, 1e-3]}")
    done = planned.snakemake("-n", "--quiet", *asked)
    assert done.returncode == 0, done.stdout
    assert "4 blocks, 4 finals, 24 runs, at most 24 steps" in done.stdout


def test_a_value_that_the_tier_replaces_is_an_error(planned) -> None:
    with planned.changed("params.yaml", "max_epochs: 200", "max_epochs: 777"):
        done = planned.snakemake("-n", "--quiet")
    assert done.returncode != 0
    told = " ".join(done.stdout.split())
    assert "params.yaml: training.max_epochs: 777 is not in force: workflow/tiers/smoke" in told


def test_the_plan_that_the_readme_shows_is_readable(planned, nothing) -> None:
    done = planned.snakemake("-n", "--quiet", "rules", tier="quick", **nothing)
    assert len(done.stdout) < 10_000
    assert re.search(r"^finalise +\d+$", done.stdout, re.MULTILINE)


def test_the_default_profile_is_found_without_being_named(planned) -> None:
    assert "specific profile profiles/default" in planned.snakemake("-n", "--quiet").stdout


def test_the_quick_profile_runs_the_quick_tier(planned) -> None:
    done = planned.snakemake(
        "-n", "--workflow-profile", "workflow/profiles/quick", "--config", "tier=quick"
    )
    assert "tier quick: " in done.stdout


def test_the_bare_command_runs_the_tier_that_params_names(planned) -> None:
    with planned.changed("params.yaml", "\ntier: gpu\n", "\ntier: smoke\n"):
        done = planned.snakemake("-n", "--resources", "gpu=4", "--config", "strict=false")
    assert "tier smoke: " in done.stdout


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("params.yaml", "\ntraining:\n", "\ntrainig: {}\ntraining:\n", "trainig: unknown key"),
        ("params.yaml", "  bptt: 100", "  bpt: 100", "training.bpt: unknown key"),
        ("workflow/tiers/smoke.yaml", "steps: 6", "stepps: 6", "stepps"),
    ],
)
def test_an_unknown_key_is_named(planned, name: str, old: str, new: str, words: str) -> None:
    with planned.changed(name, old, new):
        done = planned.snakemake("-n")
    assert done.returncode != 0
    assert words in done.stdout
    assert "did you mean" in done.stdout


def test_a_parameter_file_lies_over_the_tier(planned, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("study: {variants: [lstm]}\n")
    jobs = planned.plan("--configfile", str(mine))
    assert jobs == SMOKE | {"train": 1, "select": 1, "finalise": 1}
    mine.write_text("study: {variantz: [lstm]}\n")
    done = planned.snakemake("-n", "--configfile", str(mine))
    assert done.returncode != 0
    where = f"{mine} or --config:\n  study.variantz: unknown key; did you mean 'variants'"
    assert where in done.stdout
    mine.write_text("study: {variants: [lstm]}\nseed: 1\nstudy: {variants: [gru]}\n")
    done = planned.snakemake("-n", "--configfile", str(mine))
    assert done.returncode != 0
    assert "line 3: the key 'study' stands there and in line 1" in done.stdout
    # As `pfrnn --params params.yaml,mine.yaml` does (tests/test_config.py).
    mine.write_text("tier: smoke\nstudy: {variants: [lstm]}\n")
    done = planned.snakemake("-n", "--quiet", "--configfile", str(mine), "--config", "strict=false")
    assert "tier smoke: 1 blocks, 1 finals" in done.stdout


def test_a_missing_data_set_is_left_out_or_an_error(planned, nothing) -> None:
    """Nothing can be had but simulations."""
    done = planned.snakemake("-n", tier="quick", **nothing)
    assert done.returncode == 0
    assert "data set air is left out: " in done.stdout
    assert "either set PFRNN_DATA_MIRROR" in done.stdout
    jobs = planned.plan(tier="quick", **nothing)
    assert (jobs["prepare"], jobs["train"] > 0, "fetch" in jobs) == (1, True, False)
    strict = planned.plan("--config", "tier=quick", "strict=true", **nothing)
    assert strict == jobs | {"fetch": 2}


def test_a_raw_file_that_was_changed_after_it_was_fetched_is_refused(
    planned, nothing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules depend on fetch.json, which doesn't change with it."""
    monkeypatch.setenv("PFRNN_DATA_MIRROR", str(write_air(tmp_path / "invented")))
    mine, raw = tmp_path / "mine.yaml", planned.folder / "data" / "raw"
    mine.write_text("study: {datasets: [air], variants: [lstm]}\n")
    try:
        fetch(dataset("air"), raw)
        options = ("--configfile", str(mine))
        assert "prepare" in planned.plan(*options, **nothing)
        with (raw / "air" / air.FILE).open("ab") as target:
            target.write(b";;\r\n")
        done = planned.snakemake("-n", *options, **nothing)
        assert done.returncode != 0
        told = f"data/raw/air/{air.FILE}: changed since it was fetched: sha256 "
        assert told in done.stdout
        assert "run `pfrnn fetch air`" in done.stdout
        # Of no concern to a run without the set.
        assert planned.plan(**nothing) == SMOKE
        fetch(dataset("air"), raw)
        assert "prepare" in planned.plan(*options, **nothing)
    finally:
        shutil.rmtree(planned.folder / "data", ignore_errors=True)
