"""Resuming: bit for bit after a kill, an orderly stop on a signal, and damaged checkpoints."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from pfrnn.study.train import checkpoint
from pfrnn.study.train.block import train_block
from pfrnn.study.train.checkpoint import BlockState
from pfrnn.study.train.trainer import BlockTrainer

from . import toys

# A checkpoint after every step; the same settings whether killed or not. Dropout, so that its
# numbers, too, must come again.
PATCH = {
    "network": {"dropout": 0.3},
    "study": {"datasets": ["toy_regression"], "variants": ["pf_lstm"]},
    "execution": {"checkpoint_minutes": 1e-6},
    "training": {"max_epochs": 4},
}
CHILD = """
import sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.study.train import toys, test_resume
from pfrnn.study.train.trainer import BlockTrainer
from pfrnn.errors import PfrnnError
from pfrnn.study.train.block import train_block
from pfrnn.study.train.checkpoint import BlockState
from pfrnn.study.train.places import Places
save = BlockTrainer.save
def slow(self):
    save(self)
    print("saved", flush=True)
    time.sleep({pause})
BlockTrainer.save = slow
plan = toys.study(test_resume.PATCH)
try:
    train_block(plan, plan.blocks[0].id, Places(Path({results!r}), Path({prepared!r})))
except PfrnnError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


def child(results: Path, prepared: Path, pause: float) -> subprocess.Popen[str]:
    code = CHILD.format(
        root=str(toys.ROOT), pause=pause, results=str(results), prepared=str(prepared)
    )
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=toys.ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """An uninterrupted run: plan, places, block folder."""
    tmp_path = tmp_path_factory.mktemp("unbroken")
    plan = toys.study(PATCH)
    places = toys.prepared_places(plan, tmp_path)
    train_block(plan, plan.blocks[0].id, places)
    return plan, places, places.results / plan.blocks[0].id


def same_numbers(first: Path, second: Path) -> bool:
    """Equal bits in the best states and in every column but the times."""
    a, b = (torch.load(folder / "best.pt") for folder in (first, second))
    for stack in a:
        assert a[stack].keys() == b[stack].keys()
        for name in a[stack]:
            if not torch.equal(a[stack][name], b[stack][name]):
                return False
    if (first / "members.csv").read_bytes() != (second / "members.csv").read_bytes():
        return False
    return _without_times(first) == _without_times(second)


def _without_times(folder: Path) -> list[list[str]]:
    rows = [line.split(",") for line in (folder / "history.csv").read_text().splitlines()]
    place = rows[0].index("seconds")
    return [row[:place] + row[place + 1 :] for row in rows]


