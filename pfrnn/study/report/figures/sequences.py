"""A few test sequences of each data set, as prepared: what the models see or predict."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np

from pfrnn.study.report.figures.belief import TRUE, draw_maze
from pfrnn.study.report.figures.style import COLOURS, Drawing, light_grid, log_axis, new_figure
from pfrnn.study.report.results import Results

SHADES = tuple(COLOURS[name] for name in ("pf_lstm", "lstm", "pf_gru", "gru"))


def sequence_pictures(results: Results) -> list[Drawing]:
    """Return one figure a prepared data set, in the study's order."""
    evidence = results.evidence
    order = [*evidence.study.datasets, *sorted(evidence.cards)]
    return [
        _draw(name, evidence.cards[name], evidence.sequences[name])
        for name in dict.fromkeys(order)
        if name in evidence.cards and evidence.sequences.get(name)
    ]


def _draw(name: str, card: dict[str, Any], found: dict[str, Any]) -> Drawing:
    count = len(found["titles"])
    draw = {
        "regression": _regression,
        "localization": _paths,
        "sensors": _sensors,
        "text": _text,
    }[found["kind"]]
    tall = 2.5 if found["kind"] == "localization" else 2.0
    figure, axes = new_figure(2.1 * count, tall, columns=count)
    for place, (ax, title) in enumerate(zip(axes[0], found["titles"], strict=True)):
        said = draw(ax, found, place, card)
        ax.set_title(textwrap.shorten(title, 26, placeholder=" ..."), fontsize=8)
        ax.tick_params(labelsize=7)
        if place and found["kind"] != "localization":
            ax.sharey(axes[0, 0])
            ax.tick_params(labelleft=False)
            ax.set_ylabel("")
    return Drawing(
        f"data-{name}",
        f"{card['title']}: {count} test sequences",
        said,
        f"{count} sequences of the test part of {card['title']}.",
        found,
        figure,
    )


def _regression(ax: Any, found: dict[str, Any], place: int, card: dict[str, Any]) -> str:
    values = np.array(found["lines"][place], dtype=float)[:, 0]  # None becomes nan: a gap
    ax.plot(values, color=TRUE, lw=1.1, marker=".", ms=3)
    since = " since the first step" if found["differences"] else ""
    ax.set_ylabel(f"{card['unit']}{since}", fontsize=7)
    ax.set_xlabel("step", fontsize=7)
    light_grid(ax)
    return f"The target, {card['target']}, in {card['unit']}{since}; gaps: not observed."


def _paths(ax: Any, found: dict[str, Any], place: int, card: dict[str, Any]) -> str:
    draw_maze(ax, found["map"])
    x, y = np.array(found["lines"][place], dtype=float).T
    ax.plot(x, y, color=TRUE, lw=1.1)
    ax.plot(x[:1], y[:1], "o", color=TRUE, ms=4)
    return (
        "True path in map units (a cell is 1 x 1), from the dot on. Grey: obstacles; dark: "
        "obstacles whose corners are landmarks."
    )


def _sensors(ax: Any, found: dict[str, Any], place: int, card: dict[str, Any]) -> str:
    values = np.array(found["lines"][place], dtype=float)
    for shade, column, feature in zip(SHADES, values.T, found["features"], strict=False):
        ax.plot(column, color=shade, lw=1.1, label=feature)
    ax.set_ylabel("standardised", fontsize=7)
    ax.set_xlabel("step", fontsize=7)
    light_grid(ax)
    shown, all_of_them = len(found["features"]), card["inputs"]
    named = ", ".join(
        f"{feature} ({colour_name})"
        for feature, colour_name in zip(
            found["features"], ("blue", "orange", "green", "pink"), strict=False
        )
    )
    return (
        f"One sequence each of {len(found['titles'])} classes (above each panel; the target is "
        f"{card['target']}). Inputs as the network sees them, {shown} of {all_of_them}: {named}."
    )


def _text(ax: Any, found: dict[str, Any], place: int, card: dict[str, Any]) -> str:
    tokens = np.array(found["tokens"][place])
    known = tokens > 1  # 0 is padding, 1 an unknown word
    steps = np.arange(len(tokens))
    ax.plot(steps[known], tokens[known], ".", color=TRUE, ms=3, rasterized=True)
    ax.plot(steps[~known], np.ones((~known).sum()), "x", color=COLOURS["lstm"], ms=3)
    log_axis(ax)
    ax.set_ylim(0.7, max(card["vocabulary"], 2))
    ax.set_ylabel("number of the word", fontsize=7)
    ax.set_xlabel("word", fontsize=7)
    light_grid(ax)
    return (
        f"One document each of {len(found['titles'])} classes (above each panel). Each dot is a "
        f"word's number among {card['vocabulary']:,}, frequent words first; crosses: unknown words."
    )
