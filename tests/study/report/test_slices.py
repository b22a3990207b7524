"""Slices of a study, published one after another, make the evidence of the whole."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import simulated
from planned import files, publish, rows_of, study, write_slice

from pfrnn.errors import ConfigError, RecordError
from pfrnn.study.cli import main
from pfrnn.study.plan import Cell, Plan
from pfrnn.study.recorded import whole_plan
from pfrnn.study.report.evidence import write_evidence
from pfrnn.study.report.report import Slices, gather

# On the maze they are one final. On arem pf_lstm and pf_lstm_p20 are.
SHARED = ("pf_lstm", "pf_lstm_p30", "pf_lstm_paper")
VARIANTS = ("gru", "pf_gru", "pf_lstm_p20", *SHARED)
Wanted = Callable[[Cell], bool]


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Tier gpu, of which two sets and a few variants run."""
    return whole_plan("params.yaml", "gpu")


def runs(cell: Cell) -> bool:
    return cell.dataset in ("maze10", "arem") and cell.variant in VARIANTS


def first(cell: Cell) -> bool:
    """The cells of the shared final."""
    return runs(cell) and cell.variant in SHARED and cell.dataset == "maze10"


def second(cell: Cell) -> bool:
    return runs(cell) and not first(cell)


def run(folder: Path, plan: Plan, wanted: Wanted, out: Path, drop: tuple[str, ...] = ()) -> Any:
    return publish(*write_slice(folder, plan, wanted), plan, out, True, drop)


def read_rows(out: Path) -> list[dict[str, str]]:
    with (out / "results.csv").open() as source:
        return list(csv.DictReader(source))


def test_slices_in_any_order_are_the_whole(plan: Plan, tmp_path: Path) -> None:
    assert run(tmp_path / "w", plan, runs, tmp_path / "whole") == []
    said = []
    for order in ((first, second), (second, first)):
        name = order[0].__name__
        for number, wanted in enumerate(order):
            said += run(tmp_path / f"{name}{number}", plan, wanted, tmp_path / name)
    whole = files(tmp_path / "whole")
    assert set(whole) == {"results.csv"} | {
        f"data/{name}"
        for name in (
            *("study.json", "cards.json", "runs.json", "choices.json", "series.json"),
            *("histories.csv", "beliefs.json", "sequences.json", "blocks.json"),
        )
    }
    assert files(tmp_path / "first") == whole
    assert files(tmp_path / "second") == whole
    assert len(json.loads(whole["data/beliefs.json"])) == 1
    # maze10: the shared one, gru, pf_gru, pf_lstm_p20; arem: gru, pf_gru, two of pf_lstm.
    assert [line.split(" (")[0] for line in said] == [
        "merged: 1 finals as recorded, 7 from the results",
        "merged: 7 finals as recorded, 1 from the results",
    ]


