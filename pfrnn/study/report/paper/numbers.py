"""The 314 printed numbers, each tied to the variant, size rule and data set that fills it."""

from __future__ import annotations

import functools
import io

import numpy as np
import pandas as pd

from pfrnn.study.report.assets import asset
from pfrnn.study.variants import VARIANTS

TITLES = {
    "1": "Regression loss",
    "2": "Prediction accuracy (%)",
    "3": "Ablation study, summary",
    "4": "Comparison with bagging and Bayesian RNNs",
    "5": "Ablation studies on PF-LSTM",
}
SOTA = "SOTA"
SUMMARIES = {"rescaled_regression_loss": "Regression", "mean_accuracy_percent": "Classification"}


@functools.cache
def paper_numbers() -> pd.DataFrame:
    """Return a row for each printed number, in the paper's order.

    Columns: ``table`` ("1" to "5"), ``method`` (the row's label), ``column`` (the column's label),
    ``dataset`` (our name; ``all`` in table 3), ``variant`` (our name; empty for the state of the
    art), ``size_rule``, ``scale`` (``error`` or ``accuracy``), ``paper`` (the digits), ``value``.
    """
    source = pd.read_csv(io.StringIO(asset("tables.csv")), dtype=str)
    names = {model.label: name for name, model in VARIANTS.items()}
    method = source["method"]
    return pd.DataFrame(
        {
            "table": source["table"].str.slice(5, 6),
            "method": method,
            "column": source["metric"].map(SUMMARIES).fillna(source["dataset"]),
            "dataset": source["dataset"].str.lower(),
            "variant": method.str.removesuffix("-best").map(names).fillna(""),
            "size_rule": np.where(method.str.endswith("-best"), "best", "fixed"),
            "scale": np.where(source["metric"].str.contains("accuracy"), "accuracy", "error"),
            "paper": source["value"],
            "value": source["value"].astype(float),
        }
    )


def printed(dataset: str, variant: str, size_rule: str = "fixed") -> str:
    """Return the first number that the paper prints for a model on a data set; empty for none."""
    numbers = paper_numbers()
    found = numbers[
        (numbers["dataset"] == dataset)
        & (numbers["variant"] == variant)
        & (numbers["size_rule"] == size_rule)
    ]
    return "" if found.empty else str(found["paper"].iloc[0])
