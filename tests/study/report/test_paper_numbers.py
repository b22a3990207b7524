"""The table code rebuilds the paper's printed tables and summary rows from its numbers alone."""

from pathlib import Path

import pytest

from pfrnn.study.report.paper.numbers import (
    columns_of,
    numbers_of,
    paper_numbers,
    printed_value,
    rows_of,
)
from pfrnn.study.variants import VARIANTS


def test_every_printed_number_is_there_once() -> None:
    numbers = paper_numbers()
    assert len(numbers) == 314
    assert len({number.key for number in numbers}) == 314
    assert [len(numbers_of(table)) for table in range(1, 6)] == [33, 53, 20, 78, 130]
    assert sum(number.variant is None for number in numbers) == 6


def test_every_fillable_number_names_a_known_variant_and_set() -> None:
    sets = {"maze10", "maze18", "maze27", "nasdaq", "aep", "air", "pm"}
    sets |= {"lpa", "arem", "gas", "mr", "r52", "uid", "all"}
    for number in paper_numbers():
        assert number.variant is None or number.variant in VARIANTS
        assert number.dataset in sets
    assert {n.variant for n in paper_numbers()} - {None} == set(VARIANTS)


@pytest.mark.parametrize(
    ("table", "method", "column", "value"),
    [
        (1, "LSTM", "NASDAQ", 37.33),
        (1, "PF-GRU-best", "AIR", 18.18),
        (2, "PF-LSTM-best", "UID", 99.6),
        (3, "PF-LSTM-P30", "Regression", 0.51),
        (4, "GRU-E", "R52", 89.02),
        (5, "LSTM-BNReLU", "maze27", 4.15),
        (1, "SOTA", "PM", None),
    ],
)
def test_cells_stand_where_the_paper_prints_them(
    table: int, method: str, column: str, value: float | None
) -> None:
    assert printed_value(table, method, column) == value


def test_rows_and_columns_are_in_the_papers_order() -> None:
    assert rows_of(1)[:4] == ("LSTM", "PF-LSTM", "LSTM-best", "PF-LSTM-best")
    assert rows_of(2)[-1] == "SOTA"
    assert columns_of(2) == ("LPA", "AREM", "GAS", "MR", "R52", "UID")
    assert columns_of(5)[:4] == ("maze10", "maze18", "maze27", "AEP")


def test_digits_are_kept_as_printed() -> None:
    printed = {number.key: number.printed for number in paper_numbers()}
    assert printed["table1/GRU/AIR"].text == "17.7"
    assert printed["table4/PF-LSTM/maze10"].half_digit == 0.005
    assert printed["table5/PF-LSTM-P30/maze10"].half_digit == pytest.approx(0.0005)


def test_the_source_is_named() -> None:
    import pfrnn.study.report.paper as paper

    text = (Path(paper.__file__).parent / "README.md").read_text(encoding="utf-8")
    assert "AAAI 2020" in text
