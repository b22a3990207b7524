"""`pfrnn check` finds each kind of file that no longer follows from the evidence."""

import json
import shutil
from pathlib import Path

import pytest
import simulated

from pfrnn.study.cli import main
from pfrnn.study.files import sha256_file
from pfrnn.study.report.check import check_report
from pfrnn.study.report.report import write_report


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("check")
    plan = simulated.study("paper", ("air",), ("lstm", "pf_lstm"))
    results, prepared = simulated.write_tree(folder, plan, simulated.result_rows(plan, 3))
    write_report(results, prepared, plan, folder / "report")
    return folder / "report"


@pytest.fixture
def report(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "reports")
    return tmp_path / "reports"


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_one_changed_result_is_found_everywhere(report: Path) -> None:
    lines = (report / "results.csv").read_text(encoding="utf-8").splitlines()
    cells = lines[3].split(",")
    assert cells[13] == "mse"
    cells[14] = str(float(cells[14]) * 3)
    lines[3] = ",".join(cells)
    (report / "results.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = " ".join(check_report(report))
    for name in ("tables/cells.csv", "tables/table1.md", "index.html", "figures/cost-seconds"):
        assert name in found


def test_edited_texts_are_found(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replace(report / "claims.md", "undecided", "holds")
    replace(report / "tables" / "table1.md", "paper 18.34", "paper 18.35")
    replace(report / "index.html", "Summary", "Victory")
    assert main(["check", "--reports", str(report)]) == 1
    lines = capsys.readouterr().err.splitlines()
    for line, name in zip(lines, ("claims.md", "index.html", "tables/table1.md"), strict=False):
        assert name in line
    assert len(lines) == 4
    assert "make report" in lines[-1]


def test_an_edited_figure_is_found_even_with_its_digest(report: Path) -> None:
    figure = report / "figures" / "learning-air.png"
    figure.write_bytes(figure.read_bytes() + b"\0")
    assert check_report(report) == ["figures/learning-air.png: changed by hand, or its digest was"]
    digests = report / "figures" / "digests.json"
    stored = json.loads(digests.read_text())
    stored["figures"]["learning-air"]["png"] = sha256_file(figure)
    digests.write_text(json.dumps(stored))
    assert check_report(report) == ["figures/learning-air.png: not what the evidence renders to"]


def test_a_fresh_report_follows_also_with_another_matplotlib(
    report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--reports", str(report)]) == 0
    assert "everything follows" in capsys.readouterr().out
    replace(report / "figures" / "digests.json", '"matplotlib": "', '"matplotlib": "0.')
    assert check_report(report) == []


def test_missing_and_superfluous_files(report: Path) -> None:
    (report / "tables" / "table2.tex").unlink()
    (report / "tables" / "table9.md").write_text("a table\n")
    (report / "figures" / "learning-air.pdf").unlink()
    assert check_report(report) == [
        "figures/learning-air.pdf: missing",
        "tables/table2.tex: missing",
        "tables/table9.md: nothing in the evidence gives this file",
    ]


def test_no_report_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--reports", str(tmp_path)]) == 1
    assert "results.csv: no such file" in capsys.readouterr().err


def test_a_figure_that_nothing_gives_is_found(report: Path) -> None:
    shutil.copy(report / "figures" / "learning-air.png", report / "figures" / "learning-pm.png")
    assert check_report(report) == [
        "figures/learning-pm.png: nothing in the evidence gives this figure"
    ]


def test_figures_of_an_earlier_report_are_removed(report: Path, tmp_path: Path) -> None:
    plan = simulated.study("paper", ("pm",), ("lstm", "pf_lstm"))
    results, prepared = simulated.write_tree(tmp_path, plan, simulated.result_rows(plan, 3))
    mine = report / "figures" / "mine.png"
    mine.write_bytes(b"")
    write_report(results, prepared, plan, report)
    assert (report / "figures" / "learning-pm.png").is_file()
    assert not (report / "figures" / "learning-air.png").exists()
    assert mine.is_file()


DAMAGE = {
    "empty": lambda whole: b"",
    "cut": lambda whole: whole[: len(whole) // 2],
    "other bytes": lambda whole: bytes(range(128, 256)) + b"\0",
    "a list": lambda whole: b"[]\n",
    "other entries": lambda whole: b'{"a": 1}\n',
}
EVIDENCE = ("study", "cards", "runs", "choices", "series", "beliefs", "sequences", "blocks")


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(
    "name",
    [f"data/{name}.json" for name in EVIDENCE]
    + ["data/histories.csv", "results.csv", "figures/digests.json"],
)
def test_damaged_evidence_is_named_with_its_cure(
    report: Path, name: str, damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = report / name
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    commands = [["check", "--reports", str(report)]]
    if not name.startswith("figures"):  # a report writes them anew
        commands.append(["report", "--results", str(report), "--out", str(tmp_path / "out")])
    for command in commands:
        capsys.readouterr()
        assert main(command) == 1
        told = capsys.readouterr().err
        assert str(path) in told
        assert "take the committed" in told


def test_a_report_replaces_digests_that_are_damaged(report: Path, tmp_path: Path) -> None:
    path = report / "figures" / "digests.json"
    path.write_text("{")
    assert main(["report", "--results", str(report), "--out", str(report)]) == 0
    assert main(["check", "--reports", str(report)]) == 0
