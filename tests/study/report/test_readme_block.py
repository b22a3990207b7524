"""The README's summary is the report's, and `pfrnn check` notices when it isn't."""

import re
from pathlib import Path

import pytest
import simulated

from pfrnn.errors import RecordError
from pfrnn.study.cli import main
from pfrnn.study.report.readme import BEGIN, END, readme_difference, write_readme
from pfrnn.study.report.report import write_report

ROOT = Path(__file__).parents[3]


@pytest.fixture
def report(tmp_path: Path) -> Path:
    plan = simulated.study("gpu", ("maze10",), ("lstm", "pf_lstm"))
    results, prepared = simulated.write_tree(tmp_path, plan, simulated.result_rows(plan, 2))
    write_report(results, prepared, plan, tmp_path / "reports")
    return tmp_path / "reports"


def test_block_is_written_and_checked(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = report.parent / "README.md"
    readme.write_text(f"# Name\n\n{BEGIN}\nan earlier block\n{END}\n\nRest.\n")
    assert "README.md" in readme_difference(readme, report)
    command = ["check", "--reports", str(report), "--readme", str(readme)]
    assert main(command) == 1
    assert "its summary is not the report's" in capsys.readouterr().err
    again = ["report", "--tier", "gpu", "--results", str(report), "--out", str(report)]
    assert main([*again, "--readme", str(readme)]) == 0
    text = readme.read_text()
    assert "an earlier block" not in text
    assert text.startswith("# Name\n")
    assert text.endswith("\nRest.\n")
    assert "Commit 0123456789ab. Runs finished: 2026-11-28. Devices: " in text
    assert "](reports/figures/localization.png)" in text
    assert (report / "figures" / "localization.png").is_file()
    assert main(command) == 0
    written = readme.read_bytes()
    write_readme(readme, report)
    assert readme.read_bytes() == written


def row_of(summary: str, name: str) -> list[str]:
    (line,) = [line for line in summary.splitlines() if line.startswith(f"| {name} |")]
    return [text.strip() for text in line.strip("|").split("|")]


def test_ours_stand_beside_the_papers(tmp_path: Path) -> None:
    plan = simulated.study(
        "gpu", ("maze10", "air", "arem"), ("lstm", "pf_lstm"), missing={"air": "-"}
    )
    rows = simulated.result_rows(plan, 2)
    results, prepared = simulated.write_tree(tmp_path, plan, rows)
    write_report(results, prepared, plan, tmp_path / "reports")
    summary = (tmp_path / "reports" / "summary.md").read_text()
    head = row_of(summary, "data set")
    assert head == ["data set", "metric", "LSTM", "PF-LSTM", "GRU", "PF-GRU", "data"]
    arem = row_of(summary, "arem")
    values = [one["value"] for one in rows if (one["dataset"], one["variant"]) == ("arem", "lstm")]
    lstm = re.fullmatch(r"([0-9.]+) \[[0-9.]+, [0-9.]+\] \(([0-9.]+)\) [●▲▼≈∼↑↓↔→○]", arem[2])
    assert lstm
    assert float(lstm[1]) == pytest.approx(sum(values) / 2, abs=0.05)
    assert float(lstm[2]) == simulated.paper_value("arem", "lstm", "fixed")
    # What did not run has the paper's number alone; what the paper doesn't print, ours alone.
    assert re.fullmatch(r"– \([0-9.]+\)", arem[4])
    assert re.fullmatch(r"[0-9.]+ \[[−0-9.]+, [0-9.]+\]", row_of(summary, "maze10")[2])
    assert "| air |" not in summary
    assert summary.count(".png)") == 1


def test_a_readme_without_markers_is_refused(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"{END}\n{BEGIN}\n")
    with pytest.raises(RecordError, match="put them back"):
        write_readme(readme, tmp_path)


def test_the_projects_readme_has_the_block() -> None:
    text = (ROOT / "README.md").read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    assert readme_difference(ROOT / "README.md", ROOT / "reports") == ""
