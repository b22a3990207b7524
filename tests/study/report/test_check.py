"""`pfrnn check` finds each kind of file that no longer follows from the evidence."""

import shutil
from pathlib import Path

import pytest
import simulated

from pfrnn.study.cli import main
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
    for name in ("tables/cells.csv", "tables/table1.md", "index.html"):
        assert name in found


def test_edited_texts_are_found(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replace(report / "claims.md", "undecided", "holds")
    replace(report / "tables" / "table1.md", "paper 18.34", "paper 18.35")
    replace(report / "index.html", "Summary", "Victory")
    (report / "tables" / "table2.tex").unlink()
    (report / "figures" / "learning.pdf").unlink()
    assert main(["check", "--reports", str(report)]) == 1
    said = capsys.readouterr().err
    for name in ("claims.md", "index.html", "table1.md", "table2.tex", "learning.pdf"):
        assert name in said
    assert "make report" in said


def test_a_fresh_report_follows_also_with_another_matplotlib(report: Path) -> None:
    assert check_report(report) == []
    replace(report / "figures" / "digests.json", '"matplotlib": "', '"matplotlib": "0.')
    (report / "index.html").write_text("drawn by another matplotlib")
    assert check_report(report) == []


@pytest.mark.parametrize("name", ["data/study.json", "data/histories.csv", "results.csv"])
def test_damaged_evidence_is_named(
    report: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (report / name).write_bytes(b"{")
    assert main(["check", "--reports", str(report)]) == 1
    assert str(report / name) in capsys.readouterr().err
