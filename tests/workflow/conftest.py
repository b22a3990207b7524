"""A copy of the repository in which the smoke tier runs once, by the real Snakemake.

The tests then change something in it, plan again (a dry run), and change it back.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from _copy import Copy
from _once import once
from _versioned import Versioned


@pytest.fixture(scope="session")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A copy in which nothing has run."""
    return Copy(tmp_path_factory.mktemp("planned"))


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A copy in which the smoke tier has run, bare: no profile named, no resources given.

    It runs once for all of xdist's processes: each has a copy of the folder for itself.
    """
    made = once(tmp_path_factory, "finished")
    return made.again(tmp_path_factory.mktemp("own") / "finished")


@pytest.fixture(scope="session")
def versioned(finished: Copy, tmp_path_factory: pytest.TempPathFactory) -> Versioned:
    """The finished smoke tier as the tier that params.yaml names, taken up by DVC and pushed."""
    repository = Versioned.of(finished.folder, tmp_path_factory.mktemp("dvc") / "repository")
    params = repository.folder / "params.yaml"
    params.write_text(params.read_text().replace("\ntier: gpu\n", "\ntier: smoke\n"))
    output = repository.dvc("repro")
    # The results are there already: DVC runs its three stages, Snakemake not one job.
    assert output.count("Nothing to be done") == 3
    repository.commit("results")
    repository.dvc("push")
    return repository


@pytest.fixture
def nothing(tmp_path: Path) -> dict[str, str]:
    """An environment with an empty folder as mirror and a proxy that refuses."""
    (tmp_path / "mirror").mkdir()
    return {
        "PFRNN_DATA_MIRROR": str(tmp_path / "mirror"),
        "https_proxy": "http://127.0.0.1:9",
        "http_proxy": "http://127.0.0.1:9",
        "no_proxy": "",
    }
