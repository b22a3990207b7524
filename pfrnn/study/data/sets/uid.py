"""UID: who walks? Accelerometer in the chest pocket of 22 persons (Casale 2012)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pfrnn.errors import DataError
from pfrnn.study.data.base import Address, Arrays, Card, Dataset, RawFile
from pfrnn.study.data.bulk import Layout, read_bulk
from pfrnn.study.data.classifiers import sensor_controls
from pfrnn.study.data.segments import (
    LEAKY_NOTE,
    Windows,
    WindowsProtocol,
    assign_windows,
    by_split,
    cut_windows,
    scaled_splits,
    sides_of,
)
from pfrnn.study.data.splits import by_group
from pfrnn.study.seeding import derive_seed

USERS = tuple(str(number) for number in range(1, 23))
LAYOUT = Layout(
    columns={"time": "number", "x": "number", "y": "number", "z": "number"},
    separator=",",
    header=False,
)
DIGESTS = {
    "1": "4384e348589c39e5f62332e50c08a325b0cf068c5b90d551f5e24ca6e9c5bce0",
    "2": "0b57e654f218801a28d0b540465b4858d2b84f8107366a55a05be47413383a80",
    "3": "b8500d29dc88868032f6fdd2ee34b56c0ad705f3516ac0a61656afe601e96beb",
    "4": "8cde4b7cca5455c01e1f658211eeacf60ee99366fa1d4dec93b4e3441c916e0e",
    "5": "5fafd4f8c3831c478a24f1ba3ff162ff4b9a88c01b87591f6f48df24ae0b5128",
    "6": "be7781508425ca77566dd6f0ee271b496d1b65a2f409cf42f4aa059ad92e868e",
    "7": "ae16670fc328c077bc4f09038be22b409337ccbef4fcdbe39fed679a785c939a",
    "8": "60f9908fde14216d4fd248b832750b9d424380f06b9d01075f1386f14d99b5d9",
    "9": "64697c9af0270beb47845a529409263024f5663ed9455207685fa6558f76a2cd",
    "10": "2f8ba8a50521dadcc0dd3fdff604f2b7da4f7b5cb0d9fb0b2649305ce05939e9",
    "11": "496da10dd6ec8b16cc9d9c239e432939d8c2f004a90d8430bf5ea9c1c86150aa",
    "12": "e8e78e21e8a36903c4342879cb7f8b09a3ff0714ccab5442b45cc7f3f064984e",
    "13": "82c0dfcd4bd16b0d51fc80e3b9c6f1b546829b9a851c3062c7b95b2f6d9cd077",
    "14": "a919ef38895bdc148179e41bf79970b5b1fcab47cc1b08c48e5c051c79d0b3b2",
    "15": "03a62a689809c9619dc719221491173834c6c55d68e929b78253799e8f98e96e",
    "16": "169b60d9db10a1aad1cd75d6c19671c07e849a7b899f92de9cf5ee6e3868c788",
    "17": "b1224e45abbb2b56201989bd7417952fdf9dfb3f646f3a63ba1283066daca981",
    "18": "f09eedd2c24657bf3fa4d62eb9965046c42f7fc799c9c1e7aa8a3f7f8ee22f3c",
    "19": "dc0d3015fa38380e35d6c5d8aca91e666084b7bf3a994a456f03765510a23026",
    "20": "a2e94cc41847f7a5228fe4480145f94377e3d251f82aff9fd6b2dfc21b4afd6f",
    "21": "f9b86cd7981469e5ffcc4ed41f058bdf0b7c0112dd6829d85ace3e363ceaa3b9",
    "22": "c9980c08d75a82d890f92fb338bbf3481154fea54ee62f455bc77fb852139520",
}

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
    files=tuple(RawFile(f"{user}.csv", (DIGESTS[user],)) for user in USERS),
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


def read(folder: Path) -> Mapping[str, npt.NDArray[Any]]:
    """Parse all files: user (number into ``USERS``), time [s], x, y, z [m/s^2].

    Raises:
        DataError: naming the file, line, column, what was expected and what came.
    """
    tables = [read_bulk(folder / f"{user}.csv", LAYOUT) for user in USERS]
    users = [np.full(len(table["time"]), number) for number, table in enumerate(tables)]
    joined = {name: np.concatenate([table[name] for table in tables]) for name in LAYOUT.columns}
    return {"user": np.concatenate(users).astype(np.int64), **joined}


def without_repeats(table: Mapping[str, npt.NDArray[Any]], user: int, where: Path) -> Recording:
    """Return one person's readings without those written more than once.

    A buffer of 64 readings was written again 4 times in 17.csv and 3 times in 18.csv; time runs
    backwards there. Kept in, its copies would stand on several sides.

    Raises:
        DataError: rows are swapped.
    """
    rows = np.flatnonzero(table["user"] == user)
    columns = np.stack([table[name][rows] for name in LAYOUT.columns], axis=1)
    _, first = np.unique(columns, axis=0, return_index=True)
    kept = np.sort(first)
    time = columns[kept, 0]
    strays = _strays(time)
    if len(strays):
        row = int(kept[strays[0]]) + 1
        raise DataError(
            f"{where}: data row {row}, column 1 (time): {time[strays[0]]:g} s lies outside of the "
            "rows around it; rows are out of order, fetch the file again"
        )
    return Recording(time, columns[kept, 1:], rows[kept])


def _strays(time: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Rows outside of the times of their two neighbours, which are in order: swapped rows.

    Where a recording starts anew, the neighbours themselves run backwards.
    """
    before = np.concatenate([[-np.inf], time[:-1]])
    after = np.concatenate([time[1:], [np.inf]])
    return np.flatnonzero((before <= after) & ((time < before) | (time > after)))


def cut_blocks(recording: Recording, label: int, protocol: UIDProtocol) -> list[list[Windows]]:
    """Cut a recording into contiguous blocks, and each block into windows.

    Blocks come first and hold equal numbers of readings; inside a block, windows stop where time
    runs backwards and at gaps longer than ``max_gap``.

    Returns:
        One list of windows a block, in time order; empty where nothing fits.
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
        result.append([part for part in windows if len(part.y)])
    return result


def prepare(folder: Path, protocol: UIDProtocol, seed: int) -> Arrays:
    """Make the arrays; row numbers count the readings of 1.csv, then of 2.csv, ..."""
    table = read(folder)
    windows: dict[str, list[Windows]] = {}
    labels: dict[Hashable, int] = {}
    repeats = 0
    for number, user in enumerate(USERS):
        recording = without_repeats(table, number, folder / f"{user}.csv")
        repeats += int(np.sum(table["user"] == number)) - len(recording.rows)
        for block, parts in enumerate(cut_blocks(recording, number, protocol)):
            windows[f"{user}/{block}"] = parts
            labels[f"{user}/{block}"] = number
    shares, draw = (protocol.validation, protocol.test), derive_seed(seed, "uid", "split")
    if protocol.leaky:
        divided = assign_windows(windows, *shares, draw)
    else:
        divided = by_split(windows, sides_of(by_group(labels, *shares, draw)))
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


DATASET = Dataset(CARD, UIDProtocol, prepare, read)
