"""Points: localisation errors, PF-RNNs against their rivals, particles and cost against error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from pfrnn.study.report.cells import MAZES
from pfrnn.study.report.figures.style import (
    FAINT,
    INK,
    PAPER,
    Drawing,
    colour,
    label,
    legend_above,
    light_grid,
    log_axis,
    new_figure,
    shown_as,
)
from pfrnn.study.report.measures import PARTICLES, Score, paper_score, scores_of
from pfrnn.study.report.paper.numbers import paper_numbers, printed
from pfrnn.study.report.results import Results
from pfrnn.study.report.units import reading_of

MAIN = ("lstm", "pf_lstm", "gru", "pf_gru")
RIVALS = {
    "bayesian": ("Bayesian RNN", {"pf_lstm": "bayes_lstm", "pf_gru": "bayes_gru"}),
    "ensembles": ("RNN ensemble", {"pf_lstm": "lstm_ensemble", "pf_gru": "gru_ensemble"}),
}


def localization(results: Results) -> Drawing:
    """Draw the mean over repetitions with its interval, a panel a maze.

    Not as bars: a logarithmic axis has no zero for them to stand on.
    """
    name, title = "localization", "Last-step error in robot localisation"
    found = {
        maze: {m: ours for m in MAIN if (ours := results.get(maze, m)) is not None}
        for maze in MAZES
    }
    found = {maze: models for maze, models in found.items() if models}
    if not found:
        return Drawing(name, title, "", "", None, None, "no model has run on a maze yet.")
    figure, axes = new_figure(2.8 * len(found) + 0.6, 3.2, columns=len(found))
    data: dict[str, Any] = {}
    for ax, (maze, models) in zip(axes[0], found.items(), strict=True):
        for x, (model, ours) in enumerate(models.items()):
            shade, paper = colour(model), printed(maze, model)
            if not math.isnan(ours.low):
                low = max(ours.low, ours.mean / 100)  # the logarithmic axis has no zero
                ax.fill_between([x - 0.35, x + 0.35], low, ours.high, color=shade, alpha=0.3, lw=0)
            ax.plot([x - 0.35, x + 0.35], [ours.mean] * 2, color=shade, lw=2.4)
            jitter = np.linspace(-0.25, 0.25, ours.n)
            ax.plot(x + jitter, ours.values, ".", color=INK, ms=3, alpha=0.7)
            if paper:
                ax.plot(x, float(paper), "D", mfc="none", mec=PAPER, mew=1.4, ms=6, label="paper")
            data[f"{maze}/{model}"] = [ours.mean, list(ours.values), paper]
        least = min(ours.mean for ours in models.values())
        for control, value in results.controls(maze).items():
            if value > least / 30:  # one far below would squeeze all points
                ax.axhline(value, color=INK, lw=1, ls=":")
                ax.annotate(control.replace("_", " "), (-0.4, value), fontsize=7, va="bottom")
        log_axis(ax)
        ax.set_xticks(range(len(models)), [label(model) for model in models], fontsize=8)
        ax.set_title(maze)
        light_grid(ax)
    axes[0][0].set_ylabel("last-step MSE (map units²)")
    legend_above(figure, axes)
    return Drawing(
        name,
        title,
        "Lines: mean over repetitions with the interval of that mean over seeds (shaded); dots: "
        "repetitions; dotted: a control on the same trajectories; diamonds: the paper's numbers "
        "(it prints none for LSTM and GRU). Fixed sizes.",
        f"Means of the last-step error of the main models on {', '.join(found)}.",
        data,
        figure,
    )


def scatter(results: Results) -> list[Drawing]:
    """Draw PF-RNNs against Bayesian RNNs and ensembles, a point a data set, with the diagonal."""
    return [_scatter(results, kind, accuracy) for kind in RIVALS for accuracy in (True, False)]


def _scatter(results: Results, kind: str, accuracy: bool) -> Drawing:
    rival, pairs = RIVALS[kind]
    what = "accuracy" if accuracy else "loss"
    name, title = f"scatter-{kind}-{what}", f"PF-RNN against {rival}: {what}"
    numbers = paper_numbers()
    sets = dict.fromkeys(numbers[numbers["table"] == "4"]["dataset"])
    points = [
        (dataset, pf, mine, theirs)
        for dataset in sets
        if (reading_of(dataset).metric == "accuracy") == accuracy
        for pf, other in pairs.items()
        if (mine := results.get(dataset, pf)) and (theirs := results.get(dataset, other))
    ]
    if not points:
        absent = f"no data set has results of a PF-RNN and its rival ({rival}) yet."
        return Drawing(name, title, "", "", None, None, absent)
    figure, axes = new_figure(3.8, 3.9)
    ax, data, texts = axes[0, 0], {}, []
    for dataset, pf, mine, theirs in points:
        look = shown_as(pf, points=True)
        paper = printed(dataset, pairs[pf]), printed(dataset, pf)
        if all(paper):
            ax.plot(*map(float, paper), mfc="none", ms=5, alpha=0.7, **look)
        ax.plot(theirs.mean, mine.mean, ms=6, label=label(pf), **look)
        for ours, flat in ((theirs, True), (mine, False)):
            ends = [max(ours.low, ours.mean / 100), ours.high]
            line = (ends, [mine.mean] * 2) if flat else ([theirs.mean] * 2, ends)
            ax.plot(*line, lw=0.9, color=look["color"])
        data[f"{dataset}/{pf}"] = [theirs.mean, mine.mean, *paper]
        texts.append((dataset, theirs.mean, mine.mean))
    if not accuracy:
        log_axis(ax, "x")
        log_axis(ax)
    low, high = (f(*ax.get_xlim(), *ax.get_ylim()) for f in (min, max))
    ax.plot([low, high], [low, high], "--", color=FAINT, lw=1, zorder=0)
    ax.set(xlim=(low, high), ylim=(low, high))
    _name_points(ax, texts)
    unit = "accuracy (%)" if accuracy else "loss, in each set's unit"
    ax.set_xlabel(f"{rival}, {unit}")
    ax.set_ylabel(f"PF-RNN, {unit}")
    light_grid(ax, "both")
    legend_above(figure, axes)
    return Drawing(
        name,
        title,
        "Filled: ours with intervals over seeds; open: the paper's numbers. PF-RNN is better "
        f"{'above' if accuracy else 'below'} the diagonal.",
        f"Scatter of {what}: PF-RNN against {rival}, with the diagonal of equality.",
        data,
        figure,
    )


def _name_points(ax: Any, points: Sequence[tuple[str, float, float]], size: float = 6.5) -> None:
    """Write each point's name where it covers least of other names; widths are estimated."""
    scale = 72.0 / ax.figure.dpi
    taken: list[tuple[float, float, float, float]] = []
    for name, x, y in points:
        px, py = scale * ax.transData.transform((x, y))
        width = 0.58 * size * len(name)
        offsets = [
            (dx, dy)
            for far in (3.5, 9.0, 16.0)
            for dx in (far, -far - width)
            for dy in (far, -far - 0.8 * size)
        ]
        boxes = [(px + dx, py + dy, px + dx + width, py + dy + size) for dx, dy in offsets]
        cost = [sum(_overlap(box, other) for other in taken) for box in boxes]
        best = int(np.argmin(cost))
        taken += [boxes[best], (px - 3, py - 3, px + 3, py + 3)]
        ax.annotate(name, (x, y), offsets[best], textcoords="offset points", fontsize=size)


