"""The 314 printed numbers, each tied to the variant, size rule and data set that fills it."""

from __future__ import annotations

import csv
import functools
from typing import NamedTuple

from pfrnn.study.evaluate.statistics import Printed, Scale
from pfrnn.study.report.assets import asset
from pfrnn.study.variants import VARIANTS

TITLES = {
    1: "Regression loss",
    2: "Prediction accuracy (%)",
    3: "Ablation study, summary",
    4: "Comparison with bagging and Bayesian RNNs",
    5: "Ablation studies on PF-LSTM",
}
SOTA = "SOTA"
SUMMARY_COLUMNS = {
    "rescaled_regression_loss": "Regression",
    "mean_accuracy_percent": "Classification",
}
_BY_LABEL = {model.label: name for name, model in VARIANTS.items()}


class PaperNumber(NamedTuple):
    """One printed number.

    Attributes:
        table: the paper's table, 1 to 5.
        method: the paper's row label, e.g. ``PF-LSTM-best``.
        column: the paper's column, e.g. ``NASDAQ``; table 3: ``Regression``, ``Classification``.
        metric: ``loss``, ``accuracy_percent``, ``last_step_mse`` or a summary of table 3.
        printed: the digits.
        variant: our name of the method; None for the state-of-the-art row.
        size_rule: ``fixed`` or ``best``.
        dataset: our name of the data set; ``all`` in table 3.
    """

    table: int
    method: str
    column: str
    metric: str
    printed: Printed
    variant: str | None
    size_rule: str
    dataset: str

    @property
    def scale(self) -> Scale:
        """Whether smaller (error) or larger (accuracy) is better."""
        return "accuracy" if "accuracy" in self.metric else "error"

    @property
    def key(self) -> str:
        """Name of the number, unique in the paper."""
        return f"table{self.table}/{self.method}/{self.column}"


@functools.cache
def paper_numbers() -> tuple[PaperNumber, ...]:
    """Return all printed numbers in the paper's order."""
    return tuple(_number(row) for row in csv.DictReader(asset("tables.csv").splitlines()))


def _number(row: dict[str, str]) -> PaperNumber:
    method = row["method"]
    label, best, _ = method.partition("-best")
    return PaperNumber(
        table=int(row["table"][len("table")]),
        method=method,
        column=SUMMARY_COLUMNS.get(row["metric"], row["dataset"]),
        metric=row["metric"],
        printed=Printed(row["value"]),
        variant=None if method == SOTA else _BY_LABEL[label],
        size_rule="best" if best else "fixed",
        dataset=row["dataset"].lower(),
    )


def numbers_of(table: int) -> tuple[PaperNumber, ...]:
    """Return one table's numbers in the paper's order."""
    return tuple(number for number in paper_numbers() if number.table == table)


def rows_of(table: int) -> tuple[str, ...]:
    """Row labels of a table, in the paper's order (table 3 is printed with methods across)."""
    return tuple(dict.fromkeys(number.method for number in numbers_of(table)))


def columns_of(table: int) -> tuple[str, ...]:
    """Column labels of a table, in the paper's order."""
    return tuple(dict.fromkeys(number.column for number in numbers_of(table)))


def printed_value(table: int, method: str, column: str) -> float | None:
    """A printed number, or None where the paper prints none."""
    for number in numbers_of(table):
        if number.method == method and number.column == column:
            return number.printed.value
    return None
