"""Reports from whole and from partial results: nothing blank, no NaN, stable bytes."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
import simulated

from pfrnn.errors import RecordError
from pfrnn.study.cli import main
from pfrnn.study.records import RESULT_COLUMNS
from pfrnn.study.report.evidence import read_evidence, read_results
from pfrnn.study.report.report import render, write_report
from pfrnn.study.report.sections import rebuild_command

REDUCED = "Tier quick: small training; not a reproduction of the paper's number."
VOID = {"meta", "link", "br", "input", "img", "hr"}


class Page(HTMLParser):
    """Collects ids, references and cells, and checks that elements close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if values.get("id"):
            self.ids.append(str(values["id"]))
        self.references += [str(values[k]) for k in ("href", "src", "xlink:href") if values.get(k)]
        if tag in ("td", "th"):
            self.cells.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.cells[-1] += data.strip()


def check_page(path: Path) -> str:
    """What holds for every page; return its text."""
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    # Opens from disk without a network: every reference is inside the page.
    for reference in page.references:
        assert reference.startswith(("#", "data:")), reference
        assert reference[1:] in page.ids or reference.startswith("data:"), reference
    assert "@import" not in text
    assert all(page.cells), "a blank cell"
    visible = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    visible = re.sub(r"<[^>]+>", " ", visible)
    found = re.search(r".{30}\b(nan|NaN|None|inf|undefined)\b.{30}", visible, re.DOTALL)
    assert not found, found
    return text


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quick")
    missing = {"air": "no file, no mirror, no network"}
    plan = simulated.study(datasets=("maze10", "air", "arem", "mr"), missing=missing)
    results, prepared = simulated.write_tree(folder, plan, simulated.result_rows(plan, 3))
    write_report(results, prepared, plan, folder / "report")
    return folder / "report"


def test_page_of_a_reduced_tier(quick: Path) -> None:
    text = check_page(quick / "index.html")
    assert text.count("small training; not a reproduction of the paper&#39;s number") >= 4
    assert "(reduced tier)" in text
    assert 'class="v-better"' not in text
    for shown in ("control: map centre", "control: exact posterior", "control: majority"):
        assert shown in text
    for shown in ("test device", "0123456789ab", 'id="belief-data"', "data/raw/air/", "FILE.csv"):
        assert shown in text
    assert "no file, no mirror, no network" in text
    assert text.count("<svg") >= 6


def test_tables_stand_beside_the_page(quick: Path) -> None:
    assert len(pd.read_csv(quick / "tables" / "cells.csv")) == 314
    assert REDUCED in (quick / "tables" / "table1.md").read_text(encoding="utf-8")
    assert r"\toprule" in (quick / "tables" / "table2.tex").read_text(encoding="utf-8")
    assert (quick / "figures" / "learning.pdf").is_file()


def test_same_evidence_same_bytes(quick: Path, tmp_path: Path) -> None:
    write_report(quick, tmp_path / "none", simulated.study(), tmp_path)
    for path in sorted(tmp_path.rglob("*")):
        if path.is_file():
            assert path.read_bytes() == (quick / path.relative_to(tmp_path)).read_bytes(), path


def test_the_command_that_rebuilds_names_the_studys_parameter_files(quick: Path) -> None:
    evidence = read_evidence(quick)
    assert "parameter_files" not in (quick / "data" / "study.json").read_text()
    named = evidence.study._replace(parameter_files=["mine.yaml", "my own.yaml"])
    text = check_page(render(evidence._replace(study=named), quick / "own"))
    assert "--params &#39;params.yaml,mine.yaml,my own.yaml&#39;" in text
    said = rebuild_command("quick", "final/x", named.parameter_files)
    assert "--configfile mine.yaml 'my own.yaml' --config tier=quick -- results/quick/final" in said


def partial(tmp_path: Path, repetitions: int, **changes: object) -> str:
    """Report one data set and one variant; ``changes`` overwrite the first result row."""
    plan = simulated.study("gpu", ("pm",), ("pf_lstm",))
    rows = simulated.result_rows(plan, repetitions)
    rows = [row | changes if row["repetition"] == 0 else row for row in rows]
    results, prepared = simulated.write_tree(tmp_path, plan, rows)
    return check_page(write_report(results, prepared, plan, tmp_path / "report"))


