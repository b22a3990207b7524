"""DVC around the finished smoke tier, with the real tools."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.slow


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


def test_every_stage_sees_the_files_that_its_jobs_read(versioned) -> None:
    """Cards and arrays go into the report, and so does code outside pfrnn/study/report."""
    (card,) = (versioned.folder / "data" / "prepared").glob("maze10-*/card.json")
    before = card.read_text()
    card.write_text(before.replace('"name": "maze10"', '"name":  "maze10"'))
    assert card.read_text() != before
    status = json.loads(versioned.dvc("status", "--json"))
    card.write_text(before)
    assert {"changed deps": {"data/prepared": "modified"}} in status["results"]
    assert {"changed deps": {"data/prepared": "modified"}} in status["reports"]
    source = versioned.folder / "pfrnn" / "study" / "evaluate" / "paired.py"
    before = source.read_text()
    source.write_text(before + "# more\n")
    status = json.loads(versioned.dvc("status", "--json"))
    source.write_text(before)
    assert list(status) == ["results", "reports"]
    assert "up to date" in versioned.dvc("status")
