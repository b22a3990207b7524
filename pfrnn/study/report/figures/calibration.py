"""Calibration: how often the true pose lies inside the particles' central intervals."""

from __future__ import annotations

from pfrnn.study.report.evidence import Evidence
from pfrnn.study.report.figures.style import (
    FAINT,
    Drawing,
    colour,
    dashes,
    label,
    light_grid,
    marker,
    new_figure,
)
from pfrnn.study.report.samples import LEVELS


def calibration(evidence: Evidence) -> list[Drawing]:
    """Return one figure a data set with recorded beliefs."""
    finals = evidence.results.drop_duplicates(["dataset", "variant", "size_rule"])
    finals = finals[
        (finals["size_rule"] == "fixed") & finals["variant"].isin(["pf_lstm", "pf_gru"])
    ]
    found: dict[str, dict[str, list[float]]] = {}
    counts: dict[str, int] = {}
    for _, row in finals.iterrows():
        series = evidence.series.get(str(row["final_id"]), {})
        if "calibration" in series:
            found.setdefault(str(row["dataset"]), {})[str(row["variant"])] = series["calibration"]
            counts[str(row["dataset"])] = int(series.get("beliefs", 0))
    if not found:
        absent = "no particle filter has left its beliefs yet."
        title = "Calibration of the particles"
        return [Drawing("calibration", title, "", "", None, None, absent)]
    return [_draw(name, lines, counts[name]) for name, lines in sorted(found.items())]


def _draw(dataset: str, lines: dict[str, list[float]], sequences: int) -> Drawing:
    figure, axes = new_figure(3.6, 3.4)
    ax = axes[0, 0]
    ax.plot([0, 1], [0, 1], "--", color=FAINT, lw=1)
    for variant, shares in lines.items():
        ax.plot(
            LEVELS,
            shares,
            color=colour(variant),
            linestyle=dashes(variant),
            marker=marker(variant),
            markersize=4,
            label=label(variant),
        )
    ax.set_xlim(0, 1.02)
    ax.set_ylim(0, 1.02)
    ax.set_xlabel("nominal coverage of the central interval")
    ax.set_ylabel("share of true values inside")
    ax.legend()
    light_grid(ax, "both")
    return Drawing(
        f"calibration-{dataset}",
        f"Calibration of the particles, {dataset}",
        f"Central intervals of the weighted particles' predictions against the truth, over all "
        f"steps of {sequences} test sequences. Below the diagonal: the particles are too sure. The "
        "loss asks the particles' mean to be right, not their spread.",
        f"Coverage against nominal coverage on {dataset} for {', '.join(map(label, lines))}.",
        lines,
        figure,
    )
