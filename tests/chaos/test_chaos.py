"""A tier under random kills gives the tables of an undisturbed run, without hand repair.

Twenty kills of the smoke tier; `PFRNN_TEST_CHAOS_SEED` makes other choices.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "workflow"))

from _copy import Copy
from _once import EPOCHS, undisturbed
from _storm import Storm, numbers, storm

pytestmark = pytest.mark.nightly
SEED = int(os.environ.get("PFRNN_TEST_CHAOS_SEED", "1"))
KILLS = 20
# Checkpoints so often that most kills meet one; how often there are changes no result.
OVERLAY = EPOCHS + "execution: {checkpoint_minutes: 0.002}\n"


class Outcome(NamedTuple):
    """Both runs, finished."""

    undisturbed: Copy
    disturbed: Copy
    storm: Storm


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    disturbed = Copy(tmp_path_factory.mktemp("disturbed"))
    (disturbed.folder / "overlay.yaml").write_text(OVERLAY)
    results = disturbed.folder / "results" / "smoke"
    arguments = ("--configfile", "overlay.yaml", "--config", "tier=smoke")
    happened = storm(disturbed.folder, results, arguments, KILLS, (0.0, 3.0), SEED, 3600)
    print(f"\n{happened}")
    return Outcome(undisturbed(tmp_path_factory), disturbed, happened)


def test_all_kills_happened(outcome) -> None:
    assert len(outcome.storm.kills) == KILLS
    hit = {(kill.victim, kill.signal) for kill in outcome.storm.kills}
    assert len(hit) == 4, "each victim gets both signals"
    assert outcome.storm.starts > 1


def test_every_table_equals_the_undisturbed_runs(outcome) -> None:
    expected = numbers(outcome.undisturbed.folder / "results" / "smoke")
    assert "results.csv" in expected
    assert len(expected) > 12
    assert numbers(outcome.disturbed.folder / "results" / "smoke") == expected


def test_nothing_that_was_finished_is_trained_again(outcome) -> None:
    assert outcome.storm.twice == []


def test_nothing_is_left_behind(outcome) -> None:
    results = outcome.disturbed.folder / "results"
    left = [*results.rglob("*.part"), *results.rglob("checkpoint.pt*")]
    assert left == []


def test_the_disturbed_run_has_nothing_to_do(outcome) -> None:
    planned = outcome.disturbed.snakemake(
        "-n", "--configfile", "overlay.yaml", "--config", "tier=smoke"
    )
    assert "Nothing to be done" in planned.stdout
