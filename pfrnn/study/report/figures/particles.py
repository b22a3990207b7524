"""Particles against error: each set's error relative to one particle."""

from __future__ import annotations

import numpy as np

from pfrnn.study.report.cells import Lookup
from pfrnn.study.report.figures.style import FAINT, PAPER, Drawing, colour, light_grid, new_figure
from pfrnn.study.report.measures import PARTICLES
from pfrnn.study.report.scores import OurScores, PaperScores, Scores
from pfrnn.study.report.verdicts import REDUCED_TIERS

NAME, TITLE = "particles", "Particles against error"
Lines = dict[str, dict[int, float]]


def particles_against_error(lookup: Lookup) -> Drawing:
    """Draw the error (or odds of an error) relative to P1, by number of particles."""
    datasets = sorted(set(lookup.evidence.results["dataset"]))
    ours = _lines(OurScores(lookup), datasets)
    if not ours:
        absent = "no data set has PF-LSTM with one particle and another number yet."
        return Drawing(NAME, TITLE, "", "", None, None, absent)
    paper = _lines(PaperScores(), list(ours))
    figure, axes = new_figure(4.6, 3.2)
    ax = axes[0, 0]
    for line in ours.values():
        ax.plot(list(line), list(line.values()), color=colour("pf_lstm"), lw=0.7, alpha=0.5)
    for lines, style, text in ((ours, "o-", "ours"), (paper, "D--", "paper")):
        shared = sorted({k for line in lines.values() for k in line})
        means = [
            float(np.exp(np.mean([np.log(line[k]) for line in lines.values() if k in line])))
            for k in shared
        ]
        shade = colour("pf_lstm") if text == "ours" else PAPER
        face = shade if text == "ours" else "none"
        ax.plot(shared, means, style, color=shade, mfc=face, label=f"{text}, mean over sets")
    ax.axhline(1, color=FAINT, lw=0.8)
    ax.set_xscale("log", base=2)
    ticks = sorted(PARTICLES.values())
    ax.set_xticks(ticks, [str(k) for k in ticks])
    ax.set_xlabel("particles K")
    ax.set_ylabel("error relative to K = 1")
    ax.legend()
    light_grid(ax)
    reduced = lookup.evidence.study.tier in REDUCED_TIERS
    return Drawing(
        NAME,
        TITLE,
        f"PF-LSTM on {len(ours)} data sets: geometric mean of errors (odds of a wrong class for "
        "accuracies) relative to one particle; thin lines: single sets."
        + (" Reduced tier: not the paper's training." if reduced else ""),
        "Error relative to one particle against the number of particles, ours and the paper's.",
        {"ours": _plain(ours), "paper": _plain(paper)},
        figure,
    )


def _lines(scores: Scores, datasets: list[str]) -> Lines:
    found: Lines = {}
    for dataset in datasets:
        means = {}
        for variant, k in PARTICLES.items():
            values = scores.score(dataset, variant, "fixed")
            if values:
                means[k] = float(np.mean(list(values.values())))
        if 1 in means and len(means) > 1:
            found[dataset] = {k: float(np.exp(means[1] - mean)) for k, mean in means.items()}
    return found


def _plain(lines: Lines) -> dict[str, list[list[float]]]:
    return {name: [[float(k), v] for k, v in line.items()] for name, line in lines.items()}