def _overlap(one: Sequence[float], other: Sequence[float]) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(width, 0.0) * max(height, 0.0)


def particles(results: Results) -> Drawing:
    """Draw the error (or odds of an error) relative to one particle, by number of particles."""
    name, title = "particles", "Particles against error"
    ours = _relative(scores_of(results), results.sets)
    if not ours:
        absent = "no data set has PF-LSTM with one particle and another number yet."
        return Drawing(name, title, "", "", None, None, absent)
    paper = _relative(paper_score, list(ours))
    figure, axes = new_figure(4.6, 3.2)
    ax = axes[0, 0]
    for line in ours.values():
        ax.plot(list(line), list(line.values()), color=colour("pf_lstm"), lw=0.7, alpha=0.5)
    for lines, style, text in ((ours, "o-", "ours"), (paper, "D--", "paper")):
        means = np.exp(np.log(pd.DataFrame(lines)).mean(axis=1)).sort_index()
        shade = colour("pf_lstm") if text == "ours" else PAPER
        face = shade if text == "ours" else "none"
        ax.plot(means.index, means, style, color=shade, mfc=face, label=f"{text}, mean over sets")
    ax.axhline(1, color=FAINT, lw=0.8)
    ax.set_xscale("log", base=2)
    ax.set_xticks(list(PARTICLES.values()), [str(k) for k in PARTICLES.values()])
    ax.set_xlabel("particles K")
    ax.set_ylabel("error relative to K = 1")
    ax.legend()
    light_grid(ax)
    return Drawing(
        name,
        title,
        f"PF-LSTM on {len(ours)} data sets: geometric mean of errors (odds of a wrong class for "
        "accuracies) relative to one particle; thin lines: single sets.",
        "Error relative to one particle against the number of particles, ours and the paper's.",
        {"ours": _listed(ours), "paper": _listed(paper)},
        figure,
    )


