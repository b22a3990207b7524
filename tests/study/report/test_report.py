"""Reports from whole and from partial results: nothing blank, no NaN, stable bytes."""

import html
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
import simulated

from pfrnn.errors import RecordError
from pfrnn.study.cli import main
from pfrnn.study.cli.report import study_of
from pfrnn.study.records import RESULT_COLUMNS
from pfrnn.study.report.evidence import read_results
from pfrnn.study.report.report import render, write_report

REDUCED = "Tier quick: small training; not a reproduction of the paper's number."
VOID = {"meta", "link", "br", "input", "img", "hr"}


class Page(HTMLParser):
    """Collects what a reader's browser would need, and checks that elements close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.cells: list[str] = []
        self._cell: list[str] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if values.get("id"):
            self.ids.append(str(values["id"]))
        self.references += [str(values[k]) for k in ("href", "src", "xlink:href") if values.get(k)]
        if tag in ("td", "th"):
            self._cell = []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag in ("td", "th") and self._cell is not None:
            self.cells.append("".join(self._cell).strip())
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)


def check_page(path: Path) -> str:
    """What holds for every page; return its text."""
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    # Opens from disk without a network: every reference is inside the page.
    for reference in page.references:
        assert reference.startswith(("#", "data:")), reference
        assert reference[1:] in page.ids or reference.startswith("data:")
    assert "@import" not in text
    assert all(page.cells), "a blank cell"
    visible = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    visible = re.sub(r"<[^>]+>", " ", visible)
    assert not re.search(r"\b(nan|NaN|None|inf|undefined)\b", visible)
    return text


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quick")
    missing = {"air": "no file, no mirror, no network"}
    plan = simulated.study(datasets=("maze10", "air", "arem"), missing=missing)
    results, prepared = simulated.write_tree(folder, plan, simulated.result_rows(plan, 3))
    write_report(results, prepared, plan, folder / "report")
    return folder / "report"


def test_page_of_a_reduced_tier(quick: Path) -> None:
    text = check_page(quick / "index.html")
    assert text.count("small training; not a reproduction of the paper&#39;s number") >= 4
    assert "(reduced tier)" in text
    for verdict in ("consistent", "better", "worse"):
        assert f'class="verdict v-{verdict}"' not in text
    assert len(text) < 4_000_000


def test_missing_set_says_why_and_how_to_add_it(quick: Path) -> None:
    text = (quick / "index.html").read_text(encoding="utf-8")
    assert "no file, no mirror, no network" in text
    assert "PFRNN_DATA_MIRROR" in text
    assert "data/raw/air/" in text
    assert "FILE.csv" in text


def test_page_shows_figures_controls_device_and_commit(quick: Path) -> None:
    text = (quick / "index.html").read_text(encoding="utf-8")
    assert text.count("<svg") >= 6
    for shown in ("control: map centre", "control: exact posterior", "control: majority"):
        assert shown in text
    assert "test device" in text
    assert "0123456789ab" in text
    assert 'id="belief-data"' in text


def test_tables_stand_beside_the_page(quick: Path) -> None:
    csv = (quick / "tables" / "cells.csv").read_text(encoding="utf-8")
    assert len(csv.splitlines()) == 1 + 314
    assert REDUCED in (quick / "tables" / "table1.md").read_text(encoding="utf-8")
    assert r"\toprule" in (quick / "tables" / "table2.tex").read_text(encoding="utf-8")
    assert (quick / "figures" / "learning-arem.pdf").is_file()


def test_same_evidence_same_bytes(quick: Path, tmp_path: Path) -> None:
    render(quick, tmp_path)
    for path in sorted(tmp_path.rglob("*")):
        if path.is_file():
            assert path.read_bytes() == (quick / path.relative_to(tmp_path)).read_bytes(), path


def test_an_evidence_folder_is_rendered_as_it_stands(quick: Path, tmp_path: Path) -> None:
    page = write_report(quick, tmp_path / "none", simulated.study(), tmp_path)
    assert page.read_bytes() == (quick / "index.html").read_bytes()


def test_commands_name_the_studys_parameter_files(quick: Path, tmp_path: Path) -> None:
    """Evidence of params.yaml alone, as all was once, names none."""
    study = json.loads((quick / "data" / "study.json").read_text(encoding="utf-8"))
    assert "parameter_files" not in study
    plain = (quick / "index.html").read_text(encoding="utf-8")
    assert "--configfile" not in plain
    assert "--params" not in plain
    shutil.copytree(quick, tmp_path / "own")
    named = study | {"parameter_files": ["mine.yaml", "my own.yaml"]}
    (tmp_path / "own" / "data" / "study.json").write_text(json.dumps(named), encoding="utf-8")
    text = html.unescape(render(tmp_path / "own", tmp_path / "own").read_text(encoding="utf-8"))
    assert "snakemake -n -q --configfile mine.yaml 'my own.yaml' --config tier=quick -- " in text
    assert "--resources gpu=1 --configfile mine.yaml 'my own.yaml' --config tier=quick" in text
    assert "--tier quick --params 'params.yaml,mine.yaml,my own.yaml'" in text


def test_a_commit_is_marked_where_the_source_had_other_changes(tmp_path: Path) -> None:
    plan = simulated.study("gpu", ("air",), ("lstm", "pf_lstm"))
    results, prepared = simulated.write_tree(tmp_path, plan, simulated.result_rows(plan, 2))
    finals = sorted(results.glob("final/air/*/run.json"))
    commit, block = "0123456789abcdef", "search/air/gru/h80-k0-b64-0123456789"
    (results / block).mkdir(parents=True)
    run = {"data_digest": "1", "commit": commit, "wall_seconds": 1, "dirty": True}
    run |= {"machine": {"device_name": "test device"}}

    def texts() -> dict[str, str]:
        page = write_report(results, prepared, plan, tmp_path / "report")
        names = ("index.html", "summary.md", "tables/cost.csv")
        return {name: (page.parent / name).read_text(encoding="utf-8") for name in names}

    for path in finals:
        path.write_text(json.dumps({"dirty": False}), encoding="utf-8")
    assert not any("dirty" in text for text in texts().values())
    finals[0].write_text(json.dumps({"dirty": True}), encoding="utf-8")
    (results / block / "run.json").write_text(json.dumps(run), encoding="utf-8")
    found = texts()
    page = html.unescape(found["index.html"])
    assert page.count(f">{commit[:12]}-dirty<") == 1  # the runs' table, one line of two
    assert f'["commit","{commit}-dirty"]' in page
    for name in ("index.html", "summary.md"):
        text = html.unescape(found[name])
        assert f"Commit {commit}, {commit}-dirty (dirty: the source had changes" in text
    marked = [line for line in found["tables/cost.csv"].splitlines() if "-dirty" in line]
    final = finals[0].parent.relative_to(results).as_posix()
    assert [line.partition(",")[0] for line in marked] == [final, block]


def test_a_study_records_its_parameter_files(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("study: {variants: [gru]}\n", encoding="utf-8")
    study = study_of(f"params.yaml,{own}", "quick", {})
    assert study.recorded()["parameter_files"] == (str(own),)
    assert "parameter_files" not in study_of("params.yaml", "quick", {}).recorded()


def partial(tmp_path: Path, repetitions: int, **changes: object) -> str:
    """Report one data set and one variant; ``changes`` overwrite the first result row."""
    plan = simulated.study("gpu", ("pm",), ("pf_lstm",))
    rows = simulated.result_rows(plan, repetitions)
    if changes:
        rows = [row | changes if row["repetition"] == 0 else row for row in rows]
    results, prepared = simulated.write_tree(tmp_path, plan, rows)
    return check_page(write_report(results, prepared, plan, tmp_path / "report"))


def test_one_repetition_has_no_interval(tmp_path: Path) -> None:
    text = partial(tmp_path, 1)
    assert "n = 1, no interval from one run" in text
    assert "one repetition" in text


def test_two_repetitions_have_one(tmp_path: Path) -> None:
    assert re.search(r"\[[\d.]+, [\d.]+\] n = 2", partial(tmp_path, 2))


def test_a_diverged_repetition_is_counted_and_left_out(tmp_path: Path) -> None:
    text = partial(tmp_path, 3, value=float("nan"))
    assert "n = 2, 1 diverged" in text


def test_all_repetitions_diverged(tmp_path: Path) -> None:
    text = partial(tmp_path, 1, value=float("nan"))
    assert "no finite result" in text


def test_nothing_ran(tmp_path: Path) -> None:
    plan = simulated.study(missing=dict.fromkeys(simulated.DATASETS, "no network"))
    page = write_report(tmp_path / "results", tmp_path / "prepared", plan, tmp_path / "report")
    assert "Nothing has run yet" in check_page(page)


def test_what_has_no_figure_is_not_said_to_have_no_history(tmp_path: Path) -> None:
    plan = simulated.study("quick_all", ("arem",), ("bayes_lstm",))
    results, prepared = simulated.write_tree(tmp_path, plan, simulated.result_rows(plan, 2))
    text = check_page(write_report(results, prepared, plan, tmp_path / "report"))
    assert "No final of the four main models has left a history yet" in text
    assert "Not run: maze10, maze18, maze27." in text


def test_an_excerpt_gets_a_direction_only(tmp_path: Path) -> None:
    plan = simulated.study("gpu", ("pm",))
    results, prepared = simulated.write_tree(tmp_path, plan, simulated.result_rows(plan))
    for card in prepared.glob("*/card.json"):
        card.write_text(card.read_text().replace('"whole"', '"excerpt"'))
    text = check_page(write_report(results, prepared, plan, tmp_path / "report"))
    assert "order against LSTM; data are an excerpt" in text
    assert "data: excerpt" in text


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    text = partial(tmp_path, 2, device="</script><script>alert(1)</script>")
    assert "<script>alert" not in text


def test_damaged_results_name_line_and_column(tmp_path: Path) -> None:
    plan = simulated.study("gpu", ("pm",), ("pf_lstm",))
    rows = simulated.result_rows(plan, 2)
    rows[3]["value"] = "many"
    results, _ = simulated.write_tree(tmp_path, plan, rows)
    with pytest.raises(RecordError, match=r"line 5, column value.*'many'"):
        read_results(results / "results.csv")
    (tmp_path / "short.csv").write_text("tier,dataset\nquick,air\n")
    with pytest.raises(RecordError, match="variant"):
        read_results(tmp_path / "short.csv")
    for damage in (b"", b"\xff\xfe\x00\xd8" * 20):
        (tmp_path / "damaged.csv").write_bytes(damage)
        with pytest.raises(RecordError, match=r"damaged\.csv: expected a table"):
            read_results(tmp_path / "damaged.csv")


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["report", "--tier", "quick", "--results", str(tmp_path), "--out", str(tmp_path)]
    options += ["--prepared", str(tmp_path / "prepared"), "--missing", "air=no network"]
    assert main(options) == 0
    assert "missing: air: no network" in capsys.readouterr().out
    assert "no network" in check_page(tmp_path / "index.html")
    with pytest.raises(SystemExit, match="2"):
        main(["report", "--tier", "quick", "--missing", "air"])
    assert "SET=REASON" in capsys.readouterr().err


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


def test_a_leaking_split_says_so(tmp_path: Path) -> None:
    plan = simulated.study("gpu", ("uid",), ("lstm",))
    results, prepared = simulated.write_tree(tmp_path, plan, simulated.result_rows(plan, 2))
    for card in prepared.glob("*/card.json"):
        card.write_text(card.read_text().replace('"notes": []', '"notes": ["LEAKY ON PURPOSE: x"]'))
    text = check_page(write_report(results, prepared, plan, tmp_path / "report"))
    assert '<small class="leaky">data: whole, leaky on purpose</small>' in text
    assert '<span class="leaky">whole, leaky on purpose</span>' in text
    assert ".leaky { color: var(--danger)" in text


def test_results_of_another_tier_are_refused(tmp_path: Path) -> None:
    plan = simulated.study("quick", ("pm",), ("lstm",))
    results, prepared = simulated.write_tree(tmp_path, plan, simulated.result_rows(plan, 2))
    with pytest.raises(RecordError, match="expected rows of tier gpu, got quick"):
        write_report(results, prepared, plan._replace(tier="gpu"), tmp_path / "report")
