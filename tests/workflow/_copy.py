"""A working copy of the repository, and the job table of a dry run in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from _dryrun import dry_run

ROOT = Path(__file__).parents[2]
SMOKE = Path("workflow", "tiers", "smoke.yaml")
# Enough for what the workflow does with a variant; test_run.py has all of them once.
FEW = "variants: [lstm, gru, pf_lstm, pf_gru]"
PARTS = ("Snakefile", "params.yaml", "pfrnn", "profiles", "workflow")


class Copy:
    """A working copy of the repository, its smoke tier cut down to four variants."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for part in PARTS:
            source = ROOT / part
            if source.is_symlink():
                (folder / part).symlink_to(os.readlink(source))
            elif source.is_dir():
                ignore = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, folder / part, ignore=ignore, symlinks=True)
            else:
                shutil.copy(source, folder / part)
        tier = folder / SMOKE
        text, found = re.subn(r"variants: \[[^]]*\]", FEW, tier.read_text(encoding="utf-8"))
        if found != 1:
            raise ValueError(f"{tier}: expected one list of variants, found {found}")
        tier.write_text(text, encoding="utf-8")

    @classmethod
    def at(cls, folder: Path) -> Copy:
        """Take a folder that is a copy already."""
        made = object.__new__(cls)
        made.folder = folder
        return made

    def again(self, folder: Path) -> Copy:
        """Copy this copy, with all that ran in it, to another folder."""
        # copytree keeps times; a real move does too.
        shutil.copytree(self.folder, folder, symlinks=True)
        return Copy.at(folder)

    def snakemake(
        self, *arguments: str, tier: str = "smoke", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run Snakemake here; output and errors come back as one text in ``stdout``."""
        asked = [*arguments]
        if "--config" not in arguments:
            # Last of the options; behind dashes stand targets alone.
            end = asked.index("--") if "--" in asked else len(asked)
            asked[end:end] = ["--config", f"tier={tier}"]
        whole = surroundings() | environment
        if "-n" in arguments:
            return dry_run(asked, self.folder, whole)
        return subprocess.run(
            [sys.executable, "-m", "snakemake", *asked],
            cwd=self.folder,
            env=whole,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=1800,
        )

    def shell(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command line as it is printed for people; output and errors come back as one."""
        tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=surroundings() | {"PATH": tools},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=1800,
        )

    def plan(self, *arguments: str, tier: str = "smoke", **environment: str) -> dict[str, int]:
        """Return {rule: number of jobs} that a run would do now."""
        done = self.snakemake("-n", *arguments, tier=tier, **environment)
        if done.returncode:
            raise RuntimeError(done.stdout)
        return parse_jobs(done.stdout)

    @contextmanager
    def changed(self, name: str, old: str, new: str) -> Iterator[None]:
        """Replace text in a file; put the file back at the end, its time stamp too."""
        path = self.folder / name
        before, stamp = path.read_text(encoding="utf-8"), path.stat()
        if before.count(old) != 1:
            raise ValueError(f"{name}: expected {old!r} once, found {before.count(old)} times")
        path.write_text(before.replace(old, new), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(before, encoding="utf-8")
            os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))

    @contextmanager
    def appended(self, name: str, text: str) -> Iterator[None]:
        """Append to a file; put the file back at the end, its time stamp too."""
        path = self.folder / name
        before, stamp = path.read_bytes(), path.stat()
        path.write_bytes(before + text.encode())
        try:
            yield
        finally:
            path.write_bytes(before)
            os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


def surroundings() -> dict[str, str]:
    """Environment of a run: this one's without what would lead it out of the copy."""
    inherited = {
        key: value
        for key, value in os.environ.items()
        if key not in ("PFRNN_DATA_MIRROR", "MLFLOW_TRACKING_URI", "PYTHONPATH")
    }
    return inherited | {"OMP_NUM_THREADS": "1"}


def parse_jobs(output: str) -> dict[str, int]:
    """Parse the job table of a dry run; {} when there is nothing to do."""
    if "Nothing to be done" in output:
        return {}
    table = re.search(r"^job +count\n-+ +-+\n((?:\w+ +\d+\n)+)", output, flags=re.MULTILINE)
    if table is None:
        raise RuntimeError(f"no job table in:\n{output}")
    rows = (line.split() for line in table[1].splitlines())
    return {rule: int(count) for rule, count in rows if rule not in ("total", "all")}
