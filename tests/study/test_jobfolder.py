"""One process at a time in a job's folder; a finished job is known by its own record."""

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pfrnn.errors import PfrnnError
from pfrnn.study.files import write_json
from pfrnn.study.jobfolder import (
    again,
    alone,
    identity_of,
    is_finished,
    is_in_use,
    remove_records,
)
from pfrnn.study.records import OUTPUTS

ROOT = Path(__file__).resolve().parents[2]
# Enters the folder, notes when, works a while, notes when it leaves.
WORKER = """
import sys, time
from pathlib import Path
from pfrnn.study.jobfolder import alone
with alone(Path(sys.argv[1])):
    print("in", time.monotonic(), flush=True)
    time.sleep(float(sys.argv[2]))
    print("out", time.monotonic(), flush=True)
"""


def worker(folder: Path, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(folder), str(seconds)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_processes_are_alone_in_turn(tmp_path):
    workers = [worker(tmp_path / "job", 0.15) for _ in range(3)]
    stays, messages = [], ""
    for process in workers:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        stays.append([float(line.split()[1]) for line in out.splitlines()])
        messages += err
    stays.sort()
    for (_, left), (entered, _) in itertools.pairwise(stays):
        assert left <= entered
    assert "works here (perhaps left by a killed run); waiting" in messages


def test_a_killed_process_frees_the_folder_at_once(tmp_path):
    process = worker(tmp_path, 60)
    assert process.stdout.readline().startswith("in")
    assert is_in_use(tmp_path)
    (tmp_path / ".run.json.x.part").write_text("half")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not is_in_use(tmp_path)
    with alone(tmp_path):
        assert not list(tmp_path.glob("*.part"))
        assert is_in_use(tmp_path)
    assert not is_in_use(tmp_path)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PfrnnError, match=r"cannot be written .*--results"):
        with alone(tmp_path / "file" / "job"):
            pass


def test_a_look_leaves_nothing_behind(tmp_path):
    assert not is_in_use(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", OUTPUTS)
def test_a_job_is_finished_by_its_own_record_and_all_its_files(tmp_path, kind):
    job = f"{kind}/air/lstm"
    selection = {"chosen": 3} if kind == "final" else None
    identity = identity_of({"lr": 0.1}, "data", "pfrnn.study.seeding", selection)
    (tmp_path / job).mkdir(parents=True)
    assert not is_finished(tmp_path, job, identity)
    for name in OUTPUTS[kind]:
        (tmp_path / job / name).write_text("x")
    assert not is_finished(tmp_path, job, identity)
    record = tmp_path / job / "run.json"
    write_json(record, identity | {"wall_seconds": 3})
    assert is_finished(tmp_path, job, identity)
    for other in (
        identity_of({"lr": 0.2}, "data", "pfrnn.study.seeding", selection),
        identity_of({"lr": 0.1}, "other", "pfrnn.study.seeding", selection),
        identity_of({"lr": 0.1}, "data", "pfrnn.study.files", selection),
        identity_of({"lr": 0.1}, "data", "pfrnn.study.seeding", {"chosen": 4}),
    ):
        assert not is_finished(tmp_path, job, other)
    (tmp_path / job / "best.pt").unlink()
    assert not is_finished(tmp_path, job, identity)
    remove_records(tmp_path, job)
    assert list((tmp_path / job).iterdir()) == []


def test_the_cure_names_the_folder_and_its_job(tmp_path):
    folder = tmp_path / "final" / "air" / "lstm-fixed-0123456789"
    assert f"remove {folder} and" in again(folder)
    assert "`pfrnn final final/air/lstm-fixed-0123456789`" in again(folder)
