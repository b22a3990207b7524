"""Full disk, read-only disk, deleted records: a clear error or a repair, and no wrong result."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "workflow"))

from _copy import Copy

from pfrnn.study.plan import load_plan

pytestmark = pytest.mark.nightly


class Bench:
    """A working copy with prepared data and one block trained without disturbance."""

    def __init__(self, folder: Path) -> None:
        self.copy = Copy(folder)
        self.plan = load_plan(folder / "params.yaml", "smoke")
        self.block = next(b.id for b in self.plan.blocks if b.variant == "gru")
        prepared = f"data/prepared/{self.plan.prepared_id('maze10')}"
        done = self.pfrnn("prepare", "maze10", "--tier", "smoke", "--out", prepared)
        assert done.returncode == 0, done.stderr
        self.undisturbed = folder / "undisturbed"
        done = self.train(self.undisturbed)
        assert done.returncode == 0, done.stderr

    def pfrnn(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pfrnn", *arguments],
            cwd=self.copy.folder,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def train(self, results: Path) -> subprocess.CompletedProcess[str]:
        return self.pfrnn("train", self.block, "--tier", "smoke", "--results", str(results))

    def equal(self, results: Path) -> bool:
        """Whether a block's numbers are the undisturbed one's, bit for bit."""
        return all(
            (results / self.block / name).read_bytes()
            == (self.undisturbed / self.block / name).read_bytes()
            for name in ("members.csv", "best.pt")
        )


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"))


class Disk:
    """A small file system in memory."""

    def __init__(self, folder: Path, size: str) -> None:
        self.folder = folder
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "pfrnn", folder], check=True)

    def remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", self.folder], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if os.getuid() != 0:
        pytest.skip("needs root, to mount a small tmpfs")
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        mounted = Disk(folder, "24k")
    except subprocess.CalledProcessError:
        pytest.skip(
            "this machine doesn't let root mount a tmpfs (a container without CAP_SYS_ADMIN)"
        )
    yield mounted
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_is_named_and_the_job_goes_on_afterwards(bench, disk) -> None:
    done = bench.train(disk.folder)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "No space left on device" in last
    assert "run again" in last
    assert "Traceback" not in done.stderr
    folder = disk.folder / bench.block
    assert not (folder / "run.json").exists()
    assert list(folder.glob(".*.part")) == []
    disk.remount("size=4m")
    done = bench.train(disk.folder)
    assert done.returncode == 0, done.stderr
    assert bench.equal(disk.folder)


def test_a_read_only_disk_is_named(bench, disk) -> None:
    disk.remount("ro")
    done = bench.train(disk.folder)
    disk.remount("rw,size=4m")
    assert done.returncode == 1
    assert "cannot be written (Read-only file system)" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert bench.train(disk.folder).returncode == 0
    assert bench.equal(disk.folder)


@pytest.mark.parametrize("name", ["run.json", "best.pt"])
def test_a_deleted_file_is_made_again(bench, tmp_path, name) -> None:
    results = Path(shutil.copytree(bench.undisturbed, tmp_path / "moved"))
    assert "finished before" in bench.train(results).stdout
    (results / bench.block / name).unlink()
    assert bench.train(results).returncode == 0
    assert bench.equal(results)
