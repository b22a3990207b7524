"""A killed run's locks are removed; a live run's never."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pfrnn.errors import PfrnnError
from pfrnn.study.cli import main
from pfrnn.study.runlock import hold, unlock

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def locked(tmp_path):
    """A folder with the lock files that a killed Snakemake leaves."""
    locks = tmp_path / ".snakemake" / "locks"
    locks.mkdir(parents=True)
    for number in range(2):
        (locks / f"{number}.input.lock").write_text("results/a\n")
    return tmp_path


def test_a_live_run_is_refused_and_a_killed_one_cleared(locked, capsys):
    code = (
        "import time; from pfrnn.study.runlock import hold; "
        "print(hold(), flush=True); time.sleep(60)"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=locked,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert run.stdout.readline().strip().isdigit()
        with pytest.raises(PfrnnError, match=f"process {run.pid}"):
            unlock(locked)
        assert len(list((locked / ".snakemake/locks").iterdir())) == 2
        assert main(["unlock", "--folder", str(locked)]) == 1
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    assert main(["unlock", "--folder", str(locked)]) == 0
    assert "removed the stale lock" in capsys.readouterr().out
    assert list((locked / ".snakemake/locks").iterdir()) == []


def test_nothing_to_do_is_said(tmp_path, capsys):
    assert main(["unlock", "--folder", str(tmp_path)]) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_the_lock_is_held_once(tmp_path):
    handle = hold(tmp_path)
    assert handle is not None
    assert hold(tmp_path) is None
    os.close(handle)
    again = hold(tmp_path)
    assert again is not None
    os.close(again)
