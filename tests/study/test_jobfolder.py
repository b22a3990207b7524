"""One process at a time in a job's folder; finished work survives the loss of its records."""

import itertools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pfrnn.errors import PfrnnError, RecordError
from pfrnn.study import jobfolder
from pfrnn.study.files import write_json
from pfrnn.study.jobfolder import alone, break_seal, check_seal, seal, unseal
from pfrnn.study.records import OUTPUTS

ROOT = Path(__file__).resolve().parents[2]
IDENTITY = {"parameters": "a", "data": "b", "source": "c"}
NAMES = ("run.json", "members.csv", "best.pt")
# Enters the folder, notes when, works a while, notes when it leaves.
WORKER = """
import sys, time
from pathlib import Path
from pfrnn.study.jobfolder import alone
with alone(Path(sys.argv[1]), poll_seconds=0.02):
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
    with pytest.raises(PfrnnError, match="still works here after 0 s"):
        with alone(tmp_path, wait_seconds=0, say=lambda _: None):
            pass
    (tmp_path / ".run.json.x.part").write_text("half")
    process.send_signal(signal.SIGKILL)
    process.wait()
    with alone(tmp_path, wait_seconds=0):
        assert not list(tmp_path.glob("*.part"))


def test_the_waiter_is_told_who_works_there(tmp_path):
    process = worker(tmp_path, 0.5)
    assert process.stdout.readline().startswith("in")
    said = []
    with alone(tmp_path, say=said.append, poll_seconds=0.02):
        assert process.stdout.readline().startswith("out")
    process.wait()
    assert len(said) == 1
    assert f"process {process.pid} works here" in said[0]


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PfrnnError, match=r"can't be written .*--results"):
        with alone(tmp_path / "file" / "job"):
            pass


def test_a_file_system_without_locks_goes_on(tmp_path, monkeypatch):
    def refuse(handle, how):
        raise OSError(jobfolder.errno.ENOLCK, "No locks available")

    monkeypatch.setattr(jobfolder.fcntl, "flock", refuse)
    said = []
    with alone(tmp_path, say=said.append):
        pass
    assert "no locks" in said[0]


@pytest.fixture
def finished(tmp_path):
    """A finished job's folder, sealed."""
    write_json(tmp_path / "run.json", {"id": "job"})
    (tmp_path / "members.csv").write_text("member\n0\n")
    (tmp_path / "history.csv").write_text("member,epoch,seconds\n0,1,0.53\n")
    (tmp_path / "best.pt").write_bytes(bytes(range(256)) * 64)
    (tmp_path / "checkpoint.pt").write_bytes(b"not kept")
    assert seal(tmp_path, IDENTITY, NAMES)
    return tmp_path


@pytest.mark.parametrize("lost", ["before", "meanwhile"])
def test_records_without_an_output_are_not_sealed(finished, lost, monkeypatch):
    """A worker that outlived its Snakemake seals while the next one removes the outputs."""
    members = finished / "members.csv"
    if lost == "before":
        members.unlink()
    else:
        linked = jobfolder._second_name

        def late(path, name):
            members.unlink(missing_ok=True)
            linked(path, name)

        monkeypatch.setattr(jobfolder, "_second_name", late)
    assert not seal(finished, IDENTITY, NAMES)
    assert not (finished / jobfolder.SEALED).exists()
    assert not unseal(finished, IDENTITY, NAMES)
    assert (finished / "best.pt").is_file()


def test_a_seal_that_lacks_an_output_is_not_used(finished):
    assert not unseal(finished, IDENTITY, (*NAMES, "test.csv"))
    assert unseal(finished, IDENTITY, NAMES)


def test_what_a_finished_job_leaves_is_what_the_rules_ask_for():
    """One list for the seal, one in each rule."""
    for kind, rule in (("search", "train"), ("final", "finalise")):
        text = (ROOT / "workflow" / "rules" / f"{rule}.smk").read_text(encoding="utf-8")
        asked = text.partition("output:")[2].partition("params:")[0]
        assert sorted(re.findall(r"/([a-z]+\.[a-z]+)\"", asked)) == sorted(OUTPUTS[kind])


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_deleted_records_are_put_back(finished):
    (finished / "checkpoint.pt").unlink()
    before = contents(finished)
    for path in list(finished.iterdir()):
        if path.is_file():
            path.unlink()
    assert unseal(finished, IDENTITY, NAMES)
    assert contents(finished) == before
    # And again: the second names are there still.
    (finished / "best.pt").unlink()
    assert unseal(finished, IDENTITY, NAMES)
    assert contents(finished) == before