@pytest.mark.parametrize(
    ("repetitions", "changes", "said"),
    [
        (1, {}, "n = 1, no interval from one run"),
        (1, {"value": float("nan")}, "no finite result"),
        (2, {}, "] n = 2<"),
        (3, {"value": float("nan")}, "n = 2, 1 diverged"),
    ],
)
def test_few_repetitions(tmp_path: Path, repetitions: int, changes: dict, said: str) -> None:
    assert said in partial(tmp_path, repetitions, **changes)


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    text = partial(tmp_path, 2, device="</script><script>alert(1)</script>")
    assert "<script>alert" not in text


def test_nothing_ran(tmp_path: Path) -> None:
    plan = simulated.study(missing=dict.fromkeys(simulated.DATASETS, "no network"))
    page = write_report(tmp_path / "results", tmp_path / "prepared", plan, tmp_path / "report")
    assert "Nothing has run yet" in check_page(page)


def test_a_leaking_split_an_excerpt_and_a_dirty_commit_say_so(tmp_path: Path) -> None:
    plan = simulated.study("gpu", ("uid", "pm"), ("lstm", "pf_lstm"))
    results, prepared = simulated.write_tree(tmp_path, plan, simulated.result_rows(plan, 2))
    for card in prepared.glob("uid*/card.json"):
        card.write_text(card.read_text().replace('"notes": []', '"notes": ["LEAKY ON PURPOSE: x"]'))
    for card in prepared.glob("pm*/card.json"):
        card.write_text(card.read_text().replace('"whole"', '"excerpt"'))
    (results / "final/uid/lstm-fixed-0123456789/run.json").write_text('{"dirty": true}')
    text = check_page(write_report(results, prepared, plan, tmp_path / "report"))
    assert '<small class="leaky">data: whole, leaky on purpose</small>' in text
    assert '<span class="leaky">whole, leaky on purpose</span>' in text
    assert "data are an excerpt" in text
    assert text.count(">0123456789ab-dirty<") == 1


def test_damaged_results_are_named(tmp_path: Path) -> None:
    plan = simulated.study("gpu", ("pm",), ("pf_lstm",))
    rows = simulated.result_rows(plan, 2)
    rows[3]["value"] = "many"
    results, _ = simulated.write_tree(tmp_path, plan, rows)
    with pytest.raises(RecordError, match=r"results.csv, column value.*'many'"):
        read_results(results / "results.csv")
    (tmp_path / "short.csv").write_text("tier,dataset\nquick,air\n")
    with pytest.raises(RecordError, match="variant"):
        read_results(tmp_path / "short.csv")
    with pytest.raises(RecordError, match="expected rows of tier quick, got gpu"):
        write_report(results, tmp_path, plan._replace(tier="quick"), tmp_path / "report")


def test_a_published_report_says_what_the_run_could_not_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = simulated.study("gpu", ("air", "arem"), ("lstm",), missing={"air": "no mirror"})
    results, prepared = simulated.write_tree(tmp_path, plan, simulated.result_rows(plan, 2))
    common = ["report", "--tier", "gpu", "--results", str(results), "--prepared", str(prepared)]
    assert main([*common, "--missing", "air=no mirror"]) == 0
    assert main([*common, "--out", str(tmp_path / "reports")]) == 0
    assert capsys.readouterr().out.count("missing: air: no mirror") == 2
    assert "no mirror" in check_page(tmp_path / "reports" / "index.html")
    # Had by now: its results say so.
    whole = plan._replace(missing={})
    frame = pd.DataFrame(simulated.result_rows(whole, 2), columns=list(RESULT_COLUMNS))
    frame.to_csv(results / "results.csv", index=False)
    simulated.write_card(prepared, "air")
    assert main([*common, "--out", str(tmp_path / "reports")]) == 0
    assert "missing: air" not in capsys.readouterr().out
