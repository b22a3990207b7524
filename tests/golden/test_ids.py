"""The ids of the published study: a change here orphans every recorded result that it touches."""

import hashlib
import json
from pathlib import Path

import pytest

from pfrnn.study.plan import load_plan

GOLDEN = json.loads(Path(__file__).with_name("ids.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("tier", ["gpu", "gpu_long"])
def test_finals_and_selections(tier: str) -> None:
    plan = load_plan("params.yaml", tier)
    assert sorted({cell.final_id for cell in plan.cells}) == GOLDEN[tier]["finals"]
    assert sorted({cell.selection_id for cell in plan.cells}) == GOLDEN[tier]["selections"]


def test_the_paper_tiers_finals_and_blocks() -> None:
    plan = load_plan("params.yaml", "paper")
    blocks = sorted(block.id for block in plan.blocks)
    assert len(blocks) == 1326
    assert hashlib.sha256("\n".join(blocks).encode()).hexdigest() == GOLDEN["paper"]["blocks"]
    assert sorted({cell.final_id for cell in plan.cells}) == GOLDEN["paper"]["finals"]