@pytest.mark.parametrize("saves", [1, 8])
def test_killed_run_resumes_bit_for_bit(unbroken, tmp_path, saves):
    plan, places, expected = unbroken
    process = child(tmp_path, places.prepared, pause=0.2)
    for _ in range(saves):
        assert process.stdout.readline() == "saved\n"
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    folder = tmp_path / plan.blocks[0].id
    assert (folder / "checkpoint.pt").exists()
    assert not (folder / "run.json").exists()
    train_block(plan, plan.blocks[0].id, places._replace(results=tmp_path))
    assert same_numbers(expected, folder)
    assert not list(folder.glob("checkpoint*"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_saves_and_exits_with_its_code(unbroken, tmp_path, number, code):
    plan, places, expected = unbroken
    process = child(tmp_path, places.prepared, pause=0.05)
    assert process.stdout.readline() == "saved\n"
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert "state saved in" in errors.splitlines()[-1]
    folder = tmp_path / plan.blocks[0].id
    train_block(plan, plan.blocks[0].id, places._replace(results=tmp_path))
    assert same_numbers(expected, folder)


def test_comparison_sees_one_changed_bit(unbroken, tmp_path):
    """The equality above can fail: a mutant of the record with one bit changed is caught."""
    _, _, expected = unbroken
    for name in ("members.csv", "history.csv"):
        (tmp_path / name).write_bytes((expected / name).read_bytes())
    state = torch.load(expected / "best.pt")
    weight = state["parameters"]["core.cell.weight_recurrent"]
    weight.view(torch.int32)[0, 0, 0] ^= 1
    torch.save(state, tmp_path / "best.pt")
    assert not same_numbers(expected, tmp_path)


@pytest.mark.parametrize("damage", ["cut", "empty", "of other parameters"])
def test_a_checkpoint_that_is_no_use_costs_time_alone(unbroken, tmp_path, caplog, damage):
    plan, places, expected = unbroken
    path = tmp_path / plan.blocks[0].id / "checkpoint.pt"
    path.parent.mkdir(parents=True)
    checkpoint.save(path, BlockState([], []), "0123456789")
    if damage != "of other parameters":
        path.write_bytes(path.read_bytes()[:-200] if damage == "cut" else b"")
    train_block(plan, plan.blocks[0].id, places._replace(results=tmp_path))
    words = damage if "other" in damage else "cannot be read"
    assert words in caplog.text
    assert "training starts again" in caplog.text
    assert same_numbers(expected, path.parent)
    assert not path.exists()


def test_unfinished_rerun_does_not_look_finished(unbroken, tmp_path, monkeypatch):
    plan, places, _ = unbroken
    folder = tmp_path / plan.blocks[0].id
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")

    def fail(self):
        raise RuntimeError("stopped here")

    monkeypatch.setattr(BlockTrainer, "run", fail)
    with pytest.raises(RuntimeError, match="stopped here"):
        train_block(plan, plan.blocks[0].id, places._replace(results=tmp_path))
    assert not (folder / "run.json").exists()


def test_history_can_be_watched(tmp_path, monkeypatch):
    plan = toys.study(PATCH, {"execution": {"checkpoint_minutes": 60}})
    places = toys.prepared_places(plan, tmp_path)
    monkeypatch.setattr("pfrnn.study.train.trainer._HISTORY_SECONDS", 0.0)
    rows = []
    publish = BlockTrainer._publish

    def watched(self):
        publish(self)
        rows.append(len((self.folder / "history.csv").read_text().splitlines()) - 1)

    monkeypatch.setattr(BlockTrainer, "_publish", watched)
    train_block(plan, plan.blocks[0].id, places)
    assert rows == [2, 4, 6, 8]


def test_checkpoint_interval_is_obeyed(tmp_path, monkeypatch):
    plan = toys.study(PATCH, {"execution": {"checkpoint_minutes": 60}})
    places = toys.prepared_places(plan, tmp_path)
    saved = []
    monkeypatch.setattr(BlockTrainer, "save", lambda self: saved.append(time.monotonic()))
    train_block(plan, plan.blocks[0].id, places)
    assert len(saved) == 1  # the end alone


def test_a_kill_after_training_costs_no_training(unbroken, tmp_path, monkeypatch):
    """Killed while it writes its records, a job has its whole training in the checkpoint."""
    plan, places, expected = unbroken
    places = places._replace(results=tmp_path)

    def killed(*anything):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pfrnn.study.train.job.write_members", killed)
        with pytest.raises(KeyboardInterrupt):
            train_block(plan, plan.blocks[0].id, places)
    folder = tmp_path / plan.blocks[0].id
    assert (folder / "checkpoint.pt").exists()
    monkeypatch.setattr(BlockTrainer, "_epoch", killed)
    train_block(plan, plan.blocks[0].id, places)
    assert same_numbers(expected, folder)


def test_checkpoints_may_lie_on_a_lasting_disk(unbroken, tmp_path, monkeypatch):
    """A pod's disk ends with the pod: the next one finds the checkpoint by what it trains."""
    plan, places, expected = unbroken
    lasting = tmp_path / "lasting"
    monkeypatch.setenv("PFRNN_CHECKPOINTS", str(lasting))
    process = child(tmp_path / "first", places.prepared, pause=0.2)
    for _ in range(4):
        assert process.stdout.readline() == "saved\n"
    process.kill()
    process.wait()
    assert len(list(lasting.glob("*/checkpoint.pt"))) == 1
    train_block(plan, plan.blocks[0].id, places._replace(results=tmp_path / "second"))
    assert same_numbers(expected, tmp_path / "second" / plan.blocks[0].id)
    assert list(lasting.rglob("checkpoint*")) == []
