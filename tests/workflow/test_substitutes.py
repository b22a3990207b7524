"""The workflow where a tier's sets are missing and a substitute can be had."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from _copy import Copy
from invented_raw import write_air

from tests.study.data import class_raw
from tests.study.data.loopback import serve

# A proxy that refuses every connection stands between this machine and all but the loopback.
ALONE = {
    "PFRNN_DATA_MIRROR": "",
    "https_proxy": "http://127.0.0.1:9",
    "http_proxy": "http://127.0.0.1:9",
    "no_proxy": "127.0.0.1",
}
STUDY = """
study: {datasets: [air], substitutes: [r52], variants: [lstm]}
datasets:
  r52: {min_count: 1, max_length: 8}
"""


@pytest.fixture(scope="module")
def index():
    """Environment of a machine that reaches a package index and nothing else."""
    with serve() as site:
        yield ALONE | {"PIP_INDEX_URL": f"{site.url}/simple"}


def test_r52_joins_the_quick_tier_where_only_an_index_answers(planned, index) -> None:
    alone = planned.plan(tier="quick", **ALONE)
    jobs = planned.plan(tier="quick", **index)
    assert (alone["prepare"], jobs["prepare"], jobs["fetch"]) == (1, 2, 1)
    assert jobs["train"] == 2 * alone["train"]
    done = planned.snakemake("-n", tier="quick", **index)
    assert "data set air is left out: " in done.stdout
    assert "standing in for them: r52" in done.stdout


def test_nothing_joins_when_strict_or_when_fetching_has_failed(planned, index) -> None:
    alone = planned.plan(tier="quick", **ALONE)
    assert planned.plan("--config", "tier=quick", "fetched=true", **index) == alone
    strict = planned.plan("--config", "tier=quick", "strict=true", **index)
    assert strict == alone | {"fetch": 2}


def write_excerpt(mirror: Path) -> Path:
    folder = class_raw.write("r52", mirror)
    (folder / "PARTIAL.md").write_text("Invented for a test.\n")
    return mirror


@pytest.mark.slow
def test_a_substitute_runs_is_named_and_stays(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    (tmp_path / "mine.yaml").write_text(STUDY)
    options = ("--configfile", "mine.yaml")
    mirror = write_excerpt(tmp_path / "mirror")
    here = ALONE | {"PFRNN_DATA_MIRROR": str(mirror)}
    done = copy.snakemake("--cores", "2", *options, **here)
    assert done.returncode == 0, done.stdout
    assert "standing in for them: r52" in done.stdout
    page = (tmp_path / "results/smoke/report/index.html").read_text()
    assert "Missing: air (" in page
    assert "Stand-ins for missing sets: r52." in page
    rows = (tmp_path / "results/smoke/results.csv").read_text()
    assert "smoke,r52,lstm,fixed" in rows
    # The second run plans nothing, after another fetch neither.
    fetched = ("--config", "tier=smoke", "fetched=true")
    assert copy.plan(*options, **here) == copy.plan(*options, *fetched, **here) == {}
    # The mirror is gone: R52 stays, and the report gives AIR's new reason.
    assert copy.plan(*options, **ALONE) == copy.plan(*options, *fetched, **ALONE) == {"report": 1}
    # Nor where its files were had elsewhere (here: put there by hand).
    raw = tmp_path / "data/raw/r52"
    shutil.rmtree(raw)
    shutil.copytree(mirror / "r52", raw)
    command = [sys.executable, "-m", "pfrnn", "fetch", "r52"]
    subprocess.run(command, cwd=tmp_path, check=True, env=os.environ | ALONE)
    assert "put there by the user" in (raw / ".fetch.json").read_text()
    assert copy.plan(*options, **here) == {}
    # Once the listed set can be had, it takes its place again and R52's jobs are left alone.
    write_air(mirror)
    jobs = copy.plan(*options, **here)
    once = {"train": 1, "select": 1, "finalise": 1, "aggregate": 1, "mlflow_import": 1, "report": 1}
    assert jobs == {"fetch": 1, "prepare": 1} | once
