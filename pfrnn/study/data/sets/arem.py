"""AREM: activity recognition from the radio signal strength between three worn devices."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pfrnn.errors import DataError
from pfrnn.study.data.base import SPLITS, Address, Alternative, Arrays, Card, Dataset, RawFile
from pfrnn.study.data.controls import logistic_regression, majority, sensor_controls
from pfrnn.study.data.raw import Table, read_lines
from pfrnn.study.data.scaling import fit_scaler
from pfrnn.study.data.splits import by_group
from pfrnn.study.data.windows import (
    LEAKY_NOTE,
    Windows,
    WindowsProtocol,
    cut_windows,
    deal_groups,
    deal_windows,
    scaled_splits,
    split_draws,
)
from pfrnn.study.seeding import derive_seed

ACTIVITIES = ("bending1", "bending2", "cycling", "lying", "sitting", "standing", "walking")
# Recordings of each activity; the table's digest knows all 88 files at once.
FILES = tuple(
    f"{activity}/dataset{number}.csv"
    for activity, count in zip(ACTIVITIES, (7, 6, 15, 15, 15, 15, 15), strict=True)
    for number in range(1, count + 1)
)
FEATURES = ("avg_rss12", "var_rss12", "avg_rss13", "var_rss13", "avg_rss23", "var_rss23")
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
    files=tuple(RawFile(name) for name in FILES),
    addresses=(
        Address(
            ZIP,
            {name: name for name in FILES},
            ("a328bd9f4a4017546c2359b371c1a820441e9e83346922fde3c3b058c7209000",),
        ),
    ),
    rows=42239,
    target="activity",
    unit="%",
    metric="accuracy",
    tables=("4d79d99e055f4b33739483a0c90a9c682c82f4f51a6278901c3de1a406de2c18",),
)


class AremProtocol(WindowsProtocol):
    """How AREM becomes sequences; docs/protocols.md names the source of each choice."""

    classes: Literal[7, 6] = Field(default=7, description="6: the two kinds of bending are one.")
    split: Literal["public", "random", "random_windows"] = Field(
        default="public",
        description="public: the test files that loaders share; random: a draw of files; "
        "random_windows (leaky!): a draw of single windows.",
    )
    window: int = Field(default=16, ge=2, description="Steps (250 ms each) of a sequence.")
    stride: int = Field(default=8, ge=1, description="Steps between training windows' starts.")
    validation: float = Field(default=0.2, gt=0, lt=1, description="Share of the other files.")
    test: float = Field(default=0.25, gt=0, lt=1, description="Share unless split: public.")


class Recording(NamedTuple):
    """One file: its name, activity and number, times [ms] and (rows, 6) values."""

    name: str
    activity: str
    number: int
    time: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]


def read_recordings(folder: Path) -> list[Recording]:
    """Parse all 88 files, by activity and number."""
    return [_read_recording(folder, name) for name in FILES]


def _read_recording(folder: Path, name: str) -> Recording:
    """Parse one file, its known defects included.

    bending2/dataset4 separates by spaces; two files end in a comma, one line in a tab.
    """
    path = folder / name
    rows = []
    for number, line in enumerate(read_lines(path), start=1):
        cells = line.replace(b",", b" ").split()
        if cells and not line.lstrip().startswith(b"#"):
            try:
                rows.append([float(cell) for cell in cells])
            except ValueError as error:
                raise DataError(f"{path}: line {number}: expected numbers, got {line!r}") from error
            if len(cells) != 1 + len(FEATURES) or not np.isfinite(rows[-1]).all():
                raise DataError(
                    f"{path}: line {number}: expected time and {len(FEATURES)} values, got {line!r}"
                )
    if not rows:
        raise DataError(f"{path}: expected rows of data, got none; get the publisher's file")
    table = np.array(rows)
    activity, _, stem = name.partition("/")
    number = int(stem.removeprefix("dataset").removesuffix(".csv"))
    return Recording(name, activity, number, table[:, 0].astype(np.int64), table[:, 1:])


def read(folder: Path) -> Table:
    """All files one below the other: file, time and the six features."""
    recordings = read_recordings(folder)
    values = np.concatenate([recording.values for recording in recordings])
    columns: Table = {
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
    for recording in recordings:
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
    return float((a.values[in_a] == b.values[in_b]).all(axis=1).mean()) if len(in_a) else 0.0


def deal(recordings: list[Recording], protocol: AremProtocol, seed: int) -> dict[str, str]:
    """Deal whole recordings to the splits: file name -> split."""
    labels = {r.name: ACTIVITIES.index(r.activity) for r in recordings}
    if protocol.split == "random":
        return by_group(labels, protocol.validation, protocol.test, seed)
    tested = [r.name for r in recordings if r.number in PUBLIC_TEST[r.activity]]
    rest = {name: label for name, label in labels.items() if name not in tested}
    return by_group(rest, protocol.validation, 0.0, seed) | dict.fromkeys(tested, "test")


def prepare(folder: Path, protocol: AremProtocol, seed: int) -> Arrays:
    """Split by recording, standardise on train, then cut windows inside each recording."""
    recordings, dropped = distinct(read_recordings(folder))
    classes = ACTIVITIES if protocol.classes == 7 else ("bending", *ACTIVITIES[2:])
    draw = protocol.draw(seed)
    if protocol.leaky:
        sides = dict.fromkeys((r.name for r in recordings), "train")
        windows = _cut(recordings, sides, protocol, classes)
        dealt = derive_seed(draw, "arem", "windows")
        splits = scaled_splits(deal_windows(windows, protocol.validation, protocol.test, dealt))
        predictions = sensor_controls(splits)
        notes = [LEAKY_NOTE]
    else:
        sides = deal(recordings, protocol, draw)
        windows = _cut(recordings, sides, protocol, classes)
        scaler = fit_scaler(
            np.concatenate([r.values for r in recordings if sides[r.name] == "train"])
        )
        dealt_groups = deal_groups(windows, {_key(r): sides[r.name] for r in recordings})
        splits = scaled_splits(dealt_groups, scaler.mean, scaler.std)
        predictions = {
            "majority": majority(splits["train"].y, len(splits["test"].y)),
            "logistic_regression": logistic_regression(splits["train"], splits["test"]),
        }
        counts = {name: list(sides.values()).count(name) for name in SPLITS}
        notes = ["Recordings: " + ", ".join(f"{name} {counts[name]}" for name in SPLITS) + "."]
    copies = f"{len(recordings)} distinct recordings; copies dropped: {', '.join(dropped)}."
    return Arrays(
        splits=splits,
        classes=classes,
        features=FEATURES,
        notes=(copies, *notes),
        predictions=predictions,
    )


def _key(recording: Recording) -> str:
    return f"{recording.activity}/{recording.number:02d}"


def _cut(
    recordings: list[Recording],
    sides: dict[str, str],
    protocol: AremProtocol,
    classes: tuple[str, ...],
) -> dict[str, Windows]:
    """Cut each recording; windows of validation and test do not overlap."""
    windows = {}
    first = 0
    for recording in recordings:
        count = len(recording.values)
        activity = recording.activity
        label = classes.index(activity if activity in classes else "bending")
        stride = protocol.stride if sides[recording.name] == "train" else protocol.window
        rows = first + np.arange(count)
        windows[_key(recording)] = cut_windows(
            recording.values, np.full(count, label), rows, protocol.window, stride
        )
        first += count
    return windows


ALTERNATIVES = (
    Alternative("random", {"split": "random"}, "Whole recordings dealt at random."),
    Alternative(
        "random_w16_s2",
        {"split": "random_windows", "window": 16, "stride": 2},
        "Heavily overlapping windows dealt at random.",
    ),
    Alternative(
        "random_w32_s4",
        {"split": "random_windows", "window": 32, "stride": 4},
        "Longer windows, as heavily overlapping, dealt at random.",
    ),
    *split_draws({"split": "random"}),
)

DATASET = Dataset(CARD, AremProtocol, prepare, read, ALTERNATIVES)
