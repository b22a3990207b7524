"""Any part of the results gives whole tables: random subsets, diverged runs, unknown errors."""

import re
from pathlib import Path

import numpy as np
import pytest
import simulated

from pfrnn.study.report.cells import Lookup
from pfrnn.study.report.claims import (
    claims_csv,
    claims_markdown,
    judge_claims,
    judge_strata,
    strata_csv,
)
from pfrnn.study.report.collect import collect
from pfrnn.study.report.counted_claims import counted_claims, counted_markdown
from pfrnn.study.report.evidence import read_evidence
from pfrnn.study.report.localization import localization_matrix
from pfrnn.study.report.matrices import Records, paper_matrix
from pfrnn.study.report.summary_table import all_cells
from pfrnn.study.report.tables import latex, markdown, tidy_csv

BAD = re.compile(r"\b(nan|none|inf|undefined)\b", re.IGNORECASE)
FULL = simulated.study("gpu", variants=tuple(simulated.VARIANTS), size_rules=("fixed", "best"))
ROWS = simulated.result_rows(FULL, 3)


@pytest.mark.parametrize("seed", range(12))
def test_random_parts(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sets = set(rng.choice(simulated.DATASETS, size=int(rng.integers(1, 14)), replace=False))
    keep = rng.random(len(ROWS)) < rng.choice([0.02, 0.3, 0.9, 1.0])
    rows = [
        dict(row) for row, kept in zip(ROWS, keep, strict=True) if kept and row["dataset"] in sets
    ]
    for row in rows:
        for column in ("value", "sampling_error", "n_test", "parameters", "final_seconds"):
            if rng.random() < 0.05:
                row[column] = rng.choice([float("nan"), 0.0, float("inf")])
    results, prepared = simulated.write_tree(tmp_path, FULL, rows, finals=False)
    collect(results, prepared, FULL, tmp_path / "report")
    lookup = Lookup(read_evidence(tmp_path / "report"))
    cells, claims, records = all_cells(lookup), judge_claims(lookup), Records(lookup)
    texts = [tidy_csv(cells), claims_csv(claims), claims_markdown(claims, "")]
    texts.append(strata_csv(judge_strata(claims, "gpu")))
    texts.append(counted_markdown(counted_claims(lookup)))
    for table in range(1, 6):
        texts += [markdown(cells, table, ""), latex(cells, table, "")]
        texts.append(str(_shown(paper_matrix(cells, lookup, records, table))))
    texts.append(str(_shown(localization_matrix(cells, lookup, records))))
    texts += [value for record in records.records for _, value in record.lines]
    for text in texts:
        assert not BAD.search(text), BAD.search(text)
    assert len(cells) == 314
    assert all(cell.verdict.interval is None for cell in cells if cell.ours and cell.ours.n < 2)
    assert all(cell.ours.interval is None for cell in cells if cell.ours and cell.ours.n < 2)


def _shown(matrix) -> list[str]:  # type: ignore[no-untyped-def]
    views = [cell for row in matrix.rows for cell in row.cells]
    assert all(cell.ours for cell in views)
    return [" ".join((c.ours, c.spread, c.paper, c.difference, c.word, c.reason)) for c in views]
