"""Run records on disk as plain values for a tracking store: a job and its members.

Curves are thinned; the full ones stay in ``history.csv``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pfrnn.errors import RecordError
from pfrnn.study.evaluate.record import read_rows
from pfrnn.study.files import read_json, sha256_file

CURVE_POINTS = 30
RECORD_FILES = ("run.json", "members.csv", "history.csv", "test.csv")
# What a member shares with its job and is searched by.
_JOB_SETTINGS = ("dataset", "variant", "hidden_size", "particles", "batch_size")
_MEMBER_SETTINGS = ("learning_rate", "clip", "l2", "repetition", "seed")

Curve = tuple[tuple[int, float], ...]


class Member(NamedTuple):
    """One trained model: what becomes a child run."""

    name: str
    parameters: Mapping[str, str]
    tags: Mapping[str, str]
    metrics: Mapping[str, float]
    curves: Mapping[str, Curve]


class Job(NamedTuple):
    """One record folder: what becomes a parent run.

    Attributes:
        key: ``<tier>/<block or final id>``, unique in a store.
        experiment: the data set.
        digest: of the record's files; equal digests mean nothing to do.
        finished_ms: when ``run.json`` was written, milliseconds since 1970.
        seconds: wall time that the job took, 0 where it isn't known.
        running: the job is still training: what its history holds so far.
    """

    key: str
    experiment: str
    digest: str
    parameters: Mapping[str, str]
    tags: Mapping[str, str]
    metrics: Mapping[str, float]
    members: tuple[Member, ...]
    finished_ms: int
    seconds: float = 0.0
    running: bool = False


def record_folders(results: Path) -> list[Path]:
    """Return the folders of all finished jobs: those that hold a ``run.json``."""
    found = [
        path.parent for kind in ("search", "final") for path in results.glob(f"{kind}/**/run.json")
    ]
    return sorted(found)


def key_of(folder: Path, results: Path) -> str:
    """Return a job's key: the tier and its path below the tier's results."""
    return f"{results.name}/{folder.relative_to(results).as_posix()}"


def record_digest(folder: Path) -> str:
    """Digest the record's files."""
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
        more: further tags; what the record itself says goes before them.
    """
    run = _read_run(folder)
    kind, experiment, variant = folder.relative_to(results).parts[:3]
    shared = _flat({key: value for key, value in run.items() if not isinstance(value, list)})
    tags = {
        "tier": results.name,
        "kind": kind,
        "variant": variant if kind == "search" else variant.rsplit("-", 2)[0],
        "job": folder.relative_to(results).as_posix(),
    }
    tags = {**(more or {}), **tags, **_origin(shared)}
    setting = {name: shared[name] for name in _JOB_SETTINGS if name in shared}
    histories = read_histories(folder)
    tests = _tests(folder)
    # A test score is a repetition's: of one member, or of the ensemble that the members make up.
    ensemble = shared.get("parameters.variant.kind") == "ensemble"
    of_members = {} if ensemble else tests
    members = tuple(
        _member(row, kind, tags, setting, histories.get(row["member"], []), of_members, ensemble)
        for row in read_rows(folder, "members.csv", ("member",))
    )
    scores = [score for member in members if (score := member.metrics.get("val_score")) is not None]
    return Job(
        key=key_of(folder, results),
        experiment=experiment,
        digest=record_digest(folder),
        parameters=shared,
        tags=tags,
        metrics=({"best_val_score": min(scores)} if scores else {})
        | (_mean_of(tests) if ensemble else {}),
        members=members,
        finished_ms=int((folder / "run.json").stat().st_mtime * 1000),
        seconds=_numbers(shared).get("wall_seconds", 0.0),
    )


def _origin(shared: Mapping[str, str]) -> dict[str, str]:
    """Tags that say where a number came from, under short names."""
    names = ("commit", "dirty", "source_digest", "data_digest", "data_state", "fidelity", "device")
    found = {}
    for name in names:
        matches = [key for key in shared if key == name or key.endswith(f".{name}")]
        if matches:
            found[name] = shared[min(matches, key=len)]
    return found


def _read_run(folder: Path) -> dict[str, Any]:
    try:
        run = read_json(folder / "run.json")
    except ValueError as error:
        raise RecordError(
            f"{folder / 'run.json'}: not JSON ({error}); delete it and run again"
        ) from error
    if not isinstance(run, dict):
        raise RecordError(f"{folder / 'run.json'}: expected an object, got {type(run).__name__}")
    return run


def _member(
    row: Mapping[str, str],
    kind: str,
    tags: Mapping[str, str],
    shared: Mapping[str, str],
    history: list[dict[str, str]],
    tests: Mapping[str, Mapping[str, float]],
    ensemble: bool,
) -> Member:
    name = f"member {row['member']}"
    if kind == "final":
        repetition = f"repetition {row['repetition']}"
        name = f"{repetition}, {name}" if ensemble else repetition
    settings = {**shared, **{key: row[key] for key in _MEMBER_SETTINGS if row.get(key)}}
    left = {
        key: value
        for key, value in row.items()
        if key not in (*_MEMBER_SETTINGS, "member", "status")
    }
    best = int(row["best_epoch"]) if row.get("best_epoch") else None
    metrics = _numbers(left)
    if kind == "final":
        metrics |= tests.get(row["repetition"], {})
    member_tags = {**tags, "status": row.get("status", "")}
    return Member(name, settings, member_tags, metrics, curves(history, best))


def _mean_of(tests: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Mean test value of each metric over repetitions."""
    found: dict[str, list[float]] = {}
    for one in tests.values():
        for name, value in one.items():
            found.setdefault(name, []).append(value)
    return {name: math.fsum(values) / len(values) for name, values in found.items()}


