"""DVC and Snakemake at the same time: each says who is at work, and nothing is broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from _versioned import Versioned

pytestmark = pytest.mark.slow
HOLD = (
    "import time; from pfrnn.study.dvclock import hold; print(hold(), flush=True); time.sleep(600)"
)


def _holding(folder: Path) -> subprocess.Popen[str]:
    """A live process that has entered itself as a Snakemake run does."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLD], cwd=folder, stdout=subprocess.PIPE, text=True
    )


def test_dvc_says_that_snakemake_is_at_work(versioned: Versioned) -> None:
    running = _holding(versioned.folder)
    try:
        assert running.stdout is not None
        assert running.stdout.readline() == "True\n"
        for command in (["status"], ["commit", "-f"], ["repro"]):
            done = versioned.attempt(sys.executable, "-m", "dvc", *command)
            assert done.returncode, done.stdout
            assert f"(PID {running.pid}): snakemake" in done.stdout
    finally:
        running.kill()
        running.wait()
    # A killed run counts for nothing.
    assert "up to date" in versioned.dvc("status")


def test_snakemake_says_that_dvc_is_at_work(versioned: Versioned) -> None:
    table = versioned.folder / ".dvc" / "tmp" / "rwlock"
    before = table.read_text() if table.exists() else "{}"
    path = str(versioned.folder / "results" / "smoke" / "final")
    entry = {"write": {path: {"pid": os.getpid(), "cmd": "dvc commit"}}, "read": {}}
    table.write_text(json.dumps(entry))
    command = (sys.executable, "-m", "snakemake", "--cores", "1", "-f", "aggregate")
    started = time.time()
    try:
        done = versioned.attempt(*command)
    finally:
        table.write_text(before)
    assert done.returncode
    assert "DVC is at work" in done.stdout
    assert f"(PID {os.getpid()}): dvc commit" in done.stdout
    newest = (versioned.folder / "results" / "smoke" / "results.csv").stat().st_mtime
    assert newest < started
    assert "up to date" in versioned.dvc("status")


def test_without_dvc_there_is_nothing_to_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pfrnn.study.dvclock import hold

    assert not hold(tmp_path)
    (tmp_path / ".dvc").mkdir()
    monkeypatch.setenv("DVC_STAGE", "results")
    assert not hold(tmp_path)
