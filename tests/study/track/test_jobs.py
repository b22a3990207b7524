from __future__ import annotations

import json
from pathlib import Path

import pytest
from tracking_records import write_final, write_search

from pfrnn.errors import RecordError
from pfrnn.study.track.importer import Attachments, Options, import_results
from pfrnn.study.track.jobs import Job, read_job, record_digest, record_folders, thin


class Memory:
    """A store in memory, which counts what it is asked to write."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.written: list[str] = []

    def imported(self, experiment: str) -> dict[str, str]:
        return {key: job.digest for key, job in self.jobs.items() if job.experiment == experiment}

    def replace(self, job: Job, attached: Attachments) -> None:
        self.jobs[job.key] = job
        self.written.append(job.key)


def test_a_block_becomes_a_parent_with_a_child_a_member(tmp_path: Path) -> None:
    results = tmp_path / "results" / "quick"
    folder = write_search(results, members=3, epochs=5)
    job = read_job(folder, results)
    assert job.key == f"quick/{folder.relative_to(results)}"
    assert job.experiment == "air"
    assert job.parameters["parameters.training.patience"] == "20"
    assert job.tags["commit"] == "abc"
    assert job.tags["data_digest"] == "d1"
    assert (job.tags["tier"], job.tags["variant"]) == ("quick", "lstm")
    assert [member.name for member in job.members] == ["member 0", "member 1", "member 2"]
    second = job.members[1]
    assert second.parameters["learning_rate"] == "0.0003"
    assert second.metrics["val_score"] == 1.5
    assert second.curves["curve/train_loss"] == tuple((e, 10.0 - e) for e in range(1, 6))
    assert "curve/ess" not in second.curves


def test_a_final_has_test_values_by_repetition(tmp_path: Path) -> None:
    results = tmp_path / "results" / "quick"
    job = read_job(write_final(results, repetitions=2), results)
    assert [member.name for member in job.members] == ["repetition 0", "repetition 1"]
    assert job.members[1].metrics["test/rmse"] == 3.5
    assert job.tags["variant"] == "pf_lstm"


def test_an_ensembles_test_score_is_not_its_members(tmp_path: Path) -> None:
    results = tmp_path / "results" / "quick"
    folder = write_final(results, repetitions=2)
    run = json.loads((folder / "run.json").read_text())
    run["parameters"]["variant"] = {"kind": "ensemble"}
    (folder / "run.json").write_text(json.dumps(run))
    table = folder / "members.csv"
    lines = table.read_text().splitlines()
    more = [line.replace("0,", "2,", 1) for line in lines[1:2]]  # repetition 0 has two members
    table.write_text("\n".join([*lines, *more, ""]))
    job = read_job(folder, results)
    names = ["repetition 0, member 0", "repetition 1, member 1", "repetition 0, member 2"]
    assert [member.name for member in job.members] == names
    assert not any("test/rmse" in member.metrics for member in job.members)
    assert job.metrics["test/rmse"] == 3.25


def test_a_diverged_members_numbers_are_left_out(tmp_path: Path) -> None:
    results = tmp_path / "results" / "quick"
    folder = write_search(results, members=1, epochs=2)
    table = folder / "members.csv"
    table.write_text(table.read_text().replace("0.5,1.0,", "nan,inf,"))
    (member,) = read_job(folder, results).members
    assert not {"val_loss", "val_score"} & set(member.metrics)


def test_thinning_keeps_first_last_and_best() -> None:
    rows = [{"epoch": str(epoch)} for epoch in range(1, 1001)]
    chosen = [int(row["epoch"]) for row in thin(rows, 30, lambda row: row["epoch"] == "637")]
    assert len(chosen) == 30
    assert (chosen[0], chosen[-1]) == (1, 1000)
    assert 637 in chosen
    assert chosen == sorted(set(chosen))
    assert thin(rows[:30], 30, lambda row: False) == rows[:30]


def test_import_is_idempotent_and_follows_the_files(tmp_path: Path) -> None:
    results = tmp_path / "results" / "quick"
    block, final = write_search(results), write_final(results)
    store = Memory()
    first = import_results(results, store)
    assert (first.imported, first.unchanged) == (2, 0)
    assert import_results(results, store)[:2] == (0, 2)
    before = record_digest(block)
    table = block / "members.csv"
    table.write_text(table.read_text().replace("1.5", "1.25"))
    assert record_digest(block) != before
    assert import_results(results, store)[:2] == (1, 1)
    assert store.written[-1].endswith(block.name)
    assert len(store.jobs) == len(record_folders(results)) == 2
    assert final in record_folders(results)


def test_an_unfinished_job_is_imported_only_live(tmp_path: Path) -> None:
    results = tmp_path / "results" / "quick"
    folder = write_search(results)
    record = (folder / "run.json").read_text()
    (folder / "run.json").unlink()
    assert import_results(results, Memory()).imported == 0
    store, live = Memory(), Options(live=True)
    assert import_results(results, store, live).imported == 1
    (job,) = store.jobs.values()
    assert job.running
    assert job.tags["status"] == "running"
    assert [member.name for member in job.members] == ["member 0", "member 1"]
    assert job.members[0].curves["curve/train_loss"] == tuple((e, 10.0 - e) for e in (1, 2, 3))
    assert import_results(results, store, live)[:2] == (0, 1)
    # The finished record takes its place.
    (folder / "run.json").write_text(record)
    assert import_results(results, store, live).imported == 1
    assert not store.jobs[job.key].running
    assert store.jobs[job.key].members[0].metrics["val_score"] == 1.0


def test_a_job_names_the_cells_it_feeds_and_members_what_they_share(tmp_path: Path) -> None:
    results = tmp_path / "results" / "quick"
    folder = write_search(results)
    store = Memory()
    job_id = str(folder.relative_to(results))
    import_results(
        results, store, Options(tags={job_id: {"cells": "air/lstm-fixed, air/lstm-best"}})
    )
    (job,) = store.jobs.values()
    assert job.tags["cells"] == job.members[0].tags["cells"] == "air/lstm-fixed, air/lstm-best"
    assert job.members[0].tags["commit"] == "abc"
    assert job.members[0].parameters["batch_size"] == "32"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "run.json").write_text("{"), r"run\.json: not JSON"),
        (lambda folder: (folder / "run.json").write_text("[]"), r"run\.json: expected an object"),
        (lambda folder: (folder / "history.csv").unlink(), r"history\.csv: missing"),
    ],
)
def test_a_damaged_record_is_named(damage: object, words: str, tmp_path: Path) -> None:
    results = tmp_path / "results" / "quick"
    damage(write_search(results))  # type: ignore[operator]
    with pytest.raises(RecordError, match=words):
        import_results(results, Memory())
