from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

from pfrnn.study.cli import main
from pfrnn.study.jobfolder import alone
from pfrnn.study.plan import load_plan
from pfrnn.study.progress import (
    ENDED_WELL,
    JobState,
    device_of,
    job_state,
    job_states,
    last_line,
    seconds_left,
)

LOGGED = Path(__file__).parents[2] / "workflow" / "scripts" / "logged"
JOB = "search/air/lstm/h1-k0-b1-0000000000"


def state_of(results: Path, job: str = JOB) -> JobState:
    """The state of a job that needs nothing and whose records are whole."""
    return job_state(results, job, (), lambda: None)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "logs" / f"{JOB}.log"
    path.parent.mkdir(parents=True)
    return path


def test_states_of_a_job(tmp_path: Path, log: Path) -> None:
    assert state_of(tmp_path) == JobState(JOB, "waiting")
    log.write_text("")  # its process has only just started
    assert state_of(tmp_path) == JobState(JOB, "waiting")
    log.write_text("epoch 1\nno space left on device\n")
    assert state_of(tmp_path) == JobState(JOB, "failed", "no space left on device")
    with alone(tmp_path / JOB):
        assert state_of(tmp_path) == JobState(JOB, "running", "no space left on device")
        log.unlink()
        assert state_of(tmp_path) == JobState(JOB, "running", device=None)
    assert state_of(tmp_path).state == "waiting"
    (tmp_path / JOB / "run.json").write_text('{"wall_seconds": 2.5}')
    assert state_of(tmp_path) == JobState(JOB, "done", "", 2.5)


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
    assert log.read_text() == f"fine\n{ENDED_WELL}\n"


def test_a_record_that_was_removed_after_a_success_makes_no_failure(
    tmp_path: Path, log: Path
) -> None:
    """To train a finished job again one removes its folder; its log stays."""
    subprocess.run(["bash", LOGGED, log, "echo", "epoch 9"], check=True)
    assert state_of(tmp_path) == JobState(JOB, "waiting")
    # The next start empties the log.
    subprocess.run(["bash", LOGGED, log, "bash", "-c", "echo no; exit 1"], check=False)
    assert state_of(tmp_path) == JobState(JOB, "failed", "no")


def test_a_log_from_before_what_a_final_needs_is_no_failure_of_it(tmp_path: Path) -> None:
    plan = load_plan("params.yaml", "smoke")
    cell = plan.cells[0]
    records = [tmp_path / block.id / "run.json" for block in cell.blocks]
    needs = [tmp_path / cell.selection_id, *records]
    log = tmp_path / "logs" / f"{cell.final_id}.log"
    for number, path in enumerate([*needs, log]):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}" if path in needs else "out of memory\n")
        os.utime(path, (1000.0 + number, 1000.0 + number))

    def state() -> JobState:
        return next(one for one in job_states(plan, tmp_path) if one.id == cell.final_id)

    assert state() == JobState(cell.final_id, "failed", "out of memory")
    for path in needs:
        before = path.stat().st_mtime
        os.utime(path, (2000.0, 2000.0))
        assert state() == JobState(cell.final_id, "waiting")
        path.unlink()
        assert state() == JobState(cell.final_id, "waiting")
        path.write_text("{}")
        os.utime(path, (before, before))
    assert state().state == "failed"


@pytest.mark.parametrize("said", ["finished before: job", "not imported: no answer"])
def test_the_wrapper_shows_what_a_user_should_see(log: Path, said: str) -> None:
    done = subprocess.run(["bash", LOGGED, log, "echo", said], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, f"{said}\n")


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


def test_the_device_of_a_job_is_what_it_printed_first(log: Path) -> None:
    log.write_text("leased 2; CUDA_VISIBLE_DEVICES=2\nepoch 1\n")
    assert device_of(log) == "2"
    log.write_text("no GPU found: running on the CPU; CUDA_VISIBLE_DEVICES=\nepoch 1\n")
    assert device_of(log) == ""


def test_status_counts_a_stand_in_that_ran(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Snakemake names it in a file of its own, which someone who types the command doesn't have."""
    line = ["status", "--tier", "quick", "--results", str(tmp_path)]
    assert main(line) == 0
    alone = capsys.readouterr().out
    assert alone.startswith("tier quick: 24 jobs:")
    assert "standing in" not in alone
    values = {"study": {"datasets": ["maze10", "air", "arem", "r52"]}}
    block = next(b for b in load_plan("params.yaml", "quick", values).blocks if b.dataset == "r52")
    log = tmp_path / "logs" / f"{block.id}.log"
    log.parent.mkdir(parents=True)
    log.write_text("killed\n")
    assert main(line) == 0
    output = capsys.readouterr().out
    assert output.startswith("tier quick: 32 jobs: 0 done, 0 running, 1 failed, 31 waiting\n")
    assert "among them r52, standing in where a set can't be had\n" in output
    assert f"failed  {block.id}\n    killed\n" in output
    mine = tmp_path / "mine.yaml"
    mine.write_text("study: {datasets: [maze10, air, arem, r52]}\n")
    assert main([*line, "--params", f"params.yaml,{mine}"]) == 0
    planned = capsys.readouterr().out
    assert planned.startswith("tier quick: 32 jobs:")
    assert "standing in" not in planned


def test_status_names_the_devices_in_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = load_plan("params.yaml", "smoke").blocks[:3]
    with contextlib.ExitStack() as running:
        for block, device in zip(blocks, ("0", "1", "1"), strict=True):
            path = tmp_path / "logs" / f"{block.id}.log"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"leased {device}; CUDA_VISIBLE_DEVICES={device}\nepoch 1\n")
            running.enter_context(alone(tmp_path / block.id))
        assert main(["status", "--tier", "smoke", "--results", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "3 running" in output
    assert "GPUs in use: 0: 1 job, 1: 2 jobs\n" in output


def test_status_needs_the_folder_that_it_is_told_to_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--tier", "smoke", "--results", str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_a_damaged_record_is_no_success(tmp_path: Path) -> None:
    folder = tmp_path / "final" / "air" / "lstm"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text('{"wall_seconds": 12.5, "thr')
    found = state_of(tmp_path, "final/air/lstm")
    assert found.state == "failed"
    assert "run.json: expected a JSON mapping, got not JSON" in found.note
    assert "`pfrnn final final/air/lstm`" in found.note
    for text in ("null", "[]", "5"):
        (folder / "run.json").write_text(text)
        assert state_of(tmp_path, "final/air/lstm").state == "failed"
    (folder / "run.json").write_text('{"wall_seconds": 12.5}')
    found = state_of(tmp_path, "final/air/lstm")
    assert (found.state, found.seconds) == ("done", 12.5)
