"""What happens within a trajectory: error and effective sample size by time step."""

from __future__ import annotations

from typing import Any

from pfrnn.study.report.evidence import Evidence
from pfrnn.study.report.figures.style import (
    Drawing,
    colour,
    dashes,
    label,
    light_grid,
    log_axis,
    new_figure,
)


def error_over_time(evidence: Evidence) -> list[Drawing]:
    """Return one figure a maze: squared error of the position at each step."""
    found = [
        _draw(evidence, dataset, lines, "error")
        for dataset, lines in _lines(evidence, "error").items()
        if dataset.startswith("maze")
    ]
    absent = "no final on a maze has left its predictions yet."
    title = "Error over time"
    return found or [Drawing("error-over-time", title, "", "", None, None, absent)]


def ess_over_time(evidence: Evidence) -> list[Drawing]:
    """Return one figure a maze: effective sample size as a share of the particles."""
    found = [
        _draw(evidence, dataset, lines, "ess")
        for dataset, lines in _lines(evidence, "ess").items()
        if dataset.startswith("maze")
    ]
    absent = "no particle filter on a maze has left its beliefs yet."
    title = "Effective sample size over time"
    return found or [Drawing("ess-over-time", title, "", "", None, None, absent)]


def _lines(evidence: Evidence, kind: str) -> dict[str, dict[str, list[float]]]:
    """Series by data set and main variant, fixed size."""
    finals = evidence.results.drop_duplicates(["dataset", "variant", "size_rule"])
    finals = finals[finals["size_rule"] == "fixed"]
    found: dict[str, dict[str, list[float]]] = {}
    for _, row in finals.iterrows():
        values = evidence.series.get(str(row["final_id"]), {}).get(kind)
        if values and row["variant"] in ("lstm", "gru", "pf_lstm", "pf_gru"):
            found.setdefault(str(row["dataset"]), {})[str(row["variant"])] = values
    return dict(sorted(found.items()))


def _draw(evidence: Evidence, dataset: str, lines: dict[str, Any], kind: str) -> Drawing:
    figure, axes = new_figure(4.4, 2.9)
    ax = axes[0, 0]
    for variant, values in lines.items():
        ax.plot(
            range(1, len(values) + 1),
            values,
            color=colour(variant),
            linestyle=dashes(variant),
            label=label(variant),
        )
    ax.set_xlabel("time step")
    ax.legend()
    light_grid(ax)
    names = ", ".join(map(label, lines))
    if kind == "error":
        if all(value > 0 for values in lines.values() for value in values):
            log_axis(ax)
        ax.set_ylabel("MSE of the position (map units²)")
        caption = (
            f"{_sample(evidence, dataset)}: mean squared error of x and y at each step. It falls "
            "as observations accumulate; how long the trajectory is decides the last step's error."
        )
        title, alt = f"Error over time, {dataset}", f"Error by time step for {names}."
    else:
        ax.set_ylim(0, 1.02)
        ax.set_ylabel("ESS / K")
        caption = (
            "Effective sample size 1 / sum(w²) as a share of the particles, of the weights that a "
            "step ends with, mean over the recorded trajectories. 1: all particles count alike. "
            "Soft resampling evens weights out: with alpha = 0.5 a step that gave one particle "
            "all weight ends at about one half; without resampling it ends near 1 / K."
        )
        title, alt = f"Effective sample size over time, {dataset}", f"ESS by step for {names}."
    name = f"{'error' if kind == 'error' else 'ess'}-over-time-{dataset}"
    return Drawing(name, title, caption, alt, lines, figure)


def _sample(evidence: Evidence, dataset: str) -> str:
    rows = evidence.results[evidence.results["dataset"] == dataset]
    counts = {
        evidence.series.get(str(final), {}).get("sequences", 0) for final in set(rows["final_id"])
    }
    return f"{max(counts)} test trajectories and all repetitions"
