"""The files beside the page: tables, claims, figures with their digests."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

from pfrnn.study.files import read_json, sha256_file, write_json, write_text
from pfrnn.study.report import tables
from pfrnn.study.report.cells import Cell, Lookup
from pfrnn.study.report.claims import (
    ClaimResult,
    StratumResult,
    claims_csv,
    claims_markdown,
    strata_csv,
)
from pfrnn.study.report.cost import write_cost
from pfrnn.study.report.counted_claims import CountedClaim, counted_markdown
from pfrnn.study.report.fidelity_table import write_fidelity
from pfrnn.study.report.figures.style import Drawing, save
from pfrnn.study.report.matrices import tier_note

DIGESTS = "digests.json"


def write_tables(cells: list[Cell], lookup: Lookup, folder: Path) -> None:
    """Write the tidy table of all cells, and each table as CSV, Markdown and LaTeX.

    The fidelity's table is there where a row of it has run, the cost's where jobs are recorded.
    """
    note = tier_note(lookup.evidence.study.tier)
    write_text(folder / "cells.csv", tables.tidy_csv(cells))
    for table in range(1, 6):
        part = [cell for cell in cells if cell.number.table == table]
        write_text(folder / f"table{table}.csv", tables.tidy_csv(part))
        write_text(folder / f"table{table}.md", tables.markdown(cells, table, note))
        write_text(folder / f"table{table}.tex", tables.latex(cells, table, note))
    write_fidelity(lookup, folder)
    write_cost(lookup, folder)


def write_claims(
    claims: Sequence[ClaimResult],
    strata: Sequence[StratumResult],
    counted: Sequence[CountedClaim],
    tier: str,
    out: Path,
) -> None:
    """Write the claims as Markdown and CSV, and the data sets behind them."""
    text = claims_markdown(claims, tier_note(tier)) + "\n" + counted_markdown(counted)
    write_text(out / "claims.md", text)
    write_text(out / "tables" / "claims.csv", claims_csv(claims))
    write_text(out / "tables" / "claim_sets.csv", strata_csv(strata))


def renderer() -> dict[str, str]:
    """What a figure's bytes depend on besides its numbers."""
    return {
        "matplotlib": matplotlib.__version__,
        "system": f"{platform.system()} {platform.machine()}",
    }


def _earlier(path: Path) -> set[str]:
    """Names of an earlier report's figures; a damaged file names none, and is replaced."""
    try:
        return set(read_json(path)["figures"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return set()


def write_figures(drawings: Sequence[Drawing], folder: Path) -> None:
    """Write each figure as PDF and PNG, and the digests of numbers and files.

    Figures of an earlier report, which its digests name, are removed where this one has none.
    """
    earlier = _earlier(folder / DIGESTS)
    drawn = [one for one in drawings if one.figure is not None]
    figures: dict[str, Any] = {}
    for drawing in drawn:
        save(drawing, folder)
        figures[drawing.name] = {"numbers": drawing.digest} | {
            kind: sha256_file(folder / f"{drawing.name}.{kind}") for kind in ("pdf", "png")
        }
    write_json(folder / DIGESTS, {"renderer": renderer(), "figures": figures})
    for name in earlier - figures.keys():
        for kind in ("pdf", "png"):
            (folder / f"{name}.{kind}").unlink(missing_ok=True)
