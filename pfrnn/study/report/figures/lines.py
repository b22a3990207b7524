"""Lines of the main models, a panel a data set: learning, error and particles over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from pfrnn.study.report.evidence import BEST_SO_FAR, numeric
from pfrnn.study.report.figures.style import (
    FAINT,
    Drawing,
    label,
    legend_above,
    light_grid,
    log_axis,
    new_figure,
    shown_as,
)
from pfrnn.study.report.results import Results
from pfrnn.study.report.samples import LEVELS

MAIN = ("lstm", "gru", "pf_lstm", "pf_gru")
SCORES = {
    "regression": "validation RMSE",
    "classification": "validation errors (%)",
    "localization": "validation MSE, all steps",
}
# Data set -> variant -> columns x, y and, for a band, low and high.
Panels = dict[str, dict[str, pd.DataFrame]]


def line_figures(results: Results) -> dict[str, Drawing]:
    """Return the figures by what they show."""
    return {
        "learning": _draw(
            "learning",
            "Learning curves",
            _learning(results),
            "epoch",
            lambda name: SCORES.get(results.card(name).get("task", ""), "validation score"),
            "Best validation score so far of the final runs: median over runs and 10 to 90 % of "
            "them. A run that has ended keeps its last score.",
            "No final of the four main models has left a history yet; those of the other variants "
            "stand in their history.csv.",
        ),
        "error": _draw(
            "error-over-time",
            "Error over time",
            _of_series(results, "error"),
            "time step",
            lambda name: "MSE of x and y",
            "Mean squared error of the position at each step, over all test trajectories and "
            "repetitions.",
            "no final has kept its error over time on all test trajectories.",
        ),
        "ess": _draw(
            "ess-over-time",
            "Effective sample size over time",
            _of_series(results, "ess"),
            "time step",
            lambda name: "ESS / K",
            "Effective sample size as a share of the particles, after each step. At 1 all "
            "particles weigh alike; soft resampling with alpha = 0.5 keeps it above one half.",
            "no particle filter on a maze has left its beliefs yet.",
            top=1.02,
        ),
        "calibration": _draw(
            "calibration",
            "Calibration of the particles",
            _of_series(results, "calibration", LEVELS),
            "nominal coverage",
            lambda name: "share of true values inside",
            "Central intervals of the weighted particles against the truth. Below the diagonal the "
            "particles are too sure: the loss asks their mean to be right, not their spread.",
            "no particle filter has left its beliefs yet.",
            top=1.02,
            diagonal=True,
        ),
    }


def _finals(results: Results) -> dict[tuple[str, str], str]:
    """The main models' finals at fixed size, by data set and variant."""
    rows = results.rows
    rows = rows[(rows["size_rule"] == "fixed") & rows["variant"].isin(MAIN)]
    keys = zip(rows["dataset"], rows["variant"], strict=True)
    return dict(sorted(dict(zip(keys, rows["final_id"], strict=True)).items()))


def _of_series(results: Results, kind: str, x: Any = None) -> Panels:
    found: Panels = {}
    for (dataset, variant), final in _finals(results).items():
        series = results.evidence.series.get(final, {})
        y = series.get(kind)
        tested = results.get(dataset, variant)
        if kind == "error" and tested and series.get("sequences", 0) < tested.n_test:
            continue  # another test set than the tables'
        if y and (kind == "calibration" or dataset.startswith("maze")):
            places = range(1, len(y) + 1) if x is None else x
            found.setdefault(dataset, {})[variant] = pd.DataFrame({"x": places, "y": y})
    return found


def _learning(results: Results) -> Panels:
    histories = dict(list(numeric(results.evidence.histories).groupby("final_id")))
    found: Panels = {}
    for (dataset, variant), final in _finals(results).items():
        if final in histories and histories[final]["val_score"].notna().any():
            found.setdefault(dataset, {})[variant] = best_so_far(histories[final])
    return found


def best_so_far(history: pd.DataFrame) -> pd.DataFrame:
    """Median and 10 to 90 % over runs of the best score so far; an ended run keeps its last.

    Runs' curves are thinned, each to epochs of its own, so a median of what stands at one epoch
    would be that of one or two runs, and late in training that of the survivors.

    Args:
        history: columns ``member``, ``epoch``, ``val_score`` and ``val_best`` (the best of all
            epochs; NaN where only that of the epochs kept is known).

    Returns:
        Columns ``x`` (epoch, ascending), ``y``, ``low`` and ``high``.

    >>> rows = [(0, 1, 9.0), (0, 3, 5.0), (1, 1, 7.0), (1, 2, 3.0), (1, 4, 8.0)]
    >>> history = pd.DataFrame(rows, columns=["member", "epoch", "val_score"])
    >>> best_so_far(history.assign(val_best=float("nan")))["y"].tolist()
    [8.0, 6.0, 4.0, 4.0]
    """
    score = history[BEST_SO_FAR].fillna(history["val_score"])
    table = history.assign(score=score).pivot(index="epoch", columns="member", values="score")
    best = table.sort_index().cummin().ffill().dropna(how="all")
    low, middle, high = (best.quantile(q, axis=1).to_numpy() for q in (0.1, 0.5, 0.9))
    return pd.DataFrame({"x": best.index, "y": middle, "low": low, "high": high})


def _draw(
    name: str,
    title: str,
    panels: Panels,
    x_label: str,
    y_label: Callable[[str], str],
    caption: str,
    absent: str,
    top: float | None = None,
    diagonal: bool = False,
) -> Drawing:
    """Draw a panel a data set under one legend."""
    if not panels:
        return Drawing(name, title, "", "", None, None, absent)
    columns = min(len(panels), 4)
    rows = -(-len(panels) // columns)
    figure, axes = new_figure(2.7 * columns + 0.4, 2.2 * rows + 0.4, rows, columns)
    for ax, (dataset, lines) in zip(axes.flat, panels.items(), strict=False):
        for variant, line in lines.items():
            ax.plot(line["x"], line["y"], label=label(variant), lw=1.4, **shown_as(variant))
            if "low" in line:
                ax.fill_between(
                    line["x"], line["low"], line["high"], color=shown_as(variant)["color"],
                    alpha=0.18, lw=0,
                )  # fmt: skip
        if diagonal:
            ax.plot([0, 1], [0, 1], ":", color=FAINT, lw=1)
        if top:
            ax.set_ylim(0, top)
        elif dataset.startswith("maze") and all((line["y"] > 0).all() for line in lines.values()):
            log_axis(ax)
        ax.set_title(dataset)
        ax.set_ylabel(y_label(dataset), fontsize=8)
        ax.tick_params(labelsize=8)
        light_grid(ax)
    for ax in list(axes.flat)[len(panels) :]:
        ax.set_visible(False)
    for ax in axes.flat:
        ax.set_xlabel(x_label, fontsize=8)
    legend_above(figure, axes)
    shown = ", ".join(dict.fromkeys(label(v) for lines in panels.values() for v in lines))
    data = {
        dataset: {variant: line.to_numpy().tolist() for variant, line in lines.items()}
        for dataset, lines in panels.items()
    }
    alt = f"{title} on {', '.join(panels)} for {shown}."
    return Drawing(name, title, caption, alt, data, figure)
