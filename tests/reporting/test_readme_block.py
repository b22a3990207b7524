"""The README's summary is the report's, and `pfrnn check` notices when it isn't."""

from pathlib import Path

import pytest
import simulated

from pfrnn.cli import main
from pfrnn.errors import RecordError
from pfrnn.reporting.readme import BEGIN, END, readme_difference, write_readme
from pfrnn.reporting.report import write_report

ROOT = Path(__file__).parents[2]


@pytest.fixture
def report(tmp_path: Path) -> Path:
    plan = simulated.study("gpu", ("maze10",), ("lstm", "pf_lstm"))
    results, prepared = simulated.write_tree(tmp_path, plan, simulated.result_rows(plan, 2))
    write_report(results, prepared, plan, tmp_path / "reports")
    return tmp_path / "reports"


def test_block_is_written_and_checked(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = report.parent / "README.md"
    readme.write_text(f"# Name\n\n{BEGIN}\nold\n{END}\n\nRest.\n")
    assert "README.md" in readme_difference(readme, report)
    command = ["check", "--reports", str(report), "--readme", str(readme)]
    assert main(command) == 1
    assert "its summary is not the report's" in capsys.readouterr().err
    again = ["report", "--tier", "gpu", "--results", str(report), "--out", str(report)]
    assert main([*again, "--readme", str(readme)]) == 0
    text = readme.read_text()
    assert "old" not in text
    assert text.startswith("# Name\n")
    assert text.endswith("\nRest.\n")
    assert "Commit 0123456789abcdef. Runs finished: 2026-11-28." in text
    assert "](reports/figures/localization.png)" in text
    assert main(command) == 0
    written = readme.read_bytes()
    write_readme(readme, report)
    assert readme.read_bytes() == written


def test_a_readme_without_markers_is_refused(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"{END}\n{BEGIN}\n")
    with pytest.raises(RecordError, match="put them back"):
        write_readme(readme, tmp_path)


def test_the_projects_readme_has_the_block() -> None:
    text = (ROOT / "README.md").read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    reports = ROOT / "reports"
    if (reports / "summary.md").is_file():
        assert readme_difference(ROOT / "README.md", reports) == ""
