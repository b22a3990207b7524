"""How the paper's numbers are read: metric and factor come from the data set's card."""

import math
import re
from pathlib import Path

import pytest

from pfrnn.study.data.registry import dataset, dataset_names
from pfrnn.study.report.numbers import scored
from pfrnn.study.report.paper.numbers import numbers_of
from pfrnn.study.report.units import ACCURACY, WORDS, reading_of


@pytest.mark.parametrize("name", dataset_names())
def test_metric_and_factor_are_the_cards(name: str) -> None:
    card, reading = dataset(name).card, reading_of(name)
    assert (reading.metric, reading.scale) == (card.metric, card.paper_scale)
    assert reading.why
    assert (name in WORDS) == (card.metric != ACCURACY.metric)


def test_aep_is_read_in_tens_and_air_as_a_square() -> None:
    """Persistence on our test rows (docs/protocols.md) falls among the printed numbers."""
    levels = {"aep": ("rmse", 66.4), "air": ("mse", 14.4), "pm": ("rmse", 22.2)}
    for name, (metric, persistence) in levels.items():
        reading = reading_of(name)
        assert reading.metric == metric
        printed = [n.printed.value for n in numbers_of(1) if n.dataset == name and n.variant]
        level = persistence * reading.scale
        assert 0.7 * min(printed) < level < 1.5 * max(printed)


@pytest.mark.parametrize("name", ["aep", "air", "pm", "nasdaq"])
def test_the_figures_are_those_of_the_protocol_page(name: str) -> None:
    """Every decimal number of a verdict's words stands in the set's section, and its range is
    the printed one."""
    page = (Path(__file__).parents[3] / "docs" / "protocols.md").read_text(encoding="utf-8")
    (section,) = (part for part in page.split("\n## ") if part.startswith(f"{name.upper()}: "))
    why = WORDS[name].why
    figures = re.findall(r"\d+\.\d+", why)
    assert figures
    assert [figure for figure in figures if figure not in section] == []
    if why.startswith("Printed "):
        numbers = [*numbers_of(1), *numbers_of(4), *numbers_of(5)]
        printed = [n.printed.value for n in numbers if n.dataset == name and n.variant]
        assert [float(figure) for figure in figures[:2]] == [min(printed), max(printed)]


def test_a_set_that_the_paper_does_not_have() -> None:
    assert reading_of("no such set") == ACCURACY


def test_small_scores_keep_a_digit() -> None:
    assert scored(0.25, 2) == "0.25"
    assert scored(4.2e-7, 6) == "4e−7"
    assert scored(0.0, 2) == "0.00"
    assert scored(math.nan, 2) == "–"
