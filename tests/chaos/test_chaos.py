"""A tier under random kills gives the tables of an undisturbed run, without hand repair.

Continuous integration runs six kills of the smoke tier; `make test-chaos` twenty of the quick one.
`PFRNN_TEST_CHAOS_SEED` makes other choices, `PFRNN_TEST_CHAOS_KILLS` more or fewer.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "workflow"))

from _copy import Copy
from _once import EPOCHS, undisturbed
from _storm import Run, Storm, numbers, storm

pytestmark = pytest.mark.nightly
FULL = os.environ.get("PFRNN_TEST_CHAOS") == "1"
SEED = int(os.environ.get("PFRNN_TEST_CHAOS_SEED", "1"))


class Storms(NamedTuple):
    """How hard a tier is disturbed.

    Attributes:
        tier: the tier.
        kills: how many.
        pause: bounds of the time before each, in seconds.
        overlay: parameters of both runs; checkpoints so often that most kills meet one.
        limit_seconds: bound on the whole.
    """

    tier: str
    kills: int
    pause: tuple[float, float]
    overlay: str
    limit_seconds: float


SHORT = Storms(
    "smoke",
    6,
    (0.0, 3.0),
    EPOCHS + "execution: {checkpoint_minutes: 0.002}\n",
    1200,
)
LONG = Storms("quick", 20, (2.0, 40.0), "execution: {checkpoint_minutes: 0.05}\n", 4 * 3600)


class Outcome(NamedTuple):
    """Both runs, finished."""

    asked: Storms
    undisturbed: Copy
    disturbed: Copy
    storm: Storm


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    asked = LONG if FULL else SHORT
    kills = os.environ.get("PFRNN_TEST_CHAOS_KILLS")
    asked = asked._replace(kills=int(kills)) if kills else asked
    disturbed = Copy(tmp_path_factory.mktemp("disturbed"))
    (disturbed.folder / "overlay.yaml").write_text(asked.overlay)
    # fetched=true: what can't be fetched is left out of both runs alike.
    arguments = ("--configfile", "overlay.yaml", "--config", f"tier={asked.tier}", "fetched=true")
    happened = storm(
        disturbed.folder,
        disturbed.folder / "results" / asked.tier,
        arguments,
        asked.kills,
        asked.pause,
        SEED,
        asked.limit_seconds,
    )
    print(f"\n{happened}")
    if asked.tier == "smoke":
        # How often there are checkpoints changes no result.
        return Outcome(asked, undisturbed(tmp_path_factory), disturbed, happened)
    quiet = Copy(tmp_path_factory.mktemp("undisturbed"))
    shutil.copy(disturbed.folder / "overlay.yaml", quiet.folder)
    run = Run(quiet.folder, arguments)
    assert run.process.wait(timeout=asked.limit_seconds) == 0
    return Outcome(asked, quiet, disturbed, happened)


def test_all_kills_happened(outcome) -> None:
    assert len(outcome.storm.kills) == outcome.asked.kills
    hit = {(kill.victim, kill.signal) for kill in outcome.storm.kills}
    assert len(hit) == 4, "each victim gets both signals"
    assert outcome.storm.starts > 1


def test_every_table_equals_the_undisturbed_runs(outcome) -> None:
    tier = outcome.asked.tier
    expected = numbers(outcome.undisturbed.folder / "results" / tier)
    assert "results.csv" in expected
    assert len(expected) > 12
    assert numbers(outcome.disturbed.folder / "results" / tier) == expected


def test_nothing_that_was_finished_is_trained_again(outcome) -> None:
    assert outcome.storm.twice == []


def test_nothing_is_left_behind(outcome) -> None:
    results = outcome.disturbed.folder / "results"
    left = [*results.rglob("*.part"), *results.rglob("checkpoint.pt*")]
    assert left == []
    assert list((outcome.disturbed.folder / ".snakemake" / "locks").glob("*")) == []


def test_the_disturbed_run_has_nothing_to_do(outcome) -> None:
    planned = outcome.disturbed.snakemake(
        "-n", "--configfile", "overlay.yaml", "--config", f"tier={outcome.asked.tier}"
    )
    assert "Nothing to be done" in planned.stdout
