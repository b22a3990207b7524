"""The selected search member's test score: right member, best state, a column of its own."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pfrnn.errors import RecordError
from pfrnn.study.evaluate.selection import select_cell
from pfrnn.study.train import final
from pfrnn.study.train.batches import to_device
from pfrnn.study.train.block import train_block
from pfrnn.study.train.final import selected_member_metrics
from tests.study.train import toys


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as source:
        return list(csv.DictReader(source))


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    plan = toys.study({"study": {"datasets": ["toy_regression"], "variants": ["gru"]}})
    places = toys.prepared_places(plan, tmp_path_factory.mktemp("line"))
    for block in plan.blocks:
        train_block(plan, block.id, places)
    select_cell(plan, plan.cells[0].selection_id, places.results)
    return plan, places


def test_it_is_the_member_and_state_that_won_on_validation(
    line: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tested on the validation split in place of the test, it scores what the search recorded."""
    plan, places = line
    caught: list[Any] = []
    monkeypatch.setattr(final, "test_members", lambda *arguments: caught.append(arguments))
    monkeypatch.setattr(final, "write_record", lambda *_, **__: None)
    final.run_final(plan, plan.cells[0].final_id, places)
    ((_, job, _, trained),) = caught
    chosen = job.selection["chosen"]
    validation = trained.prepared.splits["validation"]
    prepared = trained.prepared._replace(splits={"test": validation})
    split = to_device(validation, trained.trainer.device)
    found = selected_member_metrics(plan, chosen, places, trained.path, prepared, split, 1)
    members = rows(places.results / chosen["block_id"] / "members.csv")
    recorded = [float(member["val_rmse"]) for member in members]
    assert len(set(recorded)) > 1
    assert found["rmse"] == pytest.approx(recorded[chosen["member"]], rel=1e-5)


def test_it_stands_beside_and_its_states_are_needed(
    line: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, places = line
    cell = plan.cells[0]
    final.run_final(plan, cell.final_id, places)
    tested = rows(places.results / cell.final_id / "test.csv")
    beside = {row["metric"]: row["selected_member_value"] for row in tested}
    assert all(np.isfinite(float(value)) for value in beside.values())
    assert {row["selected_member_value"] for row in tested} == set(beside.values())
    assert all(row["value"] != row["selected_member_value"] for row in tested)
    block = plan.blocks[0]
    states = places.results / block.id / "best.pt"
    states.rename(states.with_suffix(".aside"))
    (places.results / cell.final_id / "run.json").unlink()
    # Said before anything is trained.
    monkeypatch.setattr(final, "train", lambda *_: pytest.fail("trained first"))
    with pytest.raises(RecordError, match=r"best\.pt: missing; .*`pfrnn train"):
        final.run_final(plan, cell.final_id, places)
