"""A git and DVC repository around the finished smoke tier."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from _dryrun import dry_run

ROOT = Path(__file__).parents[2]


class Versioned:
    """A git and DVC repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of(cls, source: Path, folder: Path) -> Versioned:
        """Copy a finished study and make a repository of it."""
        shutil.copytree(source, folder, symlinks=True)
        for name in ("dvc.yaml", ".dvcignore", ".gitignore"):
            shutil.copy(ROOT / name, folder)
        ignored = shutil.ignore_patterns("cache", "tmp", "config.local")
        shutil.copytree(ROOT / ".dvc", folder / ".dvc", ignore=ignored)
        made = cls(folder)
        made.run("git", "init", "-q")
        made.name_author()
        made.commit("first")
        return made

    def clone(self, folder: Path) -> Versioned:
        """Clone with git; no data come with it."""
        self.run("git", "clone", "-q", str(self.folder), str(folder))
        made = Versioned(folder)
        made.name_author()
        return made

    def name_author(self) -> None:
        self.run("git", "config", "user.email", "someone@example.org")
        self.run("git", "config", "user.name", "Someone")

    @staticmethod
    def environment() -> dict[str, str]:
        # `python` in the stage's script must be the one that runs the tests.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        inherited = {
            key: value
            for key, value in os.environ.items()
            if key not in ("PFRNN_DATA_MIRROR", "MLFLOW_TRACKING_URI", "PYTHONPATH")
        }
        mine = {"PATH": path, "OMP_NUM_THREADS": "1", "DVC_NO_ANALYTICS": "1"}
        return inherited | mine

    def attempt(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment() | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=900,
        )

    def run(self, *command: str, **environment: str) -> str:
        done = self.attempt(*command, **environment)
        if done.returncode:
            raise RuntimeError(f"{command}: {done.stdout}")
        return done.stdout

    def dvc(self, *arguments: str, **environment: str) -> str:
        return self.run(sys.executable, "-m", "dvc", *arguments, **environment)

    def plan(self) -> str:
        """Dry-run bare Snakemake."""
        done = dry_run(["-n"], self.folder, self.environment())
        if done.returncode:
            raise RuntimeError(done.stdout)
        return done.stdout

    def commit(self, message: str) -> None:
        self.run("git", "add", "-A")
        self.run("git", "commit", "-q", "-m", message)
