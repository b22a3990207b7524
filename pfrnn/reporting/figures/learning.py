"""Learning curves of the finals: validation score by epoch, each method with its seeds."""

from __future__ import annotations

import pandas as pd

from pfrnn.reporting.evidence import Evidence
from pfrnn.reporting.figures.style import (
    Drawing,
    colour,
    dashes,
    label,
    light_grid,
    log_axis,
    new_figure,
)

MAIN = ("lstm", "gru", "pf_lstm", "pf_gru")
SCORES = {
    "regression": "validation RMSE",
    "classification": "validation errors (%)",
    "localization": "validation MSE, all steps",
}


def learning_curves(evidence: Evidence) -> list[Drawing]:
    """Return one figure a data set that has histories, in the results' order of names."""
    finals = evidence.results.drop_duplicates("final_id")
    finals = finals[(finals["size_rule"] == "fixed") & finals["variant"].isin(MAIN)]
    drawings = []
    for dataset, rows in finals.groupby("dataset", sort=True):
        histories = {
            str(row["variant"]): evidence.histories[
                evidence.histories["final_id"] == row["final_id"]
            ]
            for _, row in rows.iterrows()
        }
        histories = {name: one for name, one in histories.items() if one["val_score"].notna().any()}
        if histories:
            drawings.append(_draw(evidence, str(dataset), histories))
    return drawings


def _draw(evidence: Evidence, dataset: str, histories: dict[str, pd.DataFrame]) -> Drawing:
    figure, axes = new_figure(4.6, 3.0)
    ax = axes[0, 0]
    data = {}
    for variant, history in histories.items():
        drawn = history[["member", "epoch", "val_score"]].dropna()
        data[variant] = drawn.to_numpy().tolist()
        for _, one in drawn.groupby("member", sort=True):
            ax.plot(
                one["epoch"],
                one["val_score"],
                color=colour(variant),
                linestyle=dashes(variant),
                linewidth=0.7,
                alpha=0.45,
            )
        median = drawn.groupby("epoch", sort=True)["val_score"].median()
        ax.plot(
            median.index,
            median,
            color=colour(variant),
            linestyle=dashes(variant),
            label=label(variant),
        )
    task = str(evidence.cards.get(dataset, {}).get("task", ""))
    positive = all(point[2] > 0 for points in data.values() for point in points)
    if task == "localization" and positive:
        log_axis(ax)
    ax.set_xlabel("epoch")
    ax.set_ylabel(SCORES.get(task, "validation score"))
    ax.legend()
    light_grid(ax)
    runs = ", ".join(f"{label(name)} {one['member'].nunique()}" for name, one in histories.items())
    return Drawing(
        f"learning-{dataset}",
        f"Learning curves, {dataset}",
        f"Validation score of the final runs, smaller is better; thin: runs ({runs}), thick: their "
        "median among those still training. Curves end where early stopping or the epoch limit "
        "ended them.",
        f"Validation score over epochs on {dataset} for {', '.join(map(label, histories))}.",
        data,
        figure,
    )
