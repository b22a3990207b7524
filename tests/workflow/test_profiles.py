"""The profiles: every entry explained, and read by Snakemake."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

PROFILES = Path(__file__).parents[2] / "workflow" / "profiles"
NAMES = ("default", "quick", "gpu", "slurm", "kubernetes")


def unexplained(text: str) -> list[str]:
    """Top-level entries without a comment above them; neighbours may share one."""
    found, explained = [], False
    for line in text.splitlines():
        if line.startswith("#"):
            explained = True
        elif not line.strip():
            explained = False
        elif line[0].isalpha() and not explained:
            # Its list may be explained item by item instead.
            found.append(line.partition(":")[0])
    return found


def test_these_are_the_profiles() -> None:
    assert {path.name for path in PROFILES.iterdir()} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_is_explained(name: str) -> None:
    text = (PROFILES / name / "config.yaml").read_text()
    items = [entry for entry in unexplained(text) if entry != "default-resources"]
    assert items == []
    if "default-resources" in yaml.safe_load(text):
        block = text.split("default-resources:\n")[1].split("\n\n")[0].splitlines()
        assert block[0].lstrip().startswith("#")


def test_an_unexplained_entry_is_noticed() -> None:
    assert unexplained("# why\ncores: 2\n\njobs: 3\n") == ["jobs"]


@pytest.mark.parametrize("name", ["gpu", "slurm"])
def test_a_profile_plans_the_same_jobs(planned, name: str) -> None:
    if name == "slurm":
        pytest.importorskip("snakemake_executor_plugin_slurm")
    profile = ("--workflow-profile", f"workflow/profiles/{name}")
    assert planned.plan(*profile, "--resources", "gpu=4") == planned.plan()
