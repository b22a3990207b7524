"""The paper tier's whole plan: its size, and what planning it costs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pfrnn.study.data.registry import dataset
from pfrnn.study.plan import load_plan
from pfrnn.study.variants import VARIANTS

MEASURED = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
use = resource.getrusage(resource.RUSAGE_CHILDREN)
print(done.stdout)
print("cost:", use.ru_utime + use.ru_stime, use.ru_maxrss // 1024)
sys.exit(done.returncode)
"""


def test_the_paper_tier_has_the_papers_jobs() -> None:
    plan = load_plan("params.yaml", "paper")
    finals = {cell.final_id: cell for cell in plan.cells}.values()
    ensembles = sum(cell.variant.endswith("_ensemble") for cell in finals)
    assert set(plan.config.study.variants) == set(VARIANTS)
    assert len(plan.blocks) == 1326
    assert (len(finals) - ensembles, ensembles) == (247, 26)
    assert sum(len(block.settings) for block in plan.blocks) == 15_912


@pytest.mark.slow
def test_a_dry_run_of_the_paper_tier_is_cheap(planned, tmp_path: Path) -> None:
    """Under 60 s of processor time (whatever else the machine does) and 1 GiB."""
    # A mirror of empty files: no data set is left out of the plan, and nothing is read.
    for name in load_plan("params.yaml", "paper").protocols:
        for file in dataset(name).card.files:
            path = tmp_path / name / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    command = [sys.executable, "-m", "snakemake", "-n", "--quiet", "rules"]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *command, "--config", "tier=paper"],
        cwd=planned.folder,
        env=os.environ | {"PFRNN_DATA_MIRROR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, megabytes = map(float, done.stdout.splitlines()[-1].split()[1:])
    assert "1326 blocks, 273 finals" in done.stdout
    assert seconds < 60
    assert megabytes < 1024