def curves(history: list[dict[str, str]], best: int | None) -> dict[str, Curve]:
    """Thinned curves of one member; the best epoch is always among the points."""
    rows = thin(
        history, CURVE_POINTS, keep=lambda row: best is not None and int(row["epoch"]) == best
    )
    found: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        values = {key: value for key, value in row.items() if key not in ("member", "epoch")}
        for key, value in _numbers(values).items():
            found.setdefault(f"curve/{key}", []).append((int(row["epoch"]), value))
    return {key: tuple(points) for key, points in found.items()}


def thin(
    rows: list[dict[str, str]], limit: int, keep: Callable[[dict[str, str]], bool]
) -> list[dict[str, str]]:
    """Return at most ``limit`` evenly spaced rows, the first and the last among them.

    A row for which ``keep`` holds takes the place of the nearest evenly spaced inner one.
    """
    count = len(rows)
    if count <= limit:
        return rows
    chosen = {round(index * (count - 1) / (limit - 1)) for index in range(limit)}
    for index, row in enumerate(rows):
        if keep(row) and index not in chosen:
            inner = chosen - {0, count - 1}
            chosen.remove(min(inner, key=lambda other: abs(other - index)))
            chosen.add(index)
    return [rows[index] for index in sorted(chosen)]


def read_histories(folder: Path) -> dict[str, list[dict[str, str]]]:
    """Rows of history.csv by member."""
    histories: dict[str, list[dict[str, str]]] = {}
    for row in read_rows(folder, "history.csv", ("member", "epoch")):
        histories.setdefault(row["member"], []).append(row)
    return histories


def _tests(folder: Path) -> dict[str, dict[str, float]]:
    """Test values of a final: {repetition: {"test/<metric>": value}}."""
    tests: dict[str, dict[str, float]] = {}
    if (folder / "test.csv").exists():
        for row in read_rows(folder, "test.csv", ("repetition", "metric", "value")):
            values = _numbers({f"test/{row['metric']}": row["value"]})
            tests.setdefault(row["repetition"], {}).update(values)
    return tests


def _numbers(values: Mapping[str, str | None]) -> dict[str, float]:
    """The entries that are finite numbers."""
    found = {}
    for key, text in values.items():
        try:
            number = float(text) if text else math.nan
        except ValueError:
            continue
        if math.isfinite(number):
            found[key] = number
    return found


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested plain data as {dotted path: text}; lists as text."""
    found: dict[str, str] = {}
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= _flat(value, f"{path}.")
        elif value is not None:
            found[path] = (
                ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            )
    return found
