"""Learning curves of the finals: validation score by epoch, each method with its seeds."""

from __future__ import annotations

import pandas as pd

from pfrnn.study.report.evidence import BEST_SO_FAR, EPOCHS_KEPT, Evidence
from pfrnn.study.report.figures.style import (
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


def best_so_far(history: pd.DataFrame, column: str = "val_score") -> pd.Series:
    """Median over runs of the best score so far; a run that has ended keeps its last one.

    Runs' curves are thinned, each to epochs of its own, so a median of what stands at one epoch
    would be that of one or two runs, and late in training that of the survivors.

    Args:
        history: columns ``member``, ``epoch`` and a score (smaller is better), one row each.
        column: the score's. Of ``val_score`` it is the best of the epochs that were kept, of
            ``val_best`` that of all epochs.

    Returns:
        by epoch, ascending.

    >>> rows = [(0, 1, 9.0), (0, 3, 5.0), (1, 1, 7.0), (1, 2, 3.0), (1, 4, 8.0)]
    >>> history = pd.DataFrame(rows, columns=["member", "epoch", "val_score"])
    >>> best_so_far(history).to_dict()
    {1: 8.0, 2: 6.0, 3: 4.0, 4: 4.0}
    """
    by_run = history.pivot(index="epoch", columns="member", values=column).sort_index()
    return by_run.cummin().ffill().median(axis=1)


def _draw(evidence: Evidence, dataset: str, histories: dict[str, pd.DataFrame]) -> Drawing:
    figure, axes = new_figure(4.6, 3.0)
    ax = axes[0, 0]
    data = {}
    shown = {name: one.dropna(subset="val_score") for name, one in histories.items()}
    # For all or for none: the best of the kept epochs is worse than that of all.
    whole = all(one[BEST_SO_FAR].notna().all() for one in shown.values())
    for variant, drawn in shown.items():
        median = best_so_far(drawn, BEST_SO_FAR if whole else "val_score")
        data[variant] = {
            "runs": drawn[["member", "epoch", "val_score"]].to_numpy().tolist(),
            "median_of_best": median.reset_index().to_numpy().tolist(),
        }
        style = {"color": colour(variant), "linestyle": dashes(variant)}
        for _, one in drawn.groupby("member", sort=True):
            ax.plot(one["epoch"], one["val_score"], linewidth=0.6, alpha=0.3, **style)
        ax.plot(median.index, median, label=label(variant), **style)
    task = str(evidence.cards.get(dataset, {}).get("task", ""))
    positive = all(point[2] > 0 for lines in data.values() for point in lines["runs"])
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
        f"Validation score of the final runs, smaller is better; thin: runs ({runs}), at most "
        f"{EPOCHS_KEPT} epochs of each, which end where early stopping or the epoch limit ended "
        "them; thick: the median over runs of the best score so far, which a run keeps after its "
        "end"
        f"{'' if whole else ' (of the epochs that were kept, so the best of all lies lower)'}.",
        f"Validation score over epochs on {dataset} for {', '.join(map(label, histories))}.",
        data,
        figure,
    )