def _relative(score: Score, datasets: Sequence[str]) -> dict[str, dict[int, float]]:
    found = {}
    for dataset in datasets:
        scores = {k: score(dataset, variant, "fixed") for variant, k in PARTICLES.items()}
        means = {k: float(np.mean(list(own.values()))) for k, own in scores.items() if own}
        if 1 in means and len(means) > 1:
            found[dataset] = {k: math.exp(means[1] - mean) for k, mean in means.items()}
    return found


def _listed(lines: dict[str, dict[int, float]]) -> dict[str, list[list[float]]]:
    return {name: [[float(k), v] for k, v in line.items()] for name, line in lines.items()}


def cost(results: Results) -> Drawing:
    """Draw training seconds and parameters against the error relative to LSTM."""
    name, title = "cost", "Cost against quality"
    score, points = scores_of(results), []
    for dataset in results.sets:
        base = score(dataset, "lstm", "fixed")
        for variant in MAIN:
            own, ours = score(dataset, variant, "fixed"), results.get(dataset, variant)
            if base and own and ours:
                error = math.exp(np.mean(list(base.values())) - np.mean(list(own.values())))
                row = ours.row
                points.append((variant, row["final_seconds"], row["parameters"], error))
    frame = pd.DataFrame(points, columns=["variant", "seconds", "parameters", "error"])
    frame = frame[(frame[["seconds", "parameters"]] > 0).all(axis=1)]
    if set(frame["variant"]) <= {"lstm"}:
        return Drawing(name, title, "", "", None, None, "no set has LSTM and another model yet.")
    figure, axes = new_figure(7.4, 3.4, columns=2)
    for ax, column in zip(axes[0], ("seconds", "parameters"), strict=True):
        for variant, own in frame.groupby("variant", sort=False):
            look = shown_as(str(variant), points=True)
            ax.plot(own[column], own["error"], ms=3.5, alpha=0.5, **look)
            centre = np.exp(np.log(own[[column, "error"]]).mean())
            ax.plot(*centre, ms=8, label=label(str(variant)), **look)
        ax.axhline(1, color=FAINT, lw=0.8)
        log_axis(ax, "x")
        log_axis(ax)
        ax.set_xlabel("seconds of the final runs" if column == "seconds" else "parameters")
        light_grid(ax, "both")
    axes[0][0].set_ylabel("error relative to LSTM")
    legend_above(figure, axes)
    devices = ", ".join(sorted(set(results.rows["device"])))
    return Drawing(
        name,
        title,
        "Small: one data set each; large: geometric mean. Errors (odds of a wrong class) relative "
        f"to LSTM at fixed size. Device: {devices}. Seconds are those of all repetitions side by "
        "side and depend on what else the machine did.",
        "Error relative to LSTM against training time and against parameters.",
        frame.to_numpy().tolist(),
        figure,
    )


def forest(gains: pd.DataFrame) -> Drawing:
    """Draw the headline gains with their intervals, the paper's beside, a row a data set."""
    name, title = "gains", "PF-RNN over its RNN: change of the error"
    own = gains[gains["headline"]]
    if own.empty:
        return Drawing(name, title, "", "", None, None, "no PF-RNN and its RNN have run yet.")
    sets = list(dict.fromkeys(own["dataset"]))[::-1]
    figure, axes = new_figure(7.4, 0.32 * len(sets) + 1.3, columns=2)
    for ax, (variant, part) in zip(axes[0], own.groupby("variant", sort=False), strict=False):
        for row in part.itertuples():
            y = sets.index(row.dataset)
            ax.plot([-row.high, -row.low], [y, y], color=colour(str(variant)), lw=2)
            ax.plot(-row.gain, y, "o", color=colour(str(variant)), ms=5, label="ours")
            ax.plot(-row.paper, y, "D", mfc="none", mec=PAPER, mew=1.3, ms=5, label="paper")
        ax.axvline(0, color=FAINT, lw=0.8)
        ax.set_title(f"{label(str(variant))} over {label(part['rival'].iloc[0])}")
        ax.set_yticks(range(len(sets)), sets)
        ax.set_xlim(-2.0, 2.0)
        changes = (-80, -50, 0, 100, 300)
        ax.set_xticks([math.log1p(c / 100) for c in changes], [f"{c:+d} %" for c in changes])
        ax.set_xlabel("change of the error (left: the PF-RNN is better)", fontsize=8)
        light_grid(ax, "x")
    legend_above(figure, axes)
    return Drawing(
        name,
        title,
        "Ratio of errors (for accuracies: of the odds of a wrong class), paired by repetition, "
        "with the interval over seeds; beyond a factor of 7 cut off. Diamonds: the paper's.",
        f"Gains of PF-LSTM and PF-GRU on {', '.join(sets[::-1])}.",
        own[["gain", "low", "high", "paper"]].fillna("").to_numpy().tolist(),
        figure,
    )
