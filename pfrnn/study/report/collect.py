"""Gather the evidence for a report from a tier's results, small enough to commit."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pfrnn.errors import RecordError
from pfrnn.study.data.maze.maps import load_maze
from pfrnn.study.evaluate.record import read_rows
from pfrnn.study.files import canonical_json, read_mapping, write_json, write_text
from pfrnn.study.jobfolder import again
from pfrnn.study.plan import Plan, prepare_again
from pfrnn.study.report.blocks import finished_blocks, predict, recorded_finals
from pfrnn.study.report.evidence import (
    BEST_SO_FAR,
    EPOCHS_KEPT,
    HISTORY,
    Study,
    empty_results,
    read_results,
)
from pfrnn.study.report.licensing import licensed
from pfrnn.study.report.pictures import exact_belief, sequences
from pfrnn.study.report.samples import belief_sample, series

# The run record's entries that a reader of the report needs; versions are listed once.
RUN_ENTRIES_LEFT_OUT = ("parameters", "seeds", "selection", "versions")
# What a prepared card is known by.
_CARD = ("name", "arrays_digest", "protocol_digest")
# What is read of a final, besides its record.
# Belief pictures: of these variants the first that ran, once a maze.
PICTURED = ("pf_lstm", "pf_gru", "pf_lstm_p30", "pf_lstm_p20")


def collect(
    results: Path, prepared: Path, study: Study, out: Path, plan: Plan | None = None
) -> None:
    """Write the evidence folder ``out`` from ``results`` (``results/<tier>``).

    Args:
        results: holds ``results.csv``, ``final/`` and ``selection/``; may hold none of them.
        prepared: ``data/prepared``, with a folder and a card for each prepared data set.
        study: what the tier set out to run.
        out: the report's folder.
        plan: the tier's, for the predicted seconds of its jobs; without it there are none.
    """
    table = results / "results.csv"
    frame = read_results(table) if table.is_file() else empty_results()
    text = table.read_text(encoding="utf-8") if table.is_file() else frame.to_csv(index=False)
    write_text(out / "results.csv", text)
    data = out / "data"
    finals = sorted(set(frame["final_id"]))
    write_json(data / "study.json", study.recorded())
    folders = _prepared(prepared, frame, study.datasets, plan)
    cards = licensed(
        {name: read_prepared(path / "card.json", plan) for name, path in folders.items()}
    )
    pictures = {name: sequences(folder, cards[name]) for name, folder in folders.items()}
    write_json(data / "cards.json", cards)
    write_text(data / "sequences.json", canonical_json(pictures) + "\n")
    write_json(data / "runs.json", {final: _run(results / final) for final in finals})
    write_json(data / "choices.json", {final: _choice(results, final) for final in finals})
    write_text(data / "histories.csv", _histories(results, finals).to_csv(index=False))
    write_json(data / "series.json", {final: series(results / final) for final in finals})
    write_text(data / "beliefs.json", canonical_json(_beliefs(results, frame, folders)) + "\n")
    jobs = finished_blocks(results) | recorded_finals(csv.DictReader(text.splitlines()))
    write_json(data / "blocks.json", predict(jobs, plan, cards) if plan else jobs)


def read_prepared(path: Path, plan: Plan | None = None) -> dict[str, Any]:
    """Read the card of prepared arrays.

    Args:
        path: the card.
        plan: the tier's, for the command in a message.

    Raises:
        RecordError: it is damaged.
    """
    cure = prepare_again(path.parent, plan)
    card = read_mapping(path, cure)
    if lacking := [name for name in _CARD if name not in card]:
        raise RecordError(f"{path}: expected a card, {', '.join(lacking)} missing; {cure}")
    return card


def _prepared(
    prepared: Path, frame: pd.DataFrame, datasets: Iterable[str], plan: Plan | None
) -> dict[str, Path]:
    """The folder of each data set; of several protocols, the one that the results name."""
    digests, wanted = set(frame["data_digest"]), set(datasets) | set(frame["dataset"])
    found: dict[str, Path] = {}
    for path in sorted(prepared.glob("*/card.json")):
        card = read_prepared(path, plan)
        named = digests_of(card) & digests
        if card["name"] in wanted and (named or card["name"] not in found):
            found[card["name"]] = path.parent
    return found


def digests_of(card: Mapping[str, Any]) -> set[str]:
    """The digests that results may name a card's data by."""
    return {str(card["arrays_digest"]), str(card["protocol_digest"])}


