"""Pictures of one final: its predictions, its belief, its confusion matrix; for MLflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from pfrnn.study.data.maze.maps import load_maze
from pfrnn.study.data.registry import dataset
from pfrnn.study.report.figures.belief import draw_belief
from pfrnn.study.report.figures.style import INK, label, light_grid, new_figure, shown_as
from pfrnn.study.report.samples import Arrays, belief_sample, read_arrays

SEQUENCES = 3


def write_pictures(final: Path, name: str, variant: str, folder: Path) -> list[Path]:
    """Draw what a final's samples allow.

    Args:
        final: the final's folder, with predictions.npz and perhaps belief.npz.
        name: data set.
        variant: what was trained.
        folder: where the PNG files go.

    Returns:
        The files written.
    """
    figures: dict[str, Any] = {}
    predictions = read_arrays(final / "predictions.npz")
    if {"probability", "label"} <= predictions.keys():
        figures["confusion"] = _confusion(predictions, name)
    elif {"prediction", "truth", "mask"} <= predictions.keys():
        figures["predictions"] = _predictions(predictions, name, variant)
    belief = belief_sample(final) if dataset(name).card.task == "localization" else {}
    if belief:
        belief["map"] = load_maze(name).grid.tolist()
        figures["belief"] = draw_belief(belief, name, variant, 0).figure
    written = []
    for stem, figure in figures.items():
        path = folder / f"{stem}.png"
        figure.savefig(path, dpi=110, facecolor="white")
        plt.close(figure)
        written.append(path)
    return written


def _predictions(arrays: Arrays, name: str, variant: str) -> Any:
    """First repetition against the truth: over time, or as paths on a map."""
    card = dataset(name).card
    count = min(SEQUENCES, len(arrays["truth"]))
    figure, axes = new_figure(3.2 * count, 2.7, columns=count)
    for ax, number in zip(axes[0], range(count), strict=True):
        seen = arrays["mask"][number].astype(bool)
        truth, guess = arrays["truth"][number][seen], arrays["prediction"][0][number][seen]
        if card.task == "localization":
            lines = [(truth[:, 0], truth[:, 1]), (guess[:, 0], guess[:, 1])]
            ax.set_aspect("equal")
        else:
            steps = np.flatnonzero(seen)
            lines = [(steps, truth[:, 0]), (steps, guess[:, 0])]
            ax.set_xlabel("step")
            light_grid(ax)
        ax.plot(*lines[0], color=INK, label="truth")
        ax.plot(*lines[1], label=label(variant), **shown_as(variant))
        ax.set_title(f"test sequence {int(arrays['index'][number])}")
    axes[0][0].set_ylabel(card.unit)
    axes[0][0].legend()
    return figure


def _confusion(arrays: Arrays, name: str) -> Any:
    """Labels against the first repetition's predictions, on the sequences that were kept."""
    truth = arrays["label"].astype(int)
    guess = arrays["probability"][0].argmax(-1)
    classes = arrays["probability"].shape[-1]
    table = np.zeros((classes, classes), dtype=int)
    np.add.at(table, (truth, guess), 1)
    figure, axes = new_figure(4.2, 3.8)
    ax = axes[0][0]
    ax.imshow(table, cmap="Blues")
    if classes <= 12:
        for row, column in np.argwhere(table):
            pale = table[row, column] > table.max() / 2
            ink = "white" if pale else INK
            ax.text(column, row, str(table[row, column]), ha="center", va="center", color=ink)
    ax.set_xlabel("predicted class")
    ax.set_ylabel("true class")
    ax.set_title(f"{name}: {len(truth)} test sequences")
    return figure
