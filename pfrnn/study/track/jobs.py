"""Run records on disk as plain values for MLflow: a job and its members, finished or in training.

Curves are thinned; the full ones stay in ``history.csv``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pfrnn.errors import ConfigError
from pfrnn.study.evaluate.record import read_rows
from pfrnn.study.files import read_mapping, sha256_file
from pfrnn.study.variants import variant

CURVE_POINTS = 30
RECORD_FILES = ("run.json", "members.csv", "history.csv", "test.csv")
_SIZES = ("hidden_size", "particles", "batch_size")
_SETTINGS = ("learning_rate", "clip", "l2")
_ORIGIN = ("commit", "dirty", "source_digest", "data_digest", "data_state")

Table = pd.DataFrame
Curve = tuple[tuple[int, float], ...]


class Values(NamedTuple):
    """What a run shows: parameters, metrics, and curves as (epoch, value) points."""

    parameters: Mapping[str, str] = {}
    metrics: Mapping[str, float] = {}
    curves: Mapping[str, Curve] = {}


class Member(NamedTuple):
    """One trained model, which becomes a child run; ``status`` is members.csv's."""

    name: str
    status: str
    values: Values


class Job(NamedTuple):
    """One record folder, which becomes a parent run.

    Attributes:
        key: ``<tier>/<block or final id>``, unique in a store.
        dataset: the data set's name.
        name: the run's name in words.
        digest: of the record's files; equal digests mean nothing to do.
        tags: of the parent and, but for where its numbers came from, of the members.
        origin: tags of the parent alone: commit, digests, device.
        values: the parent's own.
        members: the children.
        end_ms: when the record was written, milliseconds since 1970.
        seconds: wall time that the job took, 0 where it isn't known.
        running: the job is still in training.
    """

    key: str
    dataset: str
    name: str
    digest: str
    tags: Mapping[str, str]
    origin: Mapping[str, str]
    values: Values
    members: tuple[Member, ...]
    end_ms: int
    seconds: float
    running: bool


def job_folders(results: Path, finished: bool = False) -> list[Path]:
    """Return the folders of all jobs that have finished, and of those in training."""
    names = ("run.json",) if finished else ("run.json", "history.csv")
    return sorted(
        {
            path.parent
            for stage in ("search", "final")
            for name in names
            for path in results.glob(f"{stage}/**/{name}")
        }
    )


def key_of(folder: Path, results: Path) -> str:
    """Return a job's key: the tier and its path below the tier's results."""
    return f"{results.name}/{folder.relative_to(results).as_posix()}"


def record_digest(folder: Path) -> str:
    """Digest the record's files, whichever there are."""
    digest = hashlib.sha256()
    for name in RECORD_FILES:
        if (folder / name).exists():
            digest.update(f"{name}:{sha256_file(folder / name)};".encode())
    return digest.hexdigest()


def read_job(folder: Path, results: Path, more: Mapping[str, str] | None = None) -> Job:
    """Read one record folder.

    Args:
        folder: the job's.
        results: ``results/<tier>``.
        more: further tags of the parent: what only the configuration knows.

    Raises:
        RecordError: a file of the record is missing or cannot be read.
    """
    digest = record_digest(folder)  # first: a job may go on writing
    run = _read_run(folder)
    stage, dataset, name = folder.relative_to(results).parts[:3]
    final = stage == "final"
    model = name.rsplit("-", 2)[0] if final else name
    history = _table(folder, "history.csv", ("member", "epoch"))
    members = _table(folder, "members.csv", ("member",)) if run else history[["member"]]
    members = members.drop_duplicates("member")
    tests = _tests(folder) if (folder / "test.csv").exists() else pd.DataFrame()
    # The records of an ensemble score its repetitions, not its members.
    ensemble = run.get("parameters", {}).get("variant", {}).get("kind") == "ensemble"
    device = run.get("machine", {}).get("device")
    origin = {key: str(run[key]) for key in _ORIGIN if key in run}
    origin |= {"device": device} if device else {}
    return Job(
        key=key_of(folder, results),
        dataset=dataset,
        name=_title(model, dataset, folder),
        digest=digest,
        tags={"set": dataset, "variant": model, "tier": results.name, "stage": stage},
        origin={**(more or {}), **origin, "job": folder.relative_to(results).as_posix()},
        values=Values(
            {name: str(run[name]) for name in _SIZES if name in run}
            | (_texts(members.iloc[0], _SETTINGS) if final else {}),
            _metrics(run, members, tests),
            _mean_curves(history) if final else {},
        ),
        members=tuple(
            _member(row, final, history[history["member"] == row["member"]],
                    pd.DataFrame() if ensemble else tests)
            for _, row in members.iterrows()
        ),
        end_ms=int((folder / ("run.json" if run else "history.csv")).stat().st_mtime * 1000),
        seconds=float(run.get("wall_seconds", 0.0)),
        running=not run,
    )  # fmt: skip


