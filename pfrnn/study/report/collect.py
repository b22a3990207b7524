"""Gather a tier's results as evidence for a report, small enough to commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pfrnn.errors import RecordError
from pfrnn.study.data.maze.maps import load_maze
from pfrnn.study.data.registry import dataset, dataset_names
from pfrnn.study.evaluate.record import read_rows
from pfrnn.study.files import read_mapping
from pfrnn.study.jobfolder import again
from pfrnn.study.plan import Plan, prepare_again
from pfrnn.study.recorded import sizes_of
from pfrnn.study.records import RESULT_COLUMNS
from pfrnn.study.report.evidence import (
    BEST_SO_FAR,
    EPOCHS_KEPT,
    HISTORY,
    Evidence,
    Study,
    numeric,
    read_table,
    short,
)
from pfrnn.study.report.samples import belief_sample, exact_belief, sequences, series
from pfrnn.study.workload import seconds, tasks

# The run record's entries that a reader of the report doesn't need; the data hold most of them.
RUN_ENTRIES_LEFT_OUT = ("parameters", "seeds", "selection", "versions")
# Belief pictures: of these variants the first that ran, once a maze.
PICTURED = ("pf_lstm", "pf_gru", "pf_lstm_p30", "pf_lstm_p20")
Jobs = dict[str, dict[str, Any]]


def collect(results: Path, prepared: Path, study: Study, plan: Plan | None = None) -> Evidence:
    """Gather the evidence of a tier's results.

    Args:
        results: holds ``results.csv``, ``final/`` and ``selection/``; may hold none of them.
        prepared: ``data/prepared``, with a folder and a card for each prepared data set.
        study: what the tier set out to run.
        plan: the tier's, for the predicted seconds of its jobs; without it there are none.

    Raises:
        RecordError: a file is damaged, or results are of data that no card here describes.
    """
    table = results / "results.csv"
    frame = (
        read_table(table, RESULT_COLUMNS)
        if table.is_file()
        else pd.DataFrame(columns=RESULT_COLUMNS)
    )
    finals = sorted(set(frame["final_id"]))
    folders = _prepared(prepared, frame, study, plan)
    cards = {name: _card(path, plan) for name, path in folders.items()}
    beliefs = {}
    for final in pictured(frame):
        name = final.split("/")[1]
        if sample := belief_sample(results / final):
            exact = exact_belief(folders[name], sample["index"]) if name in folders else {}
            beliefs[final] = sample | exact | {"map": load_maze(name).grid.tolist()}
    jobs = _blocks(results) | finals_of(frame)
    return Evidence(
        study=study,
        results=frame,
        histories=_histories(results, finals),
        cards=cards,
        runs={final: _run(results / final) for final in finals},
        choices={final: _choice(results, final) for final in finals},
        series={final: series(results / final) for final in finals},
        beliefs=beliefs,
        sequences={name: sequences(folder, cards[name]) for name, folder in folders.items()},
        blocks=predict(jobs, plan, cards) if plan else jobs,
    )


def _card(folder: Path, plan: Plan | None) -> dict[str, Any]:
    """Read a prepared card, with the licence that the registry has now."""
    card = read_mapping(folder / "card.json", prepare_again(folder, plan))
    if card["name"] in dataset_names():
        now = dataset(card["name"]).card
        card |= {"licence": now.licence, "redistributable": now.redistributable}
    return card


def _prepared(
    prepared: Path, frame: pd.DataFrame, study: Study, plan: Plan | None
) -> dict[str, Path]:
    """The folder of each data set; of several protocols, the one that the results name."""
    used = dict(zip(frame["dataset"], frame["data_digest"], strict=True))
    found: dict[str, Path] = {}
    for path in sorted(prepared.glob("*/card.json")):
        card = read_mapping(path, prepare_again(path.parent, plan))
        name = card["name"]
        fits = used.get(name) in (card["arrays_digest"], card["protocol_digest"])
        if fits or (name in study.datasets and name not in used):
            found[name] = path.parent
    return found


def check_cards(evidence: Evidence, plan: Plan) -> None:
    """Raise RecordError where results are of data that no card describes, or of two versions."""
    for name, digests in evidence.results.groupby("dataset")["data_digest"]:
        digest, card = digests.iloc[0], evidence.cards.get(str(name), {})
        if digests.nunique() > 1 or digest not in (
            card.get("arrays_digest"),
            card.get("protocol_digest"),
        ):
            came = " and ".join(one[:12] for one in digests.unique())
            raise RecordError(
                f"results of {name} are of data {came}, but there is no card of (all of) it; put "
                f"the raw files of one version here, run `pfrnn prepare {name} {plan.options}` and "
                f"the set's jobs again, or give up recorded results by --drop {name}"
            )


def _run(final: Path) -> dict[str, Any]:
    path = final / "run.json"
    if not path.is_file():
        return {}
    run = read_mapping(path, again(final))
    kept = {key: value for key, value in run.items() if key not in RUN_ENTRIES_LEFT_OUT}
    if (final / "members.csv").is_file():
        members = read_rows(final, "members.csv", ("status",))
        kept["repetitions"] = len(members)
        kept["diverged"] = sum(member["status"] == "diverged" for member in members)
    return kept


def _choice(results: Path, final: str) -> dict[str, Any]:
    selection = final.replace("final/", "selection/", 1) + ".json"
    path = results / selection
    return read_mapping(path, f"run `pfrnn select {selection}` again") if path.is_file() else {}


def _histories(results: Path, finals: list[str]) -> pd.DataFrame:
    """Thin the histories: the first and last epoch of each run, and an even share between."""
    parts = []
    for final in finals:
        if (results / final / "history.csv").is_file():
            rows = read_rows(results / final, "history.csv", HISTORY[1:])
            history = numeric(pd.DataFrame(rows))
            history[["member", "epoch"]] = history[["member", "epoch"]].astype(int)
            history.insert(0, "final_id", final)
            by_run = history.groupby("member", sort=True)
            history[BEST_SO_FAR] = by_run["val_score"].cummin()
            kept = np.concatenate([_thinned(rows) for rows in by_run.indices.values()])
            parts.append(history[[*HISTORY, BEST_SO_FAR]].iloc[kept])
    if not parts:
        return pd.DataFrame(columns=[*HISTORY, BEST_SO_FAR])
    return pd.concat(parts, ignore_index=True).map(short)


def _thinned(rows: np.ndarray) -> np.ndarray:
    if len(rows) <= EPOCHS_KEPT:
        return rows
    return rows[np.unique(np.linspace(0, len(rows) - 1, EPOCHS_KEPT).round().astype(int))]


def pictured(frame: pd.DataFrame) -> list[str]:
    """Return the final that is pictured of each maze."""
    chosen = []
    mazes = frame[frame["dataset"].str.startswith("maze")]
    for _, rows in mazes.groupby("dataset"):
        ran = rows.groupby("variant")["final_id"].max()  # "fixed" sorts after "best"
        chosen += [ran[name] for name in PICTURED if name in ran][:1]
    return chosen


def finals_of(frame: pd.DataFrame) -> Jobs:
    """Return the finals in the rows of a results file, as ``blocks.json`` has them."""
    return {
        row.final_id: {
            "data_digest": row.data_digest,
            "commit": row.commit,
            "device": row.device,
            "wall_seconds": float(row.final_seconds) if row.final_seconds else None,
            "predicted_seconds": None,
        }
        for row in frame.drop_duplicates("final_id").itertuples()
    }


def _blocks(results: Path) -> Jobs:
    """Return the finished search blocks below ``results/<tier>``."""
    found: Jobs = {}
    for path in sorted(results.glob("search/*/*/*/run.json")):
        run = read_mapping(path, again(path.parent))
        job = {
            "data_digest": str(run["data_digest"]),
            "commit": str(run["commit"]),
            "device": str(run["machine"]["device_name"]),
            "wall_seconds": float(run["wall_seconds"]),
            "predicted_seconds": None,
        }
        found[path.parent.relative_to(results).as_posix()] = job | (
            {"dirty": True} if run.get("dirty") else {}
        )
    return found


def predict(jobs: Jobs, plan: Plan, cards: dict[str, dict[str, Any]]) -> Jobs:
    """Return the jobs with the predicted seconds of those that have none yet.

    They follow from the sizes of the prepared data: a set without a card has no prediction.
    """
    cells = tuple(cell for cell in plan.cells if cell.dataset in cards)
    sizes = {cell.dataset: sizes_of(cards[cell.dataset]) for cell in cells}
    found = dict(jobs)
    for task in tasks(plan._replace(cells=cells), sizes):
        job = jobs.get(task.id)
        if job is not None and job["predicted_seconds"] is None:
            config = plan.config_of(task.dataset, task.model)
            expected = round(seconds(config, task, sizes[task.dataset]), 1)
            found[task.id] = job | {"predicted_seconds": expected}
    return found
