"""A job that fails: its reason is shown, the others go on, and the next run does the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from _copy import Copy

pytestmark = pytest.mark.slow


def test_a_failing_job_says_why_and_does_not_stop_the_others(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    mine = tmp_path / "mine.yaml"
    mine.write_text("study: {variants: [lstm, gru]}\n")
    options = ("--cores", "2", "--configfile", "mine.yaml")
    train = "def train_block("
    broken = (
        "def train_block(plan, block_id, *rest):\n"
        "    if '/gru/' in block_id:\n"
        "        raise OSError('No space left on device: invented')\n"
        "    return _train_block(plan, block_id, *rest)\n\n\n"
        "def _train_block("
    )
    with copy.changed("pfrnn/study/train/block.py", train, broken):
        done = copy.snakemake(*options)
        assert done.returncode == 1
        reason = next(line for line in done.stdout.splitlines() if "No space left" in line)
        assert reason.startswith("results/smoke/logs/search/maze10/gru/")
        # With the parameters of this run, so that the command sees the same plan.
        assert "pfrnn aggregate --params params.yaml,results/overrides/" in done.stdout
        final = tmp_path / "results" / "smoke" / "final" / "maze10"
        assert [path.name[:10] for path in final.iterdir()] == ["lstm-fixed"]
        search = tmp_path / "results" / "smoke" / "search" / "maze10"
        # The kernel lock's file stays; of the records there is none.
        assert {path.name for path in search.rglob("gru/*/*")} == {".lock"}
        # The finished half is kept; only the failed one and what needs it is left.
        jobs = copy.plan(*options)
        assert (jobs["train"], jobs["select"], jobs["finalise"]) == (1, 1, 1)
        assert jobs["aggregate"] == jobs["report"] == 1
    # Of other source the finished job runs again; it fails too, and its old records don't count.
    with copy.changed("pfrnn/study/train/block.py", train, broken.replace("/gru/", "/")):
        assert copy.snakemake(*options).returncode == 1
        assert copy.plan(*options)["train"] == 2
