"""Templates and the paper's table belong to the report's source."""

import shutil
from pathlib import Path

import pytest

from pfrnn.study.provenance import PACKAGE_ROOT, source_digest
from pfrnn.study.report import assets


@pytest.mark.parametrize("name", assets.FOLDERS)
def test_an_edit_of_a_file_changes_the_reports_source(name: str, tmp_path: Path) -> None:
    root = tmp_path / PACKAGE_ROOT.name
    shutil.copytree(PACKAGE_ROOT, root, ignore=shutil.ignore_patterns("__pycache__"))
    before = source_digest("pfrnn.study.report.report", root=root)
    assert before == source_digest("pfrnn.study.report.report")
    assert assets.asset(name)
    path = root / "study" / "report" / assets.FOLDERS[name] / name
    path.write_bytes(path.read_bytes() + b"\n")
    source_digest.cache_clear()
    assert source_digest("pfrnn.study.report.report", root=root) != before
