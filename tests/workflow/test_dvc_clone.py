"""DVC and Snakemake agree: in a clone, after a change there, and at another commit."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from _copy import parse_jobs
from _versioned import Versioned

pytestmark = pytest.mark.nightly
NOTHING = "Nothing to be done"
AFTER = {"aggregate": 1, "mlflow_import": 1, "report": 1}


@pytest.fixture(scope="module")
def clone(versioned: Versioned, tmp_path_factory: pytest.TempPathFactory) -> Versioned:
    """A fresh clone beside the repository, with what `dvc pull` brings from its remote."""
    made = versioned.clone(versioned.folder.parent / "clone")
    made.dvc("pull")
    return made


def jobs(output: str) -> dict[str, int]:
    """Jobs of a `dvc repro`, over all its stages."""
    found: dict[str, int] = {}
    for part in output.split("Building DAG of jobs")[1:]:
        for rule, count in parse_jobs(part).items():
            if rule not in ("data", "results"):
                found[rule] = found.get(rule, 0) + count
    return found


def test_a_clone_has_everything_and_nothing_to_do(clone: Versioned) -> None:
    assert "up to date" in clone.dvc("status")
    assert NOTHING in clone.plan()
    results = clone.folder / "results" / "smoke"
    assert len(list(results.glob("final/**/best.pt"))) == 4
    assert len(list(results.glob("search/**/best.pt"))) == 4


def test_a_deleted_checkpoint_is_all_that_both_want(clone: Versioned) -> None:
    (checkpoint,) = clone.folder.glob("results/smoke/final/maze10/gru-fixed-*/best.pt")
    checkpoint.unlink()
    status = clone.dvc("status", "--json")
    assert list(json.loads(status)) == ["results"]
    assert json.loads(status)["results"] == [{"changed outs": {"results/smoke/final": "modified"}}]
    assert parse_jobs(clone.plan()) == {"finalise": 1} | AFTER
    # DVC has it: no need to train.
    clone.dvc("checkout")
    assert "up to date" in clone.dvc("status")
    assert NOTHING in clone.plan()


def test_one_number_reruns_what_it_touches_and_commits_compare(clone: Versioned) -> None:
    """The trap of this combination: a clone's changed parameter that reruns nothing."""
    params = clone.folder / "params.yaml"
    before = params.read_text()
    params.write_text(before.replace("\n  alpha: 0.5", "\n  alpha: 0.4"))
    output = clone.dvc("repro")
    assert "Stage 'data' didn't change" in output
    assert jobs(output) == {"train": 2, "select": 2, "finalise": 2} | AFTER
    assert "up to date" in clone.dvc("status")
    assert NOTHING in clone.plan()
    clone.commit("alpha 0.4")

    difference = json.loads(clone.dvc("metrics", "diff", "HEAD~1", "HEAD", "--json"))
    changed = difference["results/smoke/metrics.json"]
    cells = {key.rsplit(".", 1)[0] for key in changed}
    assert cells == {"maze10.pf_lstm-fixed", "maze10.pf_gru-fixed"}
    assert all({"old", "new", "diff"} <= set(change) for change in changed.values())
    clone.dvc("plots", "diff", "HEAD~1", "HEAD", "-o", "plots")
    page = (clone.folder / "plots" / "index.html").read_text()
    assert "pf_gru-fixed" in page
    assert '"facet"' in page

    clone.run("rm", "-r", "plots")
    clone.run("git", "checkout", "-q", "HEAD~1")
    clone.dvc("checkout")
    assert "up to date" in clone.dvc("status")
    assert NOTHING in clone.plan()
    clone.run("git", "checkout", "-q", "-")
    clone.dvc("checkout")
    assert "up to date" in clone.dvc("status")
    assert NOTHING in clone.plan()


def test_an_experiment_with_a_value_that_is_not_in_force_fails(clone: Versioned) -> None:
    command = (sys.executable, "-m", "dvc", "exp", "run", "-S", "training.max_epochs=777")
    done = clone.attempt(*command)
    clone.run("git", "checkout", "-q", "params.yaml")
    assert done.returncode, done.stdout
    assert "training.max_epochs: 777 is not in force" in " ".join(done.stdout.split())


def test_a_publishable_remote_lacks_the_restricted_sets(
    versioned: Versioned, tmp_path: Path
) -> None:
    """A stranger pulls what may be passed on, fetches the rest, and the status is clean."""
    from invented_raw import write_air

    mirror = {"PFRNN_DATA_MIRROR": str(write_air(tmp_path / "mirror"))}
    beside = versioned.folder.parent
    owner = versioned.clone(beside / "owner")
    owner.dvc("pull")
    tier = owner.folder / "workflow" / "tiers" / "smoke.yaml"
    text = tier.read_text().replace("datasets: [maze10]", "datasets: [maze10, air]")
    caps = "max_train: 16, max_validation: 16, max_test: 16"
    tier.write_text(text.replace("\ndatasets:", f"\ndatasets:\n  air: {{window: 24, {caps}}}"))
    owner.dvc("repro", "data", **mirror)
    command = (sys.executable, "-m", "pfrnn")
    said = owner.run(*command, "publishable", str(tmp_path / "public"))
    assert "left out: air, mr, nasdaq, r52" in said
    owner.commit("publishable")
    owner.dvc("push")

    stranger = owner.clone(beside / "stranger")
    stranger.dvc("pull")
    assert not list(stranger.folder.glob("data/*/air*/*"))
    assert list(stranger.folder.glob("data/prepared/maze10-*/arrays.npz"))
    assert "up to date" in stranger.dvc("status", "data")
    assert not any(
        "Date;Time" in path.read_bytes()[:20].decode("latin-1")
        for path in (tmp_path / "public").rglob("*")
        if path.is_file()
    )
    stranger.run(*command, "fetch", "air", **mirror)
    stranger.run(*command, "prepare", "air")
    assert "up to date" in stranger.dvc("status", "data")
    (arrays,) = stranger.folder.glob("data/prepared/air-*/arrays.npz")
    (same,) = owner.folder.glob("data/prepared/air-*/arrays.npz")
    assert arrays.read_bytes() == same.read_bytes()
