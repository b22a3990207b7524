"""What the paper doesn't have, data sets and models: a table each, with ours and the controls."""

from __future__ import annotations

from pfrnn.study.report.cells import Lookup, Ours
from pfrnn.study.report.figures.style import label
from pfrnn.study.report.matrices import KINDS, Records, control_rows, spread_text, table_note
from pfrnn.study.report.numbers import SYMBOLS, decimals_for, number, plain, scored
from pfrnn.study.report.paper.numbers import paper_numbers
from pfrnn.study.report.units import reading_of
from pfrnn.study.report.verdicts import NOT_COMPARABLE
from pfrnn.study.report.views import CellView, Column, Matrix, MatrixRow
from pfrnn.study.variants import FIDELITY, SEARCHED, VARIANTS


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
    caption = "Ours on sets that were added to the paper's; last rows: controls on the same rows."
    reason = "not in the paper"
    return [
        _matrix("further", "Further data sets", caption, names, list(ran), reason, lookup, records)
    ]


def own_variants(lookup: Lookup) -> list[str]:
    """Return the models with results that are neither the paper's nor between text and release."""
    return sorted(set(lookup.evidence.results["variant"]) - set(VARIANTS) - set(FIDELITY))


def own_matrices(lookup: Lookup, records: Records) -> list[Matrix]:
    """Return one table of all own models beside the main ones; none where there are none."""
    own = own_variants(lookup)
    if not own:
        return []
    results = lookup.evidence.results
    ran = dict.fromkeys(zip(results["variant"], results["size_rule"], strict=True))
    beside = [pair for pair in ran if pair[0] in SEARCHED]
    pairs = [*beside, *(pair for pair in ran if pair[0] in own)]
    names = sorted(set(results[results["variant"].isin(own)]["dataset"]))
    caption = (
        "Models that were added to the paper's, below its main ones, all of this run: the same "
        "splits, search, repetitions and seeds; last rows: controls on the same rows."
    )
    reason = "the paper's numbers stand in its own tables"
    return [_matrix("own", "Own models", caption, names, pairs, reason, lookup, records)]


def _matrix(
    anchor: str,
    title: str,
    caption: str,
    names: list[str],
    pairs: list[tuple[str, str]],
    reason: str,
    lookup: Lookup,
    records: Records,
) -> Matrix:
    """Return a table of (variant, size rule) by data set, and the controls."""
    columns = tuple(Column(f"{name}, {reading_of(name).metric}", name) for name in names)
    rows = []
    for variant, rule in pairs:
        views = tuple(_view(lookup, records, name, variant, rule, reason) for name in names)
        rows.append(MatrixRow(label(variant) + ("-best" if rule == "best" else ""), variant, views))
    shown = (*rows, *control_rows(lookup, columns))
    return Matrix(anchor, title, caption, table_note(lookup, columns), columns, shown)


def _view(
    lookup: Lookup, records: Records, name: str, variant: str, rule: str, reason: str
) -> CellView:
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
        reason=reason,
        state=lookup.described(name),
        sort=plain(ours.mean),
        record=records.index(ours),
        selected=scored(ours.selected, digits) if ours.selected is not None else "",
    )