def _read_run(folder: Path) -> dict[str, Any]:
    """The job's ``run.json``; empty while it trains."""
    path = folder / "run.json"
    if not path.exists():
        return {}
    return read_mapping(path, "delete it and run again")


def _title(model: str, dataset: str, folder: Path) -> str:
    """Such as ``PF-LSTM, maze10, final``."""
    try:
        label = variant(model).label
    except ConfigError:  # a variant of another time
        label = model
    *_, rule, _digest = folder.name.rsplit("-", 2)
    if folder.parent.parent.name == "final":
        return f"{label}, {dataset}, final" + ("" if rule == "fixed" else f", {rule} size")
    return f"{label}, {dataset}, search ({folder.name.rsplit('-', 1)[0]})"


def _metrics(run: Mapping[str, Any], members: Table, tests: Table) -> dict[str, float]:
    """Best validation score, cost, and of a final each test metric's mean and deviation."""
    found = {key: float(run[key]) for key in ("trainable_parameters",) if key in run}
    if "wall_seconds" in run:
        found["minutes"] = run["wall_seconds"] / 60
    if "val_score" in members:
        found |= _numbers(pd.Series({"val_score": _numeric(members["val_score"]).min()}))
    for name in tests:
        values = {"": tests[name].mean(), "_sd": tests[name].std()}
        # The metric of the tables has one name on all sets.
        names = [f"test/{name}", *(["test"] if name == run.get("metric") else [])]
        found |= _numbers(pd.Series({n + end: v for n in names for end, v in values.items()}))
    return found


def _member(row: pd.Series, final: bool, history: Table, tests: Table) -> Member:
    shown = (*_SETTINGS, "repetition", "seed")
    number, repetition = row["member"], row.get("repetition")
    if not row.get("seed"):
        name = f"member {number}"
    elif final:
        name = f"repetition {repetition}, seed {row['seed']}"
        name += f", member {number}" if tests.empty else ""  # several make up an ensemble
    else:
        name = "learning rate {learning_rate}, clip {clip}, L2 {l2}".format(**row)
    metrics = _numbers(row.drop([*shown, "member", "status"], errors="ignore"))
    if repetition in tests.index:
        metrics |= _numbers(tests.loc[repetition].add_prefix("test/"))
    best = int(row["best_epoch"]) if row.get("best_epoch") else None
    values = Values(_texts(row, shown), metrics, curves(history, best))
    return Member(name, row.get("status", "running"), values)


def curves(history: Table, best: int | None = None) -> dict[str, Curve]:
    """Thinned curves of one member: the first and last epoch, evenly spaced ones, and the best."""
    count = len(history)
    places = set(np.linspace(0, count - 1, min(count, CURVE_POINTS)).round().astype(int))
    epochs = history["epoch"].astype(int).to_numpy()
    places |= set(np.flatnonzero(epochs == best))
    rows = _numeric(history.drop(columns=["member", "epoch"], errors="ignore").iloc[sorted(places)])
    rows.index = pd.Index(epochs[sorted(places)])
    found = {}
    for name in rows:
        column = rows[name].dropna()
        if len(column):
            found[f"curve/{name}"] = tuple((int(at), float(value)) for at, value in column.items())
    return found


def _mean_curves(history: Table) -> dict[str, Curve]:
    """Thinned means over all members; one that stopped early keeps its last values."""
    table = _numeric(history.drop(columns="member")).assign(member=history["member"])
    wide = table.pivot_table(index="epoch", columns="member").ffill()
    return curves(wide.T.groupby(level=0).mean().T.reset_index())


def _tests(folder: Path) -> Table:
    """Test values of a final: a row a repetition, a column a metric."""
    table = _table(folder, "test.csv", ("repetition", "metric", "value"))
    table["value"] = _numeric(table["value"])
    return table.pivot_table(index="repetition", columns="metric", values="value")


def _table(folder: Path, name: str, columns: tuple[str, ...]) -> Table:
    """A record's table, all text."""
    return pd.DataFrame(read_rows(folder, name, columns))


def _numeric(values: Any) -> Any:
    """Text as finite numbers; NaN for anything else."""
    if isinstance(values, pd.DataFrame):
        return values.apply(_numeric)
    return pd.to_numeric(values, errors="coerce").replace([np.inf, -np.inf], np.nan)


def _numbers(values: pd.Series) -> dict[str, float]:
    """The entries that are finite numbers."""
    return {str(key): float(value) for key, value in _numeric(values).dropna().items()}


def _texts(row: pd.Series, names: tuple[str, ...]) -> dict[str, str]:
    """The entries that say something."""
    return {name: str(row[name]) for name in names if row.get(name)}
