"""``summary.md``: what the README shows of a report, with date and commit of the runs."""

from __future__ import annotations

from typing import Any

import pandas as pd

from pfrnn.study.report.claims import Judged, word_counts
from pfrnn.study.report.figures.style import label
from pfrnn.study.report.results import Results
from pfrnn.study.report.sections import joined
from pfrnn.study.report.tables import labelled, markdown, texts_of, tier_note
from pfrnn.study.report.units import reading_of
from pfrnn.study.report.verdicts import NOT_RUN, REDUCED_TIERS, REFERENCE, SIGNS

MAIN = ("lstm", "pf_lstm", "gru", "pf_gru")


def ran_sentence(cells: pd.DataFrame, results: Results) -> str:
    """Say how many of the printed numbers have one of ours."""
    fillable = cells[cells["table"].isin(list("12345")) & ~cells["control"]]
    fillable = fillable[fillable["variant"] != ""]
    ran = int((fillable["n"] > 0).sum())
    return f"{ran} of the paper's {len(fillable)} numbers have one of ours."


def summary(cells: pd.DataFrame, judged: Judged, results: Results, figure: str) -> str:
    """Return the summary as Markdown; ``figure`` is the image that it shows."""
    tier = results.study.tier
    parts = [f"{tier_note(tier)} {ran_sentence(cells, results)}\n", _main_table(cells, results)]
    if tier not in REDUCED_TIERS:
        printed = cells[cells["table"].isin(list("12345")) & ~cells["control"]]
        counts = printed["verdict"].value_counts()
        rows = [
            (f"{SIGNS[word][0]} {word}", str(counts.get(word, 0)))
            for word in SIGNS
            if word != REFERENCE
        ]
        parts.append(markdown(labelled(rows, "verdict on a printed number", "cells")))
        rows = [(word, str(number)) for word, number in word_counts(judged, results).items()]
        parts.append(markdown(labelled(rows, "the paper's claims", "number")))
    parts.append(provenance(results, 12) + "\n")
    if figure:
        parts.append(f"![{figure}](figures/{figure}.png)\n")
    return "\n".join(parts)


def provenance(results: Results, digits: int = 40) -> str:
    """Say of which commits and devices all results are, and when the runs finished."""
    pairs = zip(results.rows["final_id"], results.rows["commit"], strict=True)
    commits = joined(results.commit(final, commit[:digits]) for final, commit in pairs)
    dates = joined(str(run.get("finished", ""))[:10] for run in results.evidence.runs.values())
    dirty = " (dirty: the source had changes that this commit doesn't hold)"
    said = f"Commit {commits}{dirty if 'dirty' in commits else ''}."
    return f"{said} Runs finished: {dates}. Devices: {joined(results.rows['device'])}."


def _main_table(cells: pd.DataFrame, results: Results) -> str:
    """The four main models at fixed size, a data set a row, ours beside the paper's."""
    rows = []
    for name in [name for name in results.study.datasets if name in results.sets]:
        reading = reading_of(name)
        metric = "accuracy, %" if reading.metric == "accuracy" else reading.unit
        own = cells[(cells["dataset"] == name) & (cells["size_rule"] == "fixed")]
        texts = []
        for variant in MAIN:
            found = own[(own["variant"] == variant) & (own["metric"].isin([reading.metric, ""]))]
            texts.append(_cell(next(found.itertuples(), None)))
        rows.append((name, metric, *texts, results.described(name)))
    if not rows:
        return "Nothing has run yet.\n"
    table = labelled(rows, "data set", "metric", *map(label, MAIN), "data")
    how = (
        f"Fixed size: our mean over repetitions [{100 * results.study.confidence:g} % interval of "
        "it] (the paper's number) and the verdict's sign.\n"
    )
    return markdown(table) + "\n" + how


def _cell(row: Any) -> str:
    if row is None:
        return SIGNS[NOT_RUN][0]
    shown = texts_of(row)
    text = f"{shown['ours']} {shown['spread'].partition(' n =')[0]}".removesuffix(f" n = {row.n}")
    if row.paper and row.paper[0].isdigit():
        text += f" ({row.paper}) {shown['sign'] if row.n else ''}"
    # An empty part, such as the interval of a cell that did not run, leaves no gap.
    return " ".join(text.split())
