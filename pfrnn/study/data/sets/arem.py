"""AREM: activity recognition from the radio signal strength between three worn devices."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pfrnn.errors import DataError
from pfrnn.study.data.base import SPLITS, Address, Arrays, Card, Dataset, Protocol, RawFile, Split
from pfrnn.study.data.controls import logistic_regression, majority
from pfrnn.study.data.scaling import fit_scaler
from pfrnn.study.data.sets._arem_files import SHA256
from pfrnn.study.data.splits import by_group
from pfrnn.study.data.tables import read_lines
from pfrnn.study.data.windows import label_split, window_starts

ACTIVITIES = ("bending1", "bending2", "cycling", "lying", "sitting", "standing", "walking")
FEATURES = ("avg_rss12", "var_rss12", "avg_rss13", "var_rss13", "avg_rss23", "var_rss23")
COLUMNS = "# Columns: time,avg_rss12,var_rss12,avg_rss13,var_rss13,avg_rss23,var_rss23"
STEP_MS = 250
ROWS = 480
# One row (t = 13500) is missing in the publisher's own file.
SHORT = {"sitting/dataset8.csv": 479}
# The public split that loaders of this set share.
PUBLIC_TEST = {name: (1, 2) if name.startswith("bending") else (1, 2, 3) for name in ACTIVITIES}

ZIP = (
    "https://archive.ics.uci.edu/static/public/366/"
    "activity+recognition+system+based+on+multisensor+data+fusion+arem.zip"
)

CARD = Card(
    name="arem",
    title="AREM",
    task="classification",
    origin="UCI Machine Learning Repository 366, AReM; F. Palumbo, D. Bacciu, C. Gallicchio",
    citation="Palumbo et al. (2016), Human activity recognition using multisensor data fusion "
    "based on Reservoir Computing, Journal of Ambient Intelligence and Smart Environments 8",
    licence="CC BY 4.0 (UCI's default; not re-checked)",
    redistributable=True,
    files=tuple(RawFile(name, digests) for name, digests in SHA256.items()),
    addresses=(
        Address(
            ZIP,
            {name: name for name in SHA256},
            ("a328bd9f4a4017546c2359b371c1a820441e9e83346922fde3c3b058c7209000",),
        ),
    ),
    rows=42239,
    target="activity",
    unit="%",
    metric="accuracy",
    tables=("4d79d99e055f4b33739483a0c90a9c682c82f4f51a6278901c3de1a406de2c18",),
)


class AremProtocol(Protocol):
    """How AREM becomes sequences; docs/protocols.md names the source of each choice."""

    classes: Literal[7, 6] = Field(default=7, description="6: the two kinds of bending are one.")
    split: Literal["public", "random"] = Field(
        default="public", description="public: the test files that loaders share; or a draw."
    )
    window: int = Field(default=16, ge=2, description="Steps (250 ms each) of a sequence.")
    stride: int = Field(default=8, ge=1, description="Steps between training windows' starts.")
    validation: float = Field(default=0.2, gt=0, lt=1, description="Share of the other files.")
    test: float = Field(default=0.25, gt=0, lt=1, description="Share of files if split: random.")


class Recording(NamedTuple):
    """One file: its folder, number, times [ms] and (rows, 6) values."""

    name: str
    activity: str
    number: int
    time: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]


def read_recordings(folder: Path) -> list[Recording]:
    """Parse all 88 files, by activity and number."""
    return [_read_recording(folder, name) for name in SHA256]


def _read_recording(folder: Path, name: str) -> Recording:
    """Parse one file, its known defects included.

    bending2/dataset4 separates by spaces; two files end in a comma, one line in a tab.
    """
    path = folder / name
    activity, _, stem = name.partition("/")
    lines = read_lines(path)
    if COLUMNS not in (line.strip() for line in lines):
        raise DataError(
            f"{path}: expected the line {COLUMNS!r} among the comments; the header is another: "
            "get the publisher's file"
        )
    times, values = [], []
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if text and not text.startswith("#"):
            cells = _row(path, number, text)
            times.append(int(cells[0]))
            values.append(cells[1:])
    _check_times(path, times, SHORT.get(name, ROWS))
    number = int(stem.removeprefix("dataset").removesuffix(".csv"))
    return Recording(name, activity, number, np.array(times), np.array(values))


def _row(path: Path, number: int, text: str) -> list[float]:
    cells = text.rstrip(",").replace(",", " ").split()
    if len(cells) != 1 + len(FEATURES):
        raise DataError(
            f"{path}: line {number}: expected time and {len(FEATURES)} values, got {len(cells)} "
            "cells; the line is cut, or the file altered: get the publisher's"
        )
    try:
        row = [float(cell) for cell in cells]
    except ValueError as error:
        raise DataError(
            f"{path}: line {number}: expected numbers, got {text!r}; get the publisher's file"
        ) from error
    if not np.isfinite(row).all():
        raise DataError(f"{path}: line {number}: expected finite numbers, got {text!r}")
    return row


def _check_times(path: Path, times: list[int], rows: int) -> None:
    if len(times) != rows:
        raise DataError(
            f"{path}: expected {rows} rows of data, got {len(times)}; the file is cut or altered: "
            "get the publisher's"
        )
    steps = np.diff(times)
    # The file that lacks a row has one double step.
    wrong = np.flatnonzero((steps != STEP_MS) & ((steps != 2 * STEP_MS) | (rows == ROWS)))
    if len(wrong):
        raise DataError(
            f"{path}: time {times[int(wrong[0]) + 1]} after {times[int(wrong[0])]} ms: expected "
            f"steps of {STEP_MS} ms; rows are out of order or missing: get the publisher's file"
        )


def read(folder: Path) -> Mapping[str, npt.NDArray[Any]]:
    """All files one below the other: file, time and the six features."""
    recordings = read_recordings(folder)
    values = np.concatenate([recording.values for recording in recordings])
    columns: dict[str, npt.NDArray[Any]] = {
        "file": np.concatenate([np.full(len(r.time), r.name) for r in recordings]),
        "time": np.concatenate([recording.time for recording in recordings]),
    }
    return columns | {name: values[:, i] for i, name in enumerate(FEATURES)}


def distinct(recordings: list[Recording]) -> tuple[list[Recording], list[str]]:
    """Keep the first of each set of copies; return the dropped ones' names, too.

    Six recordings are copies byte for byte, and lying/dataset10 is lying/dataset1 but for one of
    its 480 rows; other recordings share no more than one row. A copy on the other side of a split
    would be a leak, and on the same side it would count one recording twice.
    """
    kept: list[Recording] = []
    dropped = []
    for recording in sorted(recordings, key=lambda r: (r.activity, r.number)):
        if any(_shared_rows(recording, other) > 0.5 for other in kept):
            dropped.append(recording.name)
        else:
            kept.append(recording)
    return kept, dropped


def _shared_rows(a: Recording, b: Recording) -> float:
    """Share of equal rows among the times that both recordings have."""
    if a.activity != b.activity:
        return 0.0
    _, in_a, in_b = np.intersect1d(a.time, b.time, return_indices=True)
    return float((a.values[in_a] == b.values[in_b]).all(axis=1).mean())


def deal(recordings: list[Recording], protocol: AremProtocol, seed: int) -> dict[str, set[str]]:
    """Deal whole recordings to the splits; within a class by a seeded draw."""
    if protocol.split == "random":
        labels = {r.name: ACTIVITIES.index(r.activity) for r in recordings}
        parts = by_group(labels, protocol.validation, protocol.test, seed)
        return {name: set(parts[name]) for name in SPLITS}
    test = {r.name for r in recordings if r.number in PUBLIC_TEST[r.activity]}
    rest = {r.name: ACTIVITIES.index(r.activity) for r in recordings if r.name not in test}
    parts = by_group(rest, protocol.validation, 0.0, seed)
    return {
        "train": set(parts["train"]),
        "validation": set(parts["validation"]),
        "test": test,
    }


def prepare(folder: Path, protocol: AremProtocol, seed: int) -> Arrays:
    """Split by recording, standardise on train, then cut windows inside each recording."""
    recordings, dropped = distinct(read_recordings(folder))
    parts = deal(recordings, protocol, seed)
    train = np.concatenate([r.values for r in recordings if r.name in parts["train"]])
    scaler = fit_scaler(train)
    classes = ACTIVITIES if protocol.classes == 7 else ("bending", *ACTIVITIES[2:])
    splits: dict[str, Split] = {}
    for name in SPLITS:
        stride = protocol.stride if name == "train" else protocol.window
        windows, labels, rows = [], [], []
        first = 0
        for recording in recordings:
            if recording.name in parts[name]:
                label = _label(recording.activity, classes)
                scaled = scaler.apply(recording.values)
                for start in window_starts(range(len(scaled)), protocol.window, stride):
                    windows.append(scaled[start : start + protocol.window])
                    labels.append(label)
                    rows.append(first + start + np.arange(protocol.window))
            first += len(recording.values)
        splits[name] = label_split(windows, labels, rows, protocol.window)
    return Arrays(
        splits=splits,
        classes=classes,
        features=FEATURES,
        notes=(
            f"{len(recordings)} distinct recordings; copies dropped: {', '.join(dropped)}.",
            "Recordings: " + ", ".join(f"{name} {len(parts[name])}" for name in SPLITS) + ".",
        ),
        predictions={
            "majority": majority(splits["train"].y, len(splits["test"].y)),
            "logistic_regression": logistic_regression(splits["train"], splits["test"]),
        },
    )


def _label(activity: str, classes: tuple[str, ...]) -> int:
    return classes.index(activity if activity in classes else "bending")


DATASET = Dataset(CARD, AremProtocol, prepare, read)
