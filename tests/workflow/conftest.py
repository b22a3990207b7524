"""A copy of the repository in which the smoke tier runs once, by the real Snakemake.

The tests then change something in it, plan again (a dry run), and change it back.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from _copy import Copy


@pytest.fixture(scope="session")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A copy in which nothing has run."""
    return Copy(tmp_path_factory.mktemp("planned"))


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A copy in which the smoke tier has run, bare: no profile named, no resources given."""
    copy = Copy(tmp_path_factory.mktemp("finished"))
    done = copy.snakemake("--cores", "2")
    (copy.folder / "output.txt").write_text(done.stdout)
    if done.returncode:
        logs = "\n".join(
            f"== {log}\n{log.read_text()[-2000:]}" for log in copy.folder.rglob("logs/**/*.log")
        )
        raise RuntimeError(f"{done.stdout}\n{logs}")
    return copy
