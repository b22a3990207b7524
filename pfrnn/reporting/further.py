"""Data sets that the paper doesn't have: a table of their own, with ours and the controls."""

from __future__ import annotations

from pfrnn.reporting.cells import Lookup, Ours
from pfrnn.reporting.figures.style import label
from pfrnn.reporting.matrices import KINDS, Records, control_rows, spread_text, table_note
from pfrnn.reporting.numbers import SYMBOLS, decimals_for, number, plain, scored
from pfrnn.reporting.paper.numbers import paper_numbers
from pfrnn.reporting.units import reading_of
from pfrnn.reporting.verdicts import NOT_COMPARABLE
from pfrnn.reporting.views import CellView, Column, Matrix, MatrixRow


def further_sets(lookup: Lookup) -> list[str]:
    """Return the data sets with results that the paper doesn't have."""
    printed = {one.dataset for one in paper_numbers()}
    return sorted(set(lookup.evidence.results["dataset"]) - printed)


def further_matrices(lookup: Lookup, records: Records) -> list[Matrix]:
    """Return one table of all further sets; none where there are none."""
    names = further_sets(lookup)
    if not names:
        return []
    results = lookup.evidence.results
    known = results[results["dataset"].isin(names)]
    ran = dict.fromkeys(zip(known["variant"], known["size_rule"], strict=True))
    columns = tuple(Column(f"{name}, {reading_of(name).metric}", name) for name in names)
    rows = []
    for variant, rule in ran:
        views = tuple(_view(lookup, records, name, variant, rule) for name in names)
        rows.append(MatrixRow(label(variant) + ("-best" if rule == "best" else ""), variant, views))
    return [
        Matrix(
            "further",
            "Further data sets",
            "Ours on sets that were added to the paper's; last rows: controls on the same rows.",
            table_note(lookup, columns),
            columns,
            (*rows, *control_rows(lookup, columns)),
        )
    ]


def _view(lookup: Lookup, records: Records, name: str, variant: str, rule: str) -> CellView:
    ours: Ours | None = lookup.ours(name, variant, rule)
    if ours is None:
        why = lookup.why_not_run(name, variant, rule)
        return CellView(name, SYMBOLS["not run"], word="not run", reason=why)
    digits = decimals_for(ours.mean)
    return CellView(
        name,
        number(ours.mean, digits),
        spread_text(ours, digits),
        kind=KINDS[NOT_COMPARABLE],
        symbol=SYMBOLS[NOT_COMPARABLE],
        word=NOT_COMPARABLE,
        reason="not in the paper",
        state=lookup.described(name),
        sort=plain(ours.mean),
        record=records.index(ours),
        selected=scored(ours.selected, digits) if ours.selected is not None else "",
    )
