"""The smoke tier on a real one-node Slurm with four fake GPUs, against the same tier run locally.

`make test-all` runs this where Slurm is installed. It needs root, slurm-wlm and munge, and never
touches a Slurm configuration that isn't its own. Two jobs are frozen (SIGSTOP)
at their first checkpoint: one is then cancelled, the other runs over its time limit.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "workflow"))

from _copy import Copy
from _once import EPOCHS, undisturbed

HERE = Path(__file__).parent
COMMANDS = ("slurmctld", "slurmd", "sinfo", "munge")
REQUIRED = os.environ.get("PFRNN_TEST_SLURM") == "1"
# A checkpoint after every step, so that a job can be met in the middle; it changes no result.
OVERLAY = EPOCHS + "execution: {checkpoint_minutes: 1.0e-6}\n"
OPTIONS = ("--configfile", "overlay.yaml", "--config", "tier=smoke")
CANCELLED, OVER_TIME = "pf_gru", "pf_lstm"
FAST = (
    "--workflow-profile",
    "workflow/profiles/slurm",
    # The tests' Slurm keeps no accounts; it remembers finished jobs for an hour.
    "--slurm-status-command",
    "squeue",
    "--slurm-init-seconds-before-status-checks",
    "2",
    "--seconds-between-status-checks",
    "2",
    "--latency-wait",
    "10",
    # One minute is the shortest limit; a second attempt gets two. The others must not run over
    # theirs on a machine that has other things to do.
    "--set-resources",
    f"train:runtime=attempt if {OVER_TIME!r} in wildcards.variant else 10",
    "train:slurm_extra=''",
)
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not REQUIRED, reason="starts Slurm's daemons: set PFRNN_TEST_SLURM=1"),
]


class SlurmJob(NamedTuple):
    """What `scontrol show job` says about one job."""

    number: str
    comment: str
    state: str
    device: str
    minutes: float
    start: datetime
    end: datetime


class Outcome(NamedTuple):
    """Both runs, finished."""

    local: Path
    slurm: Path
    output: str
    jobs: list[SlurmJob]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Path]:
    """A running Slurm of our own."""
    missing = [name for name in COMMANDS if shutil.which(name) is None]
    missing += [] if Path("/usr/sbin/munged").exists() else ["munged"]
    if missing:
        pytest.fail(
            f"{', '.join(missing)} not installed: "
            "apt-get install --no-install-recommends slurm-wlm munge"
        )
    if os.getuid() != 0:
        pytest.fail("needs root: slurmd starts jobs as other users")
    folder = Path(f"/tmp/pfrnn-slurm-{os.getpid()}")
    started = subprocess.run([HERE / "start", folder], capture_output=True, text=True, check=False)
    if started.returncode:
        pytest.fail(started.stderr)
    try:
        yield folder
    finally:
        subprocess.run(["scancel", "--user=root", "--state=RUNNING"], check=False)
        subprocess.run(["scancel", "--user=root", "--state=PENDING"], check=False)
        time.sleep(1)
        subprocess.run([HERE / "stop", folder], check=True)
        shutil.rmtree(folder, ignore_errors=True)


def run(copy: Copy, *arguments: str) -> subprocess.Popen[str]:
    (copy.folder / "overlay.yaml").write_text(OVERLAY)
    environment = {k: v for k, v in os.environ.items() if k not in ("MLFLOW_TRACKING_URI",)}
    return subprocess.Popen(
        [sys.executable, "-m", "snakemake", *arguments, *OPTIONS],
        cwd=copy.folder,
        env=environment | {"OMP_NUM_THREADS": "1"},
        stdout=(copy.folder / "output.txt").open("w"),
        stderr=subprocess.STDOUT,
        text=True,
    )


def freeze(copy: Copy, variant: str, found: dict[str, int]) -> None:
    """Stop the variant's training process at its first checkpoint; note its process id."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        search = copy.folder / "results" / "smoke" / "search" / "maze10" / variant
        for checkpoint in search.glob("*/checkpoint.pt"):
            pid = int((checkpoint.parent / ".lock").read_text())
            os.kill(pid, signal.SIGSTOP)
            found[variant] = pid
            return
        time.sleep(0.003)


def slurm_id(pid: int) -> str:
    environment = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return next(e.partition("=")[2] for e in environment if e.startswith("SLURM_JOB_ID="))


