"""The one-at-a-time table between the paper's text and the authors' release."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simulated
from test_latex import HEAD

from pfrnn.study.cli.report import study_of
from pfrnn.study.evaluate.statistics import t_interval
from pfrnn.study.files import read_json
from pfrnn.study.report.cells import Lookup
from pfrnn.study.report.collect import collect
from pfrnn.study.report.evidence import Study, read_evidence
from pfrnn.study.report.fidelity import fidelity_rows
from pfrnn.study.report.fidelity_table import HEADER, fidelity_part, write_fidelity
from pfrnn.study.report.report import render
from pfrnn.study.variants import FIDELITY

FILES = {"fidelity.csv", "fidelity.md", "fidelity.tex"}


def study(tier: str = "gpu", rows: tuple[str, ...] = tuple(FIDELITY)) -> Study:
    plan = simulated.study(tier, ("maze10", "air"), ("lstm", "pf_lstm"))
    own = {"maze10": ["lstm", "pf_lstm", *FIDELITY]} if rows else None
    return plan._replace(own_variants=own)


def rows_of(plan: Study, names: tuple[str, ...], factor: float = 1.0) -> list[dict[str, Any]]:
    """The plan's rows and some of the family's, those moved in their dropout larger by a factor."""
    rows = simulated.result_rows(plan)
    family = simulated.result_rows(plan._replace(datasets=("maze10",), variants=names))
    for row in family:
        if row["variant"] == "pf_lstm_paper_dropout":
            row["value"] *= factor
    return rows + family


def folder_of(tmp_path: Path, plan: Study, rows: list[dict[str, Any]]) -> Path:
    results, prepared = simulated.write_tree(tmp_path, plan, rows, finals=False)
    collect(results, prepared, plan, tmp_path / "report")
    return tmp_path / "report"


def lookup_of(tmp_path: Path, plan: Study, rows: list[dict[str, Any]]) -> Lookup:
    return Lookup(read_evidence(folder_of(tmp_path, plan, rows)))


def test_differences_are_paired_by_repetition(tmp_path: Path) -> None:
    plan = study()
    rows = rows_of(plan, tuple(FIDELITY), factor=3.0)
    # Two rows that lack another repetition each: four pairs are left, not five of six.
    lost = {("pf_lstm_paper", 1), ("pf_lstm_paper_dropout", 4)}
    rows = [row for row in rows if (row["variant"], row["repetition"]) not in lost]
    found = {row.model.name: row for row in fidelity_rows(lookup_of(tmp_path, plan, rows))}
    assert list(found) == list(FIDELITY)
    values = {
        (row["variant"], row["metric"], row["repetition"]): row["value"]
        for row in rows
        if row["dataset"] == "maze10"
    }
    names = ("last_step_mse", "all_steps_mse")
    by_hand = [
        np.array(
            [
                values["pf_lstm_paper_dropout", metric, r] - values["pf_lstm_paper", metric, r]
                for r in (0, 2, 3, 5)
            ]
        )
        for metric in names
    ]
    row = found["pf_lstm_paper_dropout"]
    for difference, expected in zip((row.to_text, row.all_steps_to_text), by_hand, strict=True):
        assert difference is not None
        assert difference.n == 4
        assert difference.mean == pytest.approx(expected.mean())
        assert difference.interval == pytest.approx(t_interval(expected, 0.95))
    assert row.to_release is None
    assert found["pf_lstm_paper"].to_text is None
    back = found["pf_lstm_release_loss"]
    assert back.to_release is not None
    gap = [
        values["pf_lstm_release_loss", names[0], r] - values["pf_lstm_release", names[0], r]
        for r in range(6)
    ]
    assert back.to_release.mean == pytest.approx(np.mean(gap))
    assert {row.printed.printed.text for row in found.values() if row.printed} == {"0.10"}


def listed(text: str) -> list[str]:
    """The rows that a sentence names."""
    return re.findall(r"PF-LSTM \([^()]*\)", text)


def test_the_section_says_which_switch_matters_and_what_fits(tmp_path: Path) -> None:
    plan = study()
    lookup = lookup_of(tmp_path, plan, rows_of(plan, tuple(FIDELITY), factor=3.0))
    part = fidelity_part(lookup)
    assert part is not None
    said = part.paragraphs[-1]
    assert "leaves zero out for" in said
    assert "PF-LSTM (text + dropout) (+0.19" in said
    outside, _, rest = said.partition("printed 0.10 for PF-LSTM lies")[2].partition(", inside")
    inside, _, narrow = rest.partition("Narrow enough")
    verdicts = {row.texts[0]: row.texts[-1] for row in part.tables[0].rows}
    for name, verdict in verdicts.items():
        far = verdict[2:] in ("worse", "better")
        assert [name in listed(outside), name in listed(inside)] == [far, not far]
        assert (name in listed(narrow)) == (verdict[2:] == "consistent")
    assert "worse" in verdicts["PF-LSTM (text + dropout)"]
    assert "worse" not in verdicts["PF-LSTM (text)"]
    assert len(part.tables) == 1
    assert [row.variant for row in part.tables[0].rows] == list(FIDELITY)
    assert {len(row.texts) for row in part.tables[0].rows} == {len(HEADER)}


def test_a_reduced_tier_concludes_nothing(tmp_path: Path) -> None:
    plan = study("quick")
    part = fidelity_part(lookup_of(tmp_path, plan, rows_of(plan, tuple(FIDELITY), 3.0)))
    assert part is not None
    assert part.paragraphs[-1] == "maze10: no conclusion from a reduced tier."
    assert all("reduced tier" in row.texts[-1] for row in part.tables[0].rows)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    plan = study()
    names = ("pf_lstm_paper_dropout", "pf_lstm_release_loss")
    part = fidelity_part(lookup_of(tmp_path, plan, rows_of(plan, names)))
    assert part is not None
    missing = part.paragraphs[-1]
    assert missing.startswith("Missing: PF-LSTM (text) on maze10: no result yet; ")
    assert missing.count("on maze10") == len(FIDELITY) - 2
    texts = {row.variant: row.texts for row in part.tables[0].rows}
    # Without the row to compare with there is a mean and no difference.
    assert texts["pf_lstm_paper_dropout"][3] != "–"
    assert texts["pf_lstm_paper_dropout"][5:7] == ("–", "–")
    unplanned = part.paragraphs[-1].replace("no result yet", "variant not in tier gpu")
    bare = study(rows=())
    part = fidelity_part(lookup_of(tmp_path / "bare", bare, rows_of(bare, names)))
    assert part is not None
    assert part.paragraphs[-1] == unplanned


def test_without_rows_there_is_no_section_and_no_file(tmp_path: Path) -> None:
    plan = study()
    lookup = lookup_of(tmp_path, plan, rows_of(plan, ()))
    assert fidelity_part(lookup) is None
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "fidelity.csv").write_text("of an earlier study")
    write_fidelity(lookup, folder)
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_the_papers_tables_are_the_same_with_and_without(tmp_path: Path) -> None:
    plan = study()
    pages, tables = [], []
    for name, rows in (("with", tuple(FIDELITY)), ("without", ())):
        folder = folder_of(tmp_path / name, plan, rows_of(plan, rows))
        pages.append(render(folder, folder).read_text(encoding="utf-8"))
        # The cost's table is no table of the paper: it counts every job.
        files = [*(folder / "tables").iterdir(), folder / "claims.md"]
        kept = [path for path in files if path.stem != "cost"]
        tables.append({path.name: path.read_bytes() for path in kept})
    assert set(tables[0]) - set(tables[1]) == FILES
    assert {name: text for name, text in tables[0].items() if name not in FILES} == tables[1]
    assert '<section id="fidelity"><h2>Fidelity: which switch matters</h2>' in pages[0]
    assert '<option value="pf_lstm_paper_loss">PF-LSTM (text + loss)</option>' in pages[0]
    assert "pf_lstm_paper" not in pages[1]
    assert 'id="fidelity"' not in pages[1]


def test_files(tmp_path: Path) -> None:
    plan = study()
    lookup = lookup_of(tmp_path, plan, rows_of(plan, tuple(FIDELITY)[1:]))
    folder = tmp_path / "tables"
    write_fidelity(lookup, folder)
    assert {path.name for path in folder.iterdir()} == FILES
    rows = list(csv.DictReader(io.StringIO((folder / "fidelity.csv").read_text("utf-8"))))
    assert [row["variant"] for row in rows] == list(FIDELITY)
    assert rows[0]["verdict"] == "not run"
    assert rows[0]["mean"] == ""
    assert (rows[2]["switch"], rows[2]["value"]) == ("batch_norm", "particle_slot")
    assert {row["paper"] for row in rows} == {"0.10"}
    lines = (folder / "fidelity.md").read_text("utf-8").splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + len(FIDELITY)
    assert {line.count("|") for line in table} == {len(HEADER) + 1}
    tex = (folder / "fidelity.tex").read_text("utf-8")
    body = [line for line in tex.splitlines() if line.endswith(r"\\")]
    assert {line.count(" & ") for line in body} == {7}
    assert tex.isascii()


def test_the_latex_compiles(tmp_path: Path) -> None:
    latex = shutil.which("pdflatex") or shutil.which("lualatex")
    if latex is None:
        pytest.skip("no LaTeX here (Debian: texlive-latex-recommended)")
    plan = study()
    write_fidelity(lookup_of(tmp_path, plan, rows_of(plan, tuple(FIDELITY))), tmp_path)
    text = HEAD + r"\input{fidelity}" + "\n" + r"\end{document}" + "\n"
    (tmp_path / "all.tex").write_text(text, encoding="utf-8")
    command = [latex, "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_a_tiers_study_names_the_data_sets_that_have_variants_of_their_own(tmp_path: Path) -> None:
    plan = study_of("params.yaml", "gpu", {})
    assert plan.own_variants is not None
    assert list(plan.own_variants) == ["maze10"]
    assert set(FIDELITY) <= set(plan.variants_of("maze10"))
    assert not set(FIDELITY) & set(plan.variants_of("air"))
    assert study_of("params.yaml", "quick", {}).own_variants == {}
    folder = folder_of(tmp_path, study(), rows_of(study(), ()))
    written = read_json(folder / "data" / "study.json")
    assert written["own_variants"]["maze10"][-1] == "pf_lstm_release_dropout"
