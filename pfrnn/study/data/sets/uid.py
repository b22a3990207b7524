"""UID: who walks? Accelerometer in the chest pocket of 22 persons (Casale 2012)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pfrnn.study.data.base import Address, Alternative, Arrays, Card, Dataset, RawFile
from pfrnn.study.data.controls import sensor_controls
from pfrnn.study.data.raw import Layout, Table, read_table
from pfrnn.study.data.splits import by_group
from pfrnn.study.data.windows import (
    LEAKY_NOTE,
    Windows,
    WindowsProtocol,
    cut_windows,
    deal_groups,
    deal_windows,
    join,
    scaled_splits,
    split_draws,
)
from pfrnn.study.seeding import derive_seed

USERS = tuple(str(number) for number in range(1, 23))
LAYOUT = Layout(("time", "x", "y", "z"), header=False)

CARD = Card(
    name="uid",
    title="UID",
    task="classification",
    origin="UCI Machine Learning Repository 286, User Identification From Walking Activity",
    citation=(
        "P. Casale, O. Pujol, P. Radeva: Personalization and user verification in wearable systems "
        "using biometric walking patterns. Personal and Ubiquitous Computing 16(5), 563-580, 2012."
    ),
    licence="CC BY 4.0 (UCI's default; not re-checked)",
    redistributable=True,
    files=tuple(RawFile(f"{user}.csv") for user in USERS),
    addresses=(
        Address(
            "https://archive.ics.uci.edu/static/public/286/"
            "user+identification+from+walking+activity.zip",
            {f"{user}.csv": f"{user}.csv" for user in USERS},
        ),
        Address(
            "https://archive.ics.uci.edu/ml/machine-learning-databases/00286/"
            "User%20Identification%20From%20Walking%20Activity.zip",
            {f"{user}.csv": f"{user}.csv" for user in USERS},
        ),
    ),
    rows=149_332,
    target="the person who walks, one of 22",
    unit="%",
    metric="accuracy",
    tables=("d49c0e87063ab3cd34d89a68d539e2d6f0486dc583a360ba495c2d6ec59632a6",),
)


class UIDProtocol(WindowsProtocol):
    """Blocks and windows; docs/protocols.md names the source of each choice."""

    window: int = Field(64, ge=2, description="Readings of a window, about 2 s.")
    stride: int = Field(32, ge=1, description="Readings between the starts of windows.")
    max_gap: float = Field(0.5, gt=0, description="Seconds; no window spans a longer gap.")
    blocks: int = Field(5, ge=3, description="Contiguous blocks of each person's readings.")
    split: Literal["blocks", "random_windows"] = Field(
        "blocks", description="Whole blocks on one side, or (leaky!) single windows."
    )
    validation: float = Field(0.2, gt=0, lt=0.5, description="Share of a person's blocks.")
    test: float = Field(0.2, gt=0, lt=0.5, description="Share of a person's blocks.")


class Recording(NamedTuple):
    """One person's readings: (n,) seconds and (n, 3) m/s^2, repeats dropped; their row numbers."""

    time: npt.NDArray[np.float64]
    values: npt.NDArray[np.float64]
    rows: npt.NDArray[np.int64]


def read(folder: Path) -> Table:
    """Parse all files: user (number into ``USERS``), time [s], x, y, z [m/s^2]."""
    tables = [read_table(folder / f"{user}.csv", LAYOUT) for user in USERS]
    users = [np.full(len(table["time"]), number) for number, table in enumerate(tables)]
    joined = {name: np.concatenate([table[name] for table in tables]) for name in LAYOUT.columns}
    return {"user": np.concatenate(users).astype(np.int64), **joined}


def without_repeats(table: Table, user: int) -> Recording:
    """Return one person's readings without those written more than once.

    A buffer of 64 readings was written again 4 times in 17.csv and 3 times in 18.csv; time runs
    backwards there. Kept in, its copies would stand on several sides.
    """
    rows = np.flatnonzero(table["user"] == user)
    columns = np.stack([table[name][rows] for name in LAYOUT.columns], axis=1)
    kept = np.sort(np.unique(columns, axis=0, return_index=True)[1])
    return Recording(columns[kept, 0], columns[kept, 1:], rows[kept])


def cut_blocks(recording: Recording, label: int, protocol: UIDProtocol) -> list[Windows]:
    """Cut a recording into contiguous blocks, and each block into windows.

    Blocks come first and hold equal numbers of readings; inside a block, windows stop where time
    runs backwards and at gaps longer than ``max_gap``.

    Returns:
        The windows of each block, in time order.
    """
    result = []
    for block in np.array_split(np.arange(len(recording.time)), protocol.blocks):
        step = np.diff(recording.time[block])
        borders = np.flatnonzero((step < 0) | (step > protocol.max_gap)) + 1
        windows = [
            cut_windows(
                recording.values[piece], np.full(len(piece), label), recording.rows[piece],
                protocol.window, protocol.stride,
            )
            for piece in np.split(block, borders)
        ]  # fmt: skip
        result.append(join(windows))
    return result


def prepare(folder: Path, protocol: UIDProtocol, seed: int) -> Arrays:
    """Make the arrays; row numbers count the readings of 1.csv, then of 2.csv, ..."""
    table = read(folder)
    windows: dict[str, Windows] = {}
    labels: dict[str, int] = {}
    repeats = len(table["user"])
    for number, user in enumerate(USERS):
        recording = without_repeats(table, number)
        repeats -= len(recording.rows)
        for block, part in enumerate(cut_blocks(recording, number, protocol)):
            windows[f"{user}/{block}"] = part
            labels[f"{user}/{block}"] = number
    shares = (protocol.validation, protocol.test)
    draw = derive_seed(protocol.draw(seed), "uid", "split")
    if protocol.leaky:
        divided = deal_windows(windows, *shares, draw)
    else:
        divided = deal_groups(windows, by_group(labels, *shares, draw))
    splits = scaled_splits(divided)
    return Arrays(
        splits=splits,
        classes=USERS,
        features=("x", "y", "z"),
        predictions=sensor_controls(splits),
        notes=(
            f"{repeats} readings dropped that are written more than once (17.csv, 18.csv).",
            f"Each person's readings are cut into {protocol.blocks} contiguous blocks; a block "
            "stands on one side, and windows are cut inside a block.",
            *((LEAKY_NOTE,) if protocol.leaky else ()),
        ),
    )


ALTERNATIVES = (
    Alternative(
        "random_s16",
        {"split": "random_windows", "stride": 16},
        "Windows that overlap by three quarters, dealt at random.",
    ),
    Alternative(
        "random_s8",
        {"split": "random_windows", "stride": 8},
        "Windows that overlap by seven eighths, dealt at random.",
    ),
    *split_draws({}),
)

DATASET = Dataset(CARD, UIDProtocol, prepare, read, ALTERNATIVES)