def test_rows_stand_as_aggregate_sorts_them(plan: Plan, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(tmp_path / "b", plan, second, out)
    run(tmp_path / "a", plan, first, out)
    found = [(row["dataset"], row["variant"], row["repetition"]) for row in read_rows(out)]
    wanted = [(r["dataset"], r["variant"], str(r["repetition"])) for r in rows_of(plan, runs)]
    assert found == wanted


def test_publishing_the_same_results_twice_changes_nothing(plan: Plan, tmp_path: Path) -> None:
    out = tmp_path / "out"
    results, prepared = write_slice(tmp_path / "a", plan, runs)
    publish(results, prepared, plan, out)
    before = files(out)
    (said,) = publish(results, prepared, plan, out)
    assert "0 finals as recorded" in said
    assert "(8 of them recorded before)" in said
    assert files(out) == before


def test_where_both_have_a_final_the_results_win(plan: Plan, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(tmp_path / "a", plan, runs, out)
    results, prepared = write_slice(tmp_path / "b", plan, first)
    table = results / "results.csv"
    table.write_text(table.read_text().replace("test device", "another device"))
    publish(results, prepared, plan, out)
    devices = {(row["dataset"], row["variant"], row["device"]) for row in read_rows(out)}
    assert ("maze10", "pf_lstm", "another device") in devices
    assert ("maze10", "pf_lstm", "test device") not in devices
    assert ("maze10", "pf_gru", "test device") in devices
    jobs = json.loads((out / "data" / "blocks.json").read_text())
    assert sum(job["device"] == "another device" for job in jobs.values()) == 1


def test_a_final_of_other_parameters_is_dropped_and_said(plan: Plan, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(tmp_path / "a", plan, first, out)
    (old,) = {row["final_id"] for row in read_rows(out)}
    params = tmp_path / "mine.yaml"
    params.write_text("filter: {alpha: 0.4}\n")
    changed = whole_plan(f"params.yaml,{params}", "gpu")
    said = run(tmp_path / "b", changed, second, out)
    assert f"dropped, no longer in the tier's plan: {old}" in said
    assert old not in {row["final_id"] for row in read_rows(out)}
    for name in ("runs", "choices", "series", "beliefs", "blocks"):
        assert old not in (out / "data" / f"{name}.json").read_text()
    assert old not in (out / "data" / "histories.csv").read_text()


def test_a_cell_that_joins_a_recorded_final_gets_its_rows(plan: Plan, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(tmp_path / "a", plan, lambda cell: first(cell) and cell.variant == "pf_lstm", out)
    assert {row["variant"] for row in read_rows(out)} == {"pf_lstm"}
    run(tmp_path / "b", plan, second, out)
    shared = [row for row in read_rows(out) if row["dataset"] == "maze10"]
    values = {name: [row["value"] for row in shared if row["variant"] == name] for name in SHARED}
    assert values["pf_lstm"]
    assert values["pf_lstm_p30"] == values["pf_lstm_paper"] == values["pf_lstm"]


def test_two_versions_of_a_data_set_share_no_table(plan: Plan, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(tmp_path / "a", plan, lambda c: runs(c) and c.variant == "pf_lstm", out)
    before = files(out)
    results, prepared = write_slice(tmp_path / "b", plan, lambda c: runs(c) and c.variant == "gru")
    digest = next(row["data_digest"] for row in read_rows(out) if row["dataset"] == "arem")
    for path in (results / "results.csv", *prepared.glob("arem-*/card.json")):
        path.write_text(path.read_text().replace(digest, "9876543210"))
    with pytest.raises(RecordError, match=r"arem are of data .* and ") as error:
        publish(results, prepared, plan, out)
    assert "--drop arem" in str(error.value)
    assert files(out) == before
    # What the message says works; the other set's record stays.
    said = publish(results, prepared, plan, out, True, ("arem",))
    assert sum(line.startswith("dropped, as asked: final/arem/pf_lstm-") for line in said) == 1
    ran = {(row["dataset"], row["variant"]) for row in read_rows(out)}
    assert ran == {(name, "gru") for name in ("maze10", "arem")} | {
        ("maze10", name) for name in SHARED
    }
    cards = json.loads((out / "data" / "cards.json").read_text())
    assert cards["arem"]["arrays_digest"] == "9876543210"


def test_recorded_rows_keep_their_card_beside_other_prepared_data(
    plan: Plan, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run(tmp_path / "a", plan, first, out)
    before = json.loads((out / "data" / "cards.json").read_text())["maze10"]
    results, prepared = write_slice(
        tmp_path / "b", plan, lambda c: second(c) and c.dataset == "arem"
    )
    simulated.write_card(prepared, "maze10", arrays_digest="other", state="excerpt")
    publish(results, prepared, plan, out)
    assert json.loads((out / "data" / "cards.json").read_text())["maze10"] == before


def test_a_set_is_missing_until_it_has_results_or_was_prepared(plan: Plan, tmp_path: Path) -> None:
    out = tmp_path / "out"
    results, prepared = write_slice(tmp_path / "a", plan, first)
    reasons = {"arem": "no mirror", "air": "no network", "pm": "no disk"}
    missing = study(plan)._replace(missing=reasons, missing_files={"pm": ["pm.csv"]})
    write_evidence(gather(results, prepared, missing, Slices(plan, out))[0], out)
    results, prepared = write_slice(tmp_path / "b", plan, second)
    simulated.write_card(prepared, "air")
    publish(results, prepared, plan, out)
    said = json.loads((out / "data" / "study.json").read_text())
    assert (said["missing"], said["missing_files"]) == ({"pm": "no disk"}, {"pm": ["pm.csv"]})


def test_another_tiers_evidence_is_replaced_by_results_only(plan: Plan, tmp_path: Path) -> None:
    out = tmp_path / "out"
    quick = whole_plan("params.yaml", "quick")
    run(tmp_path / "quick", quick, lambda cell: cell.dataset == "arem", out)
    with pytest.raises(RecordError, match="no results of tier gpu to replace tier quick"):
        gather(tmp_path / "no", tmp_path / "no", study(plan), Slices(plan, out))
    results, prepared = write_slice(tmp_path / "a", plan, first)
    with pytest.raises(ConfigError, match="no evidence of tier gpu"):
        publish(results, prepared, plan, out, True, ("arem",))
    said = publish(results, prepared, plan, out)
    assert said == [f"replaced: {out} held the evidence of tier quick"]
    assert {row["tier"] for row in read_rows(out)} == {"gpu"}


def test_make_report_merges_and_the_evidence_alone_gives_the_same(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "reports"
    for name, wanted in (("a", first), ("b", lambda c: second(c) and c.dataset == "arem")):
        results, prepared = write_slice(tmp_path / name, plan, wanted, finals=False)
        options = ["--tier", "gpu", "--results", str(results), "--prepared", str(prepared)]
        assert main(["report", *options, "--out", str(out)]) == 0
    assert "merged: 1 finals as recorded" in capsys.readouterr().out
    assert main(["check", "--reports", str(out)]) == 0
    before = files(out, "**/*")
    assert main(["report", "--tier", "gpu", "--results", str(out), "--out", str(out)]) == 0
    assert files(out, "**/*") == before
    cost = before["tables/cost.csv"].decode().splitlines()
    # A block and a final of the maze; four of each of arem.
    assert len(cost) == 1 + 2 + 8
    page = before["index.html"].decode()
    assert "Time spent against the prediction" in page
    # The run's own report is of its results alone, unless another folder is named.
    assert main(["report", *options]) == 0
    assert {row["dataset"] for row in read_rows(results / "report")} == {"arem"}
    assert main(["report", *options, "--recorded", str(out)]) == 0
    assert files(results / "report", "**/*") == before


def test_mistaken_options_are_refused(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "reports"
    run(tmp_path / "a", plan, first, out)
    common = ["report", "--tier", "gpu", "--out", str(out)]
    for more, code, words in (
        (["--drop", "arrem"], 2, "did you mean"),
        (["--drop", "arem/pf_lsm"], 2, "unknown variant"),
        (["--results", str(out), "--drop", "arem"], 2, "rendered as it stands"),
        (["--recorded", str(tmp_path)], 1, "no data/study.json there"),
        (["--tier", "quick", "--recorded", str(out)], 1, "got evidence of tier gpu"),
    ):
        assert main([*common, *more]) == code, more
        assert words in capsys.readouterr().err


def test_results_of_data_that_nothing_describes_are_refused(plan: Plan, tmp_path: Path) -> None:
    out = tmp_path / "out"
    results, prepared = write_slice(tmp_path / "a", plan, second)
    for card in prepared.glob("arem*/card.json"):
        card.unlink()
    with pytest.raises(RecordError, match=r"results of arem .*pfrnn prepare arem --tier gpu"):
        publish(results, prepared, plan, out)
    assert not out.exists()
