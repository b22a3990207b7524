"""DVC around the finished smoke tier, with the real tools."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


class Versioned:
    """A git and DVC repository made from a copy."""

    def __init__(self, source: Path, folder: Path) -> None:
        shutil.copytree(source, folder, symlinks=True)
        for name in ("dvc.yaml", ".dvcignore", ".gitignore"):
            shutil.copy(ROOT / name, folder)
        (folder / ".dvc").mkdir()
        for name in ("config", ".gitignore"):
            shutil.copy(ROOT / ".dvc" / name, folder / ".dvc")
        self.folder = folder
        self.run("git", "init", "-q")
        self.run("git", "config", "user.email", "someone@example.org")
        self.run("git", "config", "user.name", "Someone")
        self.commit("first")

    def run(self, *command: str) -> str:
        # `python` in the stage's script must be the one that runs the tests.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=os.environ | {"PATH": path, "OMP_NUM_THREADS": "1", "DVC_NO_ANALYTICS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=600,
        )
        if done.returncode:
            raise RuntimeError(f"{command}: {done.stdout}")
        return done.stdout

    def dvc(self, *arguments: str) -> str:
        return self.run(sys.executable, "-m", "dvc", *arguments)

    def commit(self, message: str) -> None:
        self.run("git", "add", "-A")
        self.run("git", "commit", "-q", "-m", message)


@pytest.fixture(scope="module")
def versioned(finished, tmp_path_factory: pytest.TempPathFactory) -> Versioned:
    """The finished smoke tier as the tier that params.yaml names, taken up by DVC."""
    repository = Versioned(finished.folder, tmp_path_factory.mktemp("dvc") / "repository")
    params = repository.folder / "params.yaml"
    params.write_text(params.read_text().replace("\ntier: gpu\n", "\ntier: smoke\n"))
    output = repository.dvc("repro")
    # The results are there already: DVC runs its three stages, Snakemake not one job.
    assert output.count("Nothing to be done") == 3
    repository.commit("results")
    return repository


def test_a_taken_up_study_is_up_to_date(versioned) -> None:
    assert "up to date" in versioned.dvc("status")
    assert "didn't change" in versioned.dvc("repro", "--dry")
    assert versioned.run("git", "status", "--porcelain") == ""


def test_a_changed_parameter_reaches_the_stages_that_it_touches(versioned) -> None:
    tier = versioned.folder / "workflow" / "tiers" / "smoke.yaml"
    before = tier.read_text()
    tier.write_text(before.replace("patience: 2", "patience: 3"))
    status = versioned.dvc("status")
    tier.write_text(before)
    assert "results:" in status
    params = versioned.folder / "params.yaml"
    before = params.read_text()
    params.write_text(before.replace("\n  alpha: 0.5", "\n  alpha: 0.4"))
    status = versioned.dvc("status")
    params.write_text(before)
    assert "results:" in status
    assert "data:" not in status
    assert "filter" in status
    assert "up to date" in versioned.dvc("status")


def test_a_clone_has_the_results_and_nothing_to_do(versioned, tmp_path: Path) -> None:
    """`dvc pull` from a folder, then Snakemake: with its metadata it knows that all is current."""
    store = tmp_path / "store"
    versioned.dvc("remote", "add", "--local", "-d", "here", str(store))
    versioned.dvc("push")
    clone = tmp_path / "clone"
    versioned.run("git", "clone", "-q", str(versioned.folder), str(clone))
    there = object.__new__(Versioned)
    there.folder = clone
    there.dvc("remote", "add", "--local", "-d", "here", str(store))
    there.dvc("pull")
    assert "up to date" in there.dvc("status")
    planned = there.run(sys.executable, "-m", "snakemake", "-n", "reports")
    assert "Nothing to be done" in planned
