"""The LaTeX tables compile in a minimal document, where a LaTeX with booktabs is installed."""

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import simulated

from pfrnn.study.evaluate.statistics import Interval
from pfrnn.study.report.cells import Lookup
from pfrnn.study.report.collect import collect
from pfrnn.study.report.evidence import read_evidence
from pfrnn.study.report.outputs import write_tables
from pfrnn.study.report.summary_table import all_cells
from pfrnn.study.report.tables import _latex_cell, escape

HEAD = r"""\documentclass{article}
\usepackage{booktabs}
\usepackage{amssymb}
\usepackage[landscape,margin=0.2in]{geometry}
\begin{document}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp_path = tmp_path_factory.mktemp("latex")
    plan = simulated.study("gpu", variants=tuple(simulated.VARIANTS), size_rules=("fixed", "best"))
    rows = simulated.result_rows(plan, 2)
    results, prepared = simulated.write_tree(tmp_path, plan, rows, finals=False)
    collect(results, prepared, plan, tmp_path / "report")
    lookup = Lookup(read_evidence(tmp_path / "report"))
    write_tables(all_cells(lookup), lookup, tmp_path / "tables")
    return tmp_path / "tables"


def test_every_row_has_every_column(folder: Path) -> None:
    for table in range(1, 6):
        lines = (folder / f"table{table}.tex").read_text(encoding="utf-8").splitlines()
        columns = next(line for line in lines if line.startswith(r"\begin{tabular}"))
        count = len(columns.partition("}{")[2].rstrip("}"))
        rows = [line for line in lines if line.endswith(r"\\")]
        assert {line.count(" & ") for line in rows} == {count - 1}


def test_escaping() -> None:
    assert escape("50 % of a_b & c^2 #1") == r"50 \% of a\_b \& c\^{}2 \#1"


def test_tables_compile(folder: Path) -> None:
    latex = shutil.which("pdflatex") or shutil.which("lualatex")
    if latex is None:
        pytest.skip("no LaTeX here (Debian: texlive-latex-recommended)")
    body = "".join(rf"\input{{table{table}.tex}}" + "\n" for table in range(1, 6))
    (folder / "all.tex").write_text(HEAD + body + r"\end{document}" + "\n", encoding="utf-8")
    command = [latex, "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_an_interval_that_is_cut_at_zero_keeps_its_half_width() -> None:
    """Three values with mean 0.237 and half width 0.782: the lower end is cut, not the width."""
    ours = SimpleNamespace(mean=0.237, interval=Interval(0.0, 1.019, 0.95, 3, "t"))
    printed = SimpleNamespace(text="0.10")
    cell: Any = SimpleNamespace(
        ours=ours,
        number=SimpleNamespace(printed=printed),
        verdict=SimpleNamespace(word="too noisy to say"),
    )
    assert "0.237$\\pm$0.782 (0.10)" in _latex_cell(cell)
