"""PF-RNNs against Bayesian RNNs and ensembles, one point a data set, with the diagonal."""

from __future__ import annotations

from typing import Any

from pfrnn.study.report.cells import Lookup, Ours
from pfrnn.study.report.figures.labels import name_points
from pfrnn.study.report.figures.style import (
    FAINT,
    Drawing,
    colour,
    label,
    light_grid,
    log_axis,
    marker,
    new_figure,
)
from pfrnn.study.report.paper.numbers import paper_numbers
from pfrnn.study.report.units import reading_of

PAIRS = {
    "bayesian": (("pf_lstm", "bayes_lstm"), ("pf_gru", "bayes_gru")),
    "ensembles": (("pf_lstm", "lstm_ensemble"), ("pf_gru", "gru_ensemble")),
}
RIVALS = {"bayesian": "Bayesian RNN", "ensembles": "RNN ensemble"}


def scatter_plots(lookup: Lookup) -> list[Drawing]:
    """Return four scatter plots: accuracy and loss against each rival."""
    return [_plot(lookup, kind, accuracy) for kind in PAIRS for accuracy in (True, False)]


def _plot(lookup: Lookup, kind: str, accuracy: bool) -> Drawing:
    what = "accuracy" if accuracy else "loss"
    name, title = f"scatter-{kind}-{what}", f"PF-RNN against {RIVALS[kind]}: {what}"
    points = _points(lookup, kind, accuracy)
    if not any(point["ours"] for point in points):
        absent = f"no data set has results of a PF-RNN and its rival ({RIVALS[kind]}) yet."
        return Drawing(name, title, "", "", None, None, absent)
    figure, axes = new_figure(3.8, 3.6)
    ax = axes[0, 0]
    for point in points:
        shown = {"color": colour(point["pf"]), "marker": marker(point["pf"])}
        if point["paper"]:
            ax.plot(*point["paper"], ls="", mfc="none", ms=5, alpha=0.7, **shown)
        if point["ours"]:
            x, y = point["ours"]
            ax.plot([x], [y], ls="", ms=6, **shown)
            for end in point["intervals"][0] or []:
                ax.plot([x, end], [y, y], lw=0.9, color=shown["color"])
            for end in point["intervals"][1] or []:
                ax.plot([x, x], [y, end], lw=0.9, color=shown["color"])
    if not accuracy:
        log_axis(ax, "x")
        log_axis(ax)
    low = min(ax.get_xlim()[0], ax.get_ylim()[0])
    high = max(ax.get_xlim()[1], ax.get_ylim()[1])
    ax.plot([low, high], [low, high], "--", color=FAINT, lw=1, zorder=0)
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    name_points(ax, [(point["dataset"], *point["ours"]) for point in points if point["ours"]])
    unit = "accuracy (%)" if accuracy else "loss, in each set's unit"
    ax.set_xlabel(f"{RIVALS[kind]}, {unit}")
    ax.set_ylabel(f"PF-RNN, {unit}")
    light_grid(ax, "both")
    side = "above" if accuracy else "below"
    return Drawing(
        name,
        title,
        f"Filled: ours with intervals over seeds; open: the paper's numbers; circles PF-LSTM, "
        f"triangles PF-GRU. PF-RNN is better {side} the diagonal.",
        f"Scatter of {what}: PF-RNN against {RIVALS[kind]}, with the diagonal of equality.",
        points,
        figure,
    )


def _points(lookup: Lookup, kind: str, accuracy: bool) -> list[dict[str, Any]]:
    datasets = dict.fromkeys(number.dataset for number in paper_numbers() if number.table == 4)
    points = []
    for dataset in datasets:
        if (reading_of(dataset).metric == "accuracy") != accuracy:
            continue
        for pf, rival in PAIRS[kind]:
            mine, theirs = lookup.ours(dataset, pf), lookup.ours(dataset, rival)
            both = mine is not None and theirs is not None
            points.append(
                {
                    "dataset": dataset,
                    "pf": pf,
                    "rival": label(rival),
                    "ours": [theirs.mean, mine.mean] if mine and theirs else None,
                    "intervals": [_ends(theirs), _ends(mine)] if both else [None, None],
                    "paper": _paper(dataset, pf, rival),
                }
            )
    return points


def _ends(ours: Ours | None) -> list[float] | None:
    if ours is None or ours.interval is None:
        return None
    # The logarithmic axis of a loss has no zero.
    return [max(ours.interval.low, ours.mean / 100), ours.interval.high]


def _paper(dataset: str, pf: str, rival: str) -> list[float] | None:
    found = {
        number.variant: number.printed.value
        for number in paper_numbers()
        if number.table == 4 and number.dataset == dataset
    }
    return [found[rival], found[pf]] if {pf, rival} <= found.keys() else None
