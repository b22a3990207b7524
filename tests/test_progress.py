from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from pfrnn.progress import JobState, job_state, last_line, seconds_left

LOGGED = Path(__file__).parents[1] / "workflow" / "scripts" / "logged"
JOB = "search/air/lstm/h1-k0-b1-0000000000"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "logs" / f"{JOB}.log"
    path.parent.mkdir(parents=True)
    return path


def test_states_of_a_job(tmp_path: Path, log: Path) -> None:
    assert job_state(tmp_path, JOB) == JobState(JOB, "waiting")
    log.write_text("epoch 1\nno space left on device\n")
    assert job_state(tmp_path, JOB) == JobState(JOB, "failed", "no space left on device")
    record = tmp_path / JOB / "run.json"
    record.parent.mkdir(parents=True)
    record.write_text('{"wall_seconds": 2.5}')
    assert job_state(tmp_path, JOB) == JobState(JOB, "done", "", 2.5)


def test_a_running_job_is_known_by_its_lock_and_a_killed_one_by_its_absence(
    tmp_path: Path, log: Path
) -> None:
    process = subprocess.Popen(
        ["bash", LOGGED, log, "bash", "-c", "echo epoch 3; exec sleep 60"], start_new_session=True
    )
    try:
        deadline = time.monotonic() + 20
        while not (log.exists() and log.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert job_state(tmp_path, JOB) == JobState(JOB, "running", "epoch 3")
    finally:
        # The whole group: the wrapper and the job that it started.
        subprocess.run(["kill", "-KILL", "--", f"-{process.pid}"], check=True)
        process.wait()
    assert job_state(tmp_path, JOB).state == "failed"


def test_the_wrapper_shows_the_logs_last_line_and_passes_the_code_on(log: Path) -> None:
    done = subprocess.run(
        ["bash", LOGGED, log, "bash", "-c", "printf '10%%\\r20%%\\n'; echo the reason >&2; exit 3"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"{log}: the reason\n"
    assert log.read_text().endswith("20%\nthe reason\n")


def test_the_wrapper_is_silent_about_a_success(log: Path) -> None:
    done = subprocess.run(["bash", LOGGED, log, "echo", "fine"], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert log.read_text() == "fine\n"


def test_last_line_of_a_progress_bar_and_of_nothing(log: Path) -> None:
    log.write_bytes(b"start\r 10%\r 20%\r")
    assert last_line(log) == "20%"
    log.write_bytes(b"")
    assert last_line(log) == ""


def test_time_left_by_the_mean_of_finished_jobs() -> None:
    states = [JobState("a", "done", "", 10.0), JobState("b", "done", "", 20.0)]
    assert seconds_left(states) == 0
    states += [JobState("c", "running"), JobState("d", "waiting"), JobState("e", "failed")]
    assert seconds_left(states) == 45.0
    assert seconds_left(states, at_once=3) == 15.0
    assert seconds_left([JobState("a", "waiting")]) is None