@pytest.fixture(scope="module")
def outcome(cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Run the tier on Slurm and disturb two jobs; it has run locally, or does meanwhile."""
    slurm = Copy(tmp_path_factory.mktemp("slurm"))
    frozen: dict[str, int] = {}
    watchers = [
        threading.Thread(target=freeze, args=(slurm, variant, frozen))
        for variant in (CANCELLED, OVER_TIME)
    ]
    main = run(slurm, *FAST)
    devices: dict[str, str] = {}
    watchers.append(threading.Thread(target=note_devices, args=(main, devices)))
    for watcher in watchers:
        watcher.start()
    for watcher in watchers[:2]:
        watcher.join()
    assert set(frozen) == {CANCELLED, OVER_TIME}, (slurm.folder / "output.txt").read_text()
    subprocess.run(["scancel", slurm_id(frozen[CANCELLED])], check=True)
    # The frozen job's minute passes meanwhile.
    local = undisturbed(tmp_path_factory)
    code = main.wait(timeout=900)
    assert code == 0, (slurm.folder / "output.txt").read_text()
    output = (slurm.folder / "output.txt").read_text()
    watchers[2].join()
    return Outcome(local.folder, slurm.folder, output, slurm_jobs(devices))


def shown_jobs() -> list[str]:
    """One line a job."""
    command = ["scontrol", "show", "job", "-d", "-o"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def note_devices(main: subprocess.Popen[str], devices: dict[str, str]) -> None:
    """Note each job's device while it runs; Slurm forgets it at the job's end."""
    while main.poll() is None:
        for line in shown_jobs():
            held = re.search(r"JobId=(\d+) .*gpu:1\(IDX:(\d)\)", line)
            if held:
                devices[held[1]] = held[2]
        time.sleep(1)


def slurm_jobs(devices: dict[str, str]) -> list[SlurmJob]:
    jobs = []
    for line in shown_jobs():
        fields = dict(re.findall(r"(\w+)=(\S*)", line))
        hours, minutes, seconds = map(int, fields["TimeLimit"].split(":"))
        jobs.append(
            SlurmJob(
                number=fields["JobId"],
                comment=fields.get("Comment", ""),
                state=fields["JobState"],
                device=devices.get(fields["JobId"], ""),
                minutes=hours * 60 + minutes + seconds / 60,
                start=datetime.fromisoformat(fields["StartTime"]),
                end=datetime.fromisoformat(fields["EndTime"]),
            )
        )
    return jobs


def training(outcome: Outcome, variant: str = "") -> list[SlurmJob]:
    """The submissions of training jobs and finals, in their order."""
    chosen = [
        job
        for job in outcome.jobs
        if re.match(
            rf"rule_(train|finalise)_wildcards_.*{variant and f'_{variant}[_-]'}", job.comment
        )
    ]
    return sorted(chosen, key=lambda job: int(job.number))


def test_every_training_job_gets_one_gpu(outcome) -> None:
    jobs = training(outcome)
    assert len(jobs) == 10  # 4 blocks, 4 finals, 2 second attempts
    assert all(job.device for job in jobs)


def test_jobs_at_the_same_time_have_distinct_devices(outcome) -> None:
    met = 0
    for one, other in combinations(training(outcome), 2):
        if one.start < other.end and other.start < one.end:
            met += 1
            assert one.device != other.device, (one, other)
    assert met >= 3


def test_each_job_sees_its_own_device_alone(outcome) -> None:
    devices = {job.device for job in training(outcome)}
    logs = [
        log.read_text()
        for kind in ("search", "final")
        for log in (outcome.slurm / "results" / "smoke" / "logs" / kind).rglob("*.log")
    ]
    assert len(logs) == 8
    seen = [
        re.search(r"assigned by the scheduler .*CUDA_VISIBLE_DEVICES=(\d)$", log, re.M)
        for log in logs
    ]
    assert all(seen), logs
    assert {match[1] for match in seen if match} <= devices
    assert len({match[1] for match in seen if match}) >= 2


def test_a_cancelled_job_is_tried_again_and_goes_on(outcome) -> None:
    first, second = (j for j in training(outcome, CANCELLED) if "rule_train" in j.comment)
    assert (first.state, second.state) == ("CANCELLED", "COMPLETED")
    assert "going on from" in log_of(outcome, CANCELLED)


def test_a_job_over_its_limit_gets_more_time_and_goes_on(outcome) -> None:
    first, second = (j for j in training(outcome, OVER_TIME) if "rule_train" in j.comment)
    assert (first.state, first.minutes) == ("TIMEOUT", 1)
    assert (second.state, second.minutes) == ("COMPLETED", 2)
    assert "going on from" in log_of(outcome, OVER_TIME)


def log_of(outcome: Outcome, variant: str) -> str:
    folder = outcome.slurm / "results" / "smoke" / "logs" / "search" / "maze10" / variant
    (log,) = folder.iterdir()
    return log.read_text()


def test_results_equal_the_local_runs(outcome) -> None:
    def rows(folder: Path) -> list[dict[str, str]]:
        with (folder / "results" / "smoke" / "results.csv").open() as source:
            return [
                {k: v for k, v in row.items() if not k.endswith("_seconds")}
                for row in csv.DictReader(source)
            ]

    assert rows(outcome.slurm) == rows(outcome.local)
    assert len(rows(outcome.local)) >= 8


def test_another_slurms_configuration_is_not_touched(cluster, tmp_path) -> None:
    foreign = tmp_path / "slurm.conf"
    foreign.write_text("ClusterName=theirs\n")
    done = subprocess.run(
        [HERE / "start", tmp_path / "pfrnn-slurm-x"],
        env=os.environ | {"PFRNN_SLURM_ETC": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "isn't from this test" in done.stderr
    assert foreign.read_text() == "ClusterName=theirs\n"
