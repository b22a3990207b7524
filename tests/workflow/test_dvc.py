"""DVC around the finished smoke tier, with the real tools."""

from __future__ import annotations

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
