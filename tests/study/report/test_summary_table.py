"""Table 3 from table 5: the paper's own numbers rebuild it, with the one misprint."""

from pathlib import Path

import pytest
import simulated

from pfrnn.study.report.cells import Lookup
from pfrnn.study.report.collect import collect
from pfrnn.study.report.evidence import read_evidence
from pfrnn.study.report.paper.numbers import numbers_of
from pfrnn.study.report.summary_table import (
    MISPRINT,
    all_cells,
    columns_summarised,
    mean_accuracies,
    printed_table,
    rescaled_losses,
    summarise,
)

ABLATIONS = tuple(dict.fromkeys(n.variant for n in numbers_of(5) if n.variant))


@pytest.mark.parametrize("number", numbers_of(3), ids=lambda number: number.key)
def test_every_printed_summary_follows_from_the_printed_detail(number) -> None:  # type: ignore[no-untyped-def]
    computed = summarise(number.column, printed_table(number.column))[number.method]
    if (number.method, number.column) == MISPRINT[:2]:
        assert number.printed.value == MISPRINT[2]
        assert round(computed, 2) == MISPRINT[3]
    else:
        assert abs(computed - number.printed.value) <= number.printed.half_digit + 1e-9


def test_rescaling_by_the_largest_is_needed() -> None:
    """Mutant: rescaling by the mean instead does not give the printed numbers."""
    table = printed_table("Regression")
    mutant = {
        column: {m: v / (sum(row.values()) / len(row)) for m, v in row.items()}
        for column, row in table.items()
    }
    assert abs(mean_accuracies(mutant)["PF-LSTM-P1"] - 0.81) > 0.005
    assert abs(rescaled_losses(table)["PF-LSTM-P1"] - 0.81) < 0.005


def test_columns() -> None:
    assert len(columns_summarised("Regression")) == 7
    assert len(columns_summarised("Classification")) == 6


def cells_of(  # type: ignore[no-untyped-def]
    tmp_path: Path,
    tier: str,
    leave_out: str = "",
    datasets: tuple[str, ...] = simulated.DATASETS,
    table: int = 3,
):
    plan = simulated.study(tier, datasets, variants=ABLATIONS)
    rows = [row for row in simulated.result_rows(plan) if row["final_id"] != leave_out]
    results, prepared = simulated.write_tree(tmp_path, plan, rows, finals=False)
    collect(results, prepared, plan, tmp_path / "report")
    cells = all_cells(Lookup(read_evidence(tmp_path / "report")))
    return [cell for cell in cells if cell.number.table == table]


def test_ours_is_summarised_like_the_papers(tmp_path: Path) -> None:
    for cell in cells_of(tmp_path, "paper"):
        assert cell.ours is not None
        assert cell.ours.n == 6
        # the simulated results stand within a few per cent of the paper's
        assert cell.ours.mean == pytest.approx(cell.number.printed.value, rel=0.06)
        expected = "direction only" if cell.number.column == "Regression" else "consistent"
        assert cell.verdict.word == expected or cell.number.column == "Classification"


def test_one_missing_cell_means_no_summary(tmp_path: Path) -> None:
    found = cells_of(tmp_path, "paper", "final/mr/pf_lstm_p5-fixed-0123456789")
    assert {c.ours is None for c in found if c.number.column == "Classification"} == {True}
    assert {c.ours is None for c in found if c.number.column == "Regression"} == {False}


def test_reduced_tier(tmp_path: Path) -> None:
    assert {cell.verdict.text for cell in cells_of(tmp_path, "quick_all")} == {
        "not comparable (reduced tier)"
    }


def test_a_tier_with_some_of_the_sets_summarises_those(tmp_path: Path) -> None:
    """Also outside the reduced tiers it is no comparison: the paper's mean is over all sets."""
    for tier, words in (("quick_all", "reduced tier, over "), ("paper", "over ")):
        some = ("maze10", "air", "mr")
        cells = cells_of(tmp_path / tier, tier, datasets=some)
        for cell in cells:
            assert cell.ours is not None
            part = "2 of 7 sets" if cell.number.column == "Regression" else "1 of 6 sets"
            assert cell.verdict.text == f"not comparable ({words}{part})"
            assert part.removesuffix(" sets") in cell.ours.reading.unit
        # By hand: value over the largest of the ten methods, averaged over both sets.
        table: dict[str, dict[str, float]] = {"air": {}, "maze10": {}}
        for cell in cells_of(tmp_path / f"{tier}5", tier, datasets=some, table=5):
            if cell.number.dataset in table:
                table[cell.number.dataset][cell.number.method] = cell.ours.mean
        rough = rescaled_losses(table)
        for cell in cells:
            if cell.number.column == "Regression":
                assert cell.ours.mean == pytest.approx(rough[cell.number.method], rel=0.05)


def test_a_tier_with_none_of_the_sets_has_no_summary(tmp_path: Path) -> None:
    for cell in cells_of(tmp_path, "quick_all", datasets=("maze10",)):
        text = "not run (the tier has none of its sets)"
        assert (cell.verdict.text == text) == (cell.number.column == "Classification")
        assert (cell.state == "simulated") == (cell.number.column == "Regression")