def test_the_seal_costs_no_space_and_is_found_by_nobody_else(finished):
    assert (finished / "best.pt").stat().st_nlink == 2
    assert unseal(finished, IDENTITY, NAMES)
    assert (finished / "best.pt").stat().st_nlink == 2
    assert [path.parent for path in finished.rglob("run.json")] == [finished]


@pytest.mark.parametrize("key", IDENTITY)
def test_other_parameters_data_or_source_are_trained(finished, key):
    assert not unseal(finished, IDENTITY | {key: "other"}, NAMES)


@pytest.mark.parametrize("damage", ["cut", "gone", "seal", "none"])
def test_a_damaged_seal_is_not_used(finished, damage):
    kept = finished / jobfolder.SEALED
    if damage == "cut":
        with (finished / "best.pt").open("r+b") as target:  # in place: both names
            target.truncate(100)
    elif damage == "gone":
        (kept / "members.csv.kept").unlink()
    elif damage == "seal":
        (kept / jobfolder.SEAL).write_text("{")
    assert unseal(finished, IDENTITY, NAMES) == (damage == "none")


def test_without_hard_links_the_seal_is_a_copy(finished, monkeypatch):
    def refuse(*names):
        raise OSError("not supported")

    monkeypatch.setattr(jobfolder.os, "link", refuse)
    seal(finished, IDENTITY, NAMES)
    (finished / "run.json").unlink()
    assert unseal(finished, IDENTITY, NAMES)
    assert (finished / "run.json").is_file()


@pytest.mark.parametrize("how", ["in place", "replaced"])
def test_a_record_that_was_changed_is_refused(finished, how):
    check_seal(finished, *NAMES, "never_written.csv")
    members = finished / "members.csv"
    if how == "replaced":  # the second name keeps the old bytes
        members.unlink()
    members.write_text("member\n1\n")
    check_seal(finished, "run.json", "best.pt")
    with pytest.raises(RecordError, match=r"members.csv: changed since .* expected \w{12} by"):
        check_seal(finished, *NAMES)
    # Put back where a good copy is left; else the job trains, and seals anew.
    assert unseal(finished, IDENTITY, NAMES) == (how == "replaced")


def test_records_without_a_seal_pass(finished):
    """DVC brings records and no seals."""
    break_seal(finished)
    (finished / "run.json").write_text("{}")
    (finished / "members.csv").write_text("member\n1\n")
    check_seal(finished, *NAMES)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"sha256": {}}', '{"sha256": 1}'])
def test_a_seal_that_cannot_be_read_vouches_for_nothing(finished, text):
    path = finished / jobfolder.SEALED / jobfolder.SEAL
    path.write_text(text)
    with pytest.raises(RecordError, match=r"seal.json: expected the digests .* remove \S+finished"):
        check_seal(finished)
    path.unlink()
    check_seal(finished)


@pytest.mark.parametrize("how", ["in place", "replaced"])
def test_a_run_record_that_was_changed_is_refused(finished, how):
    if how == "replaced":
        (finished / "run.json").unlink()
    (finished / "run.json").write_text("{}")
    for names in ((), NAMES):
        with pytest.raises(RecordError, match=r"run.json: changed since its job finished"):
            check_seal(finished, *names)
    # At work: a job removes its record before it trains, and the seal when it writes a new one.
    (finished / "run.json").unlink()
    (finished / "members.csv").write_text("member\n1\n")
    check_seal(finished, *NAMES)


def test_a_seal_says_nothing_of_another_trainings_records(finished):
    """`dvc checkout` lays those of another commit over them, and leaves the seal."""
    for name, text in (("history.csv", "1\n"), ("run.json", "{}"), ("members.csv", "1\n")):
        (finished / name).unlink()
        (finished / name).write_text(text)
    check_seal(finished, *NAMES, "history.csv")


@pytest.mark.parametrize(
    ("job", "command"), [("search/air/lstm/h1", "train"), ("final/air/lstm", "final")]
)
def test_the_cure_names_the_command(job, command):
    assert f"`pfrnn {command} {job}`" in jobfolder.again(Path("results/quick") / job)


@pytest.mark.parametrize(
    ("record", "history"),
    [
        ("{}", "member,epoch,seconds\n0,1"),
        ("{}", "member,epoch,seconds\n0,1\n"),
        ("{}", ""),
        ("{", "member,epoch,seconds\n0,1,0.61\n"),
        ("[]", "member,epoch,seconds\n0,1,0.61\n"),
    ],
)
def test_a_cut_history_beside_an_edited_record_is_no_other_training(finished, record, history):
    for name, text in (("history.csv", history), ("run.json", record)):
        (finished / name).unlink()
        (finished / name).write_text(text)
    with pytest.raises(RecordError, match=r"run.json: changed since its job finished"):
        check_seal(finished)
