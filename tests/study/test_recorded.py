"""What a report's evidence records counts as done; the rest is planned."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "report"))

from planned import publish, write_block, write_slice

from pfrnn.errors import DataError, RecordError
from pfrnn.study.cli import main
from pfrnn.study.plan import Cell, Plan
from pfrnn.study.recorded import (
    Recorded,
    again_ids,
    check_data,
    done_ids,
    known_sizes,
    other_data,
    progress,
    published_for,
    read_recorded,
    remaining,
    unprepared,
    whole_plan,
)
from pfrnn.study.workload import Sizes, dataset_sizes, workload


@pytest.fixture(scope="module")
def plan() -> Plan:
    return whole_plan("params.yaml", "gpu")


def done(cell: Cell) -> bool:
    return cell.dataset == "arem" and cell.variant in ("lstm", "pf_lstm_p30")


@pytest.fixture(scope="module")
def reports(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """LSTM and PF-LSTM (30 particles) of arem are done, of PF-GRU the search."""
    folder = tmp_path_factory.mktemp("recorded")
    results, prepared = write_slice(folder, plan, done, finals=False)
    (pf_gru,) = {block for block in plan.blocks if block.id.startswith("search/arem/pf_gru/")}
    write_block(results, pf_gru)
    publish(results, prepared, plan, folder / "reports")
    return folder / "reports"


def test_every_cell_but_the_recorded_ones_remains(plan: Plan, reports: Path) -> None:
    recorded = read_recorded(reports, plan)
    rest = remaining(plan, recorded)
    gone = {(c.dataset, c.variant) for c in plan.cells} - {
        (c.dataset, c.variant) for c in rest.cells
    }
    assert gone == {("arem", "lstm"), ("arem", "pf_lstm_p30")}
    assert len(recorded.finals) == 2
    # LSTM's ensemble needs the search of LSTM: it stays, though it is recorded.
    (left_out,) = {block.id for block in plan.blocks} - {block.id for block in rest.blocks}
    assert left_out.startswith("search/arem/pf_lstm/h64-k30-")
    assert {name.split("/")[2] for name in again_ids(plan, recorded)} == {"lstm", "pf_gru"}


def test_a_set_without_anything_left_needs_no_data(plan: Plan, reports: Path) -> None:
    recorded = read_recorded(reports, plan)
    finals = {cell.final_id: "x" for cell in plan.cells if cell.dataset == "arem"}
    rest = remaining(plan, recorded._replace(finals=finals))
    assert set(plan.protocols) - set(rest.protocols) == {"arem"}


def test_a_block_is_done_when_recorded_or_when_no_final_needs_it(plan: Plan, reports: Path) -> None:
    recorded = read_recorded(reports, plan)
    ids = done_ids(plan, recorded)
    blocks = {name for name in ids if name.startswith("search/")}
    assert {name.split("/")[2] for name in blocks} == {"lstm", "pf_gru", "pf_lstm"}
    assert ids - blocks == recorded.finals.keys()
    # Without blocks.json: by its finals alone.
    bare = done_ids(plan, recorded._replace(blocks={}))
    (block,) = bare - recorded.finals.keys()
    assert block.startswith("search/arem/pf_lstm/h64-k30-")


def test_hours_done_and_left_are_the_workloads(plan: Plan, reports: Path) -> None:
    sizes = dataset_sizes(plan, Path("none"))
    recorded = read_recorded(reports, plan)
    load, part = workload(plan, sizes), progress(plan, sizes, done_ids(plan, recorded))
    assert (part.blocks[0], part.finals[0]) == (load.blocks, load.finals)
    assert part.hours[0] == pytest.approx(load.hours)
    assert (part.blocks[1], part.finals[1]) == (3, 2)
    everything = progress(plan, sizes, done_ids(plan, recorded) | _all_ids(plan))
    assert everything.hours[1] == pytest.approx(load.hours)


def _all_ids(plan: Plan) -> set[str]:
    return {block.id for block in plan.blocks} | {cell.final_id for cell in plan.cells}


def test_a_recorded_card_gives_the_sizes(plan: Plan, tmp_path: Path) -> None:
    digest = plan.prepared_id("gas").rpartition("-")[2]
    counts = {"train": 10, "validation": 3, "test": 4}
    card = {"protocol_digest": digest, "sequences": counts, "max_length": 7}
    recorded = Recorded(tmp_path, {}, {}, {"gas": card, "lpa": card}, ())
    sizes = known_sizes(plan, tmp_path, recorded)
    assert sizes["gas"] == Sizes(10, 3, 4, 7)
    # Of another protocol, so it says nothing about what is planned.
    assert sizes["lpa"] == dataset_sizes(plan, tmp_path)["lpa"]
    bounded = unprepared(plan, tmp_path, recorded)
    assert {"lpa", "nasdaq"} <= set(bounded)
    assert not {"gas", "maze10"} & set(bounded)


def test_other_data_is_refused_before_training(plan: Plan, reports: Path, tmp_path: Path) -> None:
    recorded = read_recorded(reports, plan)
    folder = tmp_path / plan.prepared_id("arem")
    folder.mkdir()
    digest = recorded.cards["arem"]["arrays_digest"]
    card = folder / "card.json"
    card.write_text(json.dumps({"arrays_digest": digest}))
    check_data(plan, tmp_path, recorded)
    card.write_text(json.dumps({"arrays_digest": "9876543210"}))
    with pytest.raises(RecordError, match=f"from data {digest}, prepared here are 9876543210"):
        check_data(plan, tmp_path, recorded)


def test_grid_prints_what_is_done(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["grid", "--tier", "gpu", "--prepared", "none", "--recorded", str(reports)]
    assert main(options) == 0
    out = capsys.readouterr().out
    assert "Not prepared here, so bounded" in out
    assert "gas" in next(line for line in out.splitlines() if line.startswith("Not prepared"))
    shown = {
        line[:34].strip(): line[34:].split()[:2]
        for line in out.split("Recorded in")[1].splitlines()
    }
    assert shown["total"] == ["3/208", "2/234"]
    assert shown["arem"] == ["3/15", "2/17"]
    assert shown["maze10"] == ["0/28", "0/30"]
    assert shown["tables 1 and 2, localisation"] == ["2/52", "1/52"]
    assert "2 of the blocks done belong to finals that are not" in out


def test_grid_lists_ids(plan: Plan, reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grid", "--tier", "gpu", "--json", "--recorded", str(reports)]) == 0
    counts = json.loads(capsys.readouterr().out)
    recorded = counts["recorded"]
    for kind in ("block", "final"):
        both = recorded[f"done_{kind}_ids"] + recorded[f"remaining_{kind}_ids"]
        assert sorted(both) == sorted(counts[f"{kind}_ids"])
    assert len(recorded["done_block_ids"]) == 3
    assert recorded["done_final_ids"] == list(read_recorded(reports, plan).finals)
    line = recorded["lines"]["total"]
    hours = line["hours_done"] + line["hours_remaining"]
    assert hours == pytest.approx(counts["total"]["hours"], abs=0.002)


def test_grid_takes_the_published_report_where_it_is_of_the_tier(
    reports: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = Path.cwd()
    params = str(root / "params.yaml")
    for name in ("params.yaml", "workflow"):
        (tmp_path / name).symlink_to(root / name)
    (tmp_path / "reports").symlink_to(reports)
    monkeypatch.chdir(tmp_path)
    assert main(["grid", "--tier", "gpu", "--params", params]) == 0
    assert "Recorded in reports" in capsys.readouterr().out
    assert main(["grid", "--tier", "smoke", "--params", params]) == 0
    assert "Recorded" not in capsys.readouterr().out
    assert main(["grid", "--tier", "smoke", "--params", params, "--recorded", "reports"]) == 1
    assert "expected the evidence of a report of tier smoke, got" in capsys.readouterr().err


def test_status_and_report_name_the_committed_results(
    plan: Plan,
    reports: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    finals = len({cell.final_id for cell in plan.cells})
    recorded = len(read_recorded(reports, plan).finals)
    here = Path.cwd()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reports").symlink_to(reports)
    common = ["--tier", "gpu", "--params", str(here / "params.yaml")]
    assert main(["status", *common]) == 0
    said = f"reports records {recorded} of {finals} finals that are not here"
    assert said in capsys.readouterr().out
    assert main(["report", *common]) == 0
    assert "committed results of the tier: reports/index.html" in capsys.readouterr().out
    # Of another tier there is nothing to name.
    common[1] = "smoke"
    assert main(["status", *common]) == 0
    assert "records" not in capsys.readouterr().out
    assert main(["report", *common]) == 0
    assert "`pfrnn aggregate --tier smoke --params /" in capsys.readouterr().out


def test_finals_of_other_parameters_count_for_nothing(
    reports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("seed: 1\n")
    options = ["grid", "--tier", "gpu", "--params", f"params.yaml,{mine}"]
    assert main([*options, "--recorded", str(reports)]) == 0
    out = capsys.readouterr().out
    assert "2 recorded finals are not in the plan" in out
    assert "0/208     0/234" in out


def test_a_tiers_published_report_is_found(tmp_path: Path) -> None:
    """The main study's lies in reports/, another tier's in a folder of its name within."""
    for folder, tier in (("", "gpu"), ("gpu_long", "gpu_long"), ("paper", "smoke")):
        data = tmp_path / folder / "data"
        data.mkdir(parents=True)
        (data / "study.json").write_text(json.dumps({"tier": tier}), encoding="utf-8")
    assert published_for("gpu", tmp_path) == tmp_path
    assert published_for("gpu_long", tmp_path) == tmp_path / "gpu_long"
    assert published_for("paper", tmp_path) is None
    assert published_for("smoke", tmp_path) is None


@pytest.mark.parametrize("text", ["", '{"a', "[]"])
@pytest.mark.parametrize("name", ["data/study.json", "data/cards.json", "data/blocks.json"])
def test_damaged_evidence_is_named_with_its_cure(
    reports: Path,
    name: str,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    params = str(Path("params.yaml").resolve())
    monkeypatch.chdir(tmp_path)
    shutil.copytree(reports, "reports")
    Path("reports", name).write_bytes(text.encode(errors="surrogateescape"))
    for command in (["grid"], ["status"], ["report", "--out", "reports"]):
        capsys.readouterr()
        assert main([*command, "--tier", "gpu", "--params", params]) == 1
        told = capsys.readouterr().err
        assert f"reports/{name}" in told
        assert "`git checkout -- " in told


@pytest.mark.parametrize("name", ["cards.json", "runs.json", "histories.csv"])
def test_a_lost_part_of_the_evidence_is_named(
    plan: Plan, reports: Path, name: str, tmp_path: Path
) -> None:
    shutil.copytree(reports, tmp_path / "reports")
    (tmp_path / "reports" / "data" / name).unlink()
    results, prepared = write_slice(tmp_path / "slice", plan, done, finals=False)
    out = tmp_path / "reports"
    with pytest.raises(RecordError, match=rf"{name}: .*[Nn]o such file"):
        publish(results, prepared, plan, out)


def test_a_damaged_card_is_named(plan: Plan, tmp_path: Path) -> None:
    card = tmp_path / plan.prepared_id("arem") / "card.json"
    card.parent.mkdir()
    card.write_text("{")
    with pytest.raises(DataError, match=r"card.json: .* `pfrnn prepare arem --tier gpu`"):
        dataset_sizes(plan, tmp_path)
    recorded = Recorded(tmp_path, {"final/arem/lstm": "x"}, {}, {}, ())
    mine = plan._replace(params="params.yaml,mine.yaml")
    with pytest.raises(RecordError, match=f"`pfrnn prepare arem {mine.options}`"):
        other_data(mine, tmp_path, recorded)