def _run(final: Path) -> dict[str, Any]:
    path = final / "run.json"
    if not path.is_file():
        return {}
    run = read_mapping(path, again(final))
    kept = {key: value for key, value in run.items() if key not in RUN_ENTRIES_LEFT_OUT}
    members = final / "members.csv"
    if members.is_file():
        status = _table(final, "members.csv", ("status",))["status"]
        kept["repetitions"] = len(status)
        kept["diverged"] = int((status == "diverged").sum())
    return kept


def _choice(results: Path, final: str) -> dict[str, Any]:
    path = results / final.replace("final/", "selection/", 1)
    path = path.with_name(path.name + ".json")
    name = path.relative_to(results).as_posix()
    cure = f"run `pfrnn select {name}` again, with the run's --tier and --params"
    return read_mapping(path, cure) if path.is_file() else {}


def _histories(results: Path, finals: Iterable[str]) -> pd.DataFrame:
    parts = []
    for final in finals:
        path = results / final / "history.csv"
        if path.is_file():
            history = _table(results / final, "history.csv", ("member", "epoch"))
            history.insert(0, "final_id", final)
            history[BEST_SO_FAR] = history.groupby("member", sort=True)["val_score"].cummin()
            kept = [name for name in (*HISTORY, BEST_SO_FAR) if name in history.columns]
            parts.append(
                history[kept].groupby("member", sort=True, group_keys=False)[kept].apply(_thin)
            )
    if not parts:
        return pd.DataFrame(columns=[*HISTORY, BEST_SO_FAR])
    return pd.concat(parts, ignore_index=True).map(_short)


def _table(final: Path, name: str, columns: Iterable[str]) -> pd.DataFrame:
    """Read a final's table after it was found to be whole."""
    read_rows(final, name, columns)
    return pd.read_csv(final / name)


def _thin(history: pd.DataFrame) -> pd.DataFrame:
    """Keep the first and last epoch and an even share between."""
    if len(history) <= EPOCHS_KEPT:
        return history
    return history.iloc[
        np.unique(np.linspace(0, len(history) - 1, EPOCHS_KEPT).round().astype(int))
    ]


def _short(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) and np.isfinite(value) else value


def _beliefs(results: Path, frame: pd.DataFrame, folders: dict[str, Path]) -> dict[str, Any]:
    beliefs = {}
    for final in _pictured(frame):
        sample = belief_sample(results / final)
        if sample:
            name = str(frame[frame["final_id"] == final]["dataset"].iloc[0])
            exact = exact_belief(folders[name], sample["index"]) if name in folders else {}
            beliefs[final] = sample | exact | {"map": load_maze(name).grid.tolist()}
    return beliefs


def _pictured(frame: pd.DataFrame) -> list[str]:
    rows = frame[frame["dataset"].str.startswith("maze")]
    return pictured(zip(rows["dataset"], rows["variant"], rows["final_id"], strict=True))


def pictured(rows: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return the final that is pictured of each maze, from (data set, variant, final's id)."""
    finals: dict[str, dict[str, set[str]]] = {}
    for dataset, variant, final in rows:
        finals.setdefault(dataset, {}).setdefault(variant, set()).add(final)
    chosen = []
    for _, ran in sorted(finals.items()):
        # "fixed" sorts after "best": the fixed size first.
        chosen += [max(ran[name]) for name in PICTURED if name in ran][:1]
    return chosen
