"""GAS: wine, banana or nothing? Eight gas sensors in a home (Huerta 2016)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

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
    assign,
    assign_windows,
    by_split,
    cut_windows,
    scaled_splits,
)
from pfrnn.study.seeding import derive_seed

READINGS = "HT_Sensor_dataset.dat"
METADATA = "HT_Sensor_metadata.dat"
CLASSES = ("background", "banana", "wine")
SENSORS = ("R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "Temp.", "Humidity")
READINGS_LAYOUT = Layout(
    columns={"id": "number", "time": "number"} | dict.fromkeys(SENSORS, "number"),
    separator=None,
    header=True,
)
METADATA_LAYOUT = Layout(
    columns={"id": "number", "date": "text", "class": "text", "t0": "number", "dt": "number"},
    separator=None,
    header=True,
)
SECONDS_PER_HOUR = 3600

CARD = Card(
    name="gas",
    title="GAS",
    task="classification",
    origin="UCI Machine Learning Repository 362, Gas sensors for home activity monitoring",
    citation=(
        "R. Huerta, T. Mosqueiro, J. Fonollosa, N. Rulkov, I. Rodriguez-Lujan: Online "
        "decorrelation of humidity and temperature in chemical sensors for continuous monitoring. "
        "Chemometrics and Intelligent Laboratory Systems 157, 169-176, 2016."
    ),
    licence="CC BY 4.0 (UCI's default; not re-checked)",
    redistributable=True,
    files=(
        RawFile(
            READINGS,
            excerpts=("c7b4bbd42be607f718bd284fdd69f8dfe7a4176b7019930fece262e5bb2e018c",),
        ),
        RawFile(METADATA, ("170e0adeacbaeeb7948d0f79f4cbd0058c3b3820e8fb85844d821201fb1a9bc5",)),
    ),
    addresses=(
        Address(
            "https://archive.ics.uci.edu/static/public/362/"
            "gas+sensors+for+home+activity+monitoring.zip",
            {READINGS: f"HT_Sensor_dataset.zip!{READINGS}", METADATA: METADATA},
            ("sha1:34101ca24e556dc14a6ee1e2910111ed49c0e6ce",),
        ),
    ),
    rows=928_991,
    target="stimulus near the sensors: background, banana or wine",
    unit="%",
    metric="accuracy",
)


class GASProtocol(WindowsProtocol):
    """Steps, windows and split; docs/protocols.md names the source of each choice."""

    step: float = Field(
        60.0, gt=0, description="Seconds a step; readings nearest to it are averaged."
    )
    window: int = Field(10, ge=2, description="Steps of a window: ten minutes.")
    stride: int = Field(1, ge=1, description="Steps between the starts of windows.")
    clip: float = Field(10.0, gt=0, description="Largest scaled input; spikes reach 60.")
    split: Literal["induction", "random_windows"] = Field(
        "induction", description="Whole inductions on one side, or (leaky!) single windows."
    )
    validation: float = Field(0.15, gt=0, lt=0.5, description="Share of each class's windows.")
    test: float = Field(0.25, gt=0, lt=0.5, description="Share of each class's windows.")


def read(folder: Path) -> Mapping[str, npt.NDArray[Any]]:
    """Parse the readings, in the order of induction and time, with their class and duration.

    Returns:
        induction and class (int64), time [h, 0 at the stimulus], duration [h] of the stimulus,
        and the ten sensors, a value a reading.

    Raises:
        DataError: naming the file, line, column, what was expected and what came.
    """
    path = folder / READINGS
    raw = read_bulk(path, READINGS_LAYOUT)
    classes, durations = read_metadata(folder / METADATA)
    induction = raw.pop("id").astype(np.int64)
    unknown = set(np.unique(induction).tolist()) - set(classes)
    if unknown:
        raise DataError(
            f"{path}: induction {min(unknown)} is not in {METADATA}; one of the two files is "
            "damaged, fetch both again"
        )
    order = np.lexsort((raw["time"], induction))
    induction = induction[order]
    numbers, places = np.unique(induction, return_inverse=True)
    table = {name: values[order] for name, values in raw.items()}
    table["induction"] = induction
    table["class"] = np.array([classes[number] for number in numbers], dtype=np.int64)[places]
    table["duration"] = np.array([durations[number] for number in numbers])[places]
    return table


def read_metadata(path: Path) -> tuple[dict[int, int], dict[int, float]]:
    """Parse the metadata: induction -> class number, induction -> hours of stimulus."""
    raw = read_bulk(path, METADATA_LAYOUT)
    inductions = [int(number) for number in raw["id"]]
    if len(set(inductions)) != len(inductions):
        raise DataError(f"{path}: an induction stands twice; the file is damaged, fetch it again")
    for row, name in enumerate(raw["class"]):
        if name not in CLASSES:
            raise DataError(
                f"{path}: data row {row + 1}, column 3 (class): expected one of "
                f"{', '.join(CLASSES)}, got {name[:40]!r}; fetch the file again"
            )
    numbers = [CLASSES.index(name) for name in raw["class"]]
    return (
        dict(zip(inductions, numbers, strict=True)),
        dict(zip(inductions, raw["dt"].tolist(), strict=True)),
    )


def steps_of(
    time: npt.NDArray[np.float64], values: npt.NDArray[np.float64], seconds: float
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Average the readings of one induction around each multiple of ``seconds``.

    Args:
        time: (n,) hours, ascending.
        values: (n, D).
        seconds: a step's length.

    Returns:
        Numbers of the steps that have readings (ascending), their means, and the index of each
        step's last reading.
    """
    number = np.rint(time * SECONDS_PER_HOUR / seconds).astype(np.int64)
    found, first, count = np.unique(number, return_index=True, return_counts=True)
    means = np.add.reduceat(values, first, axis=0) / count[:, None]
    return found, means, first + count - 1


def prepare(folder: Path, protocol: GASProtocol, seed: int) -> Arrays:
    """Make the arrays; row numbers count the readings in the order of ``read``."""
    table = read(folder)
    values = np.stack([table[name] for name in SENSORS], axis=1)
    # Outside of the stimulus there is no wine and no banana to recognise.
    inside = (table["time"] >= 0) & (table["time"] <= table["duration"])
    windows: dict[str, list[Windows]] = {}
    labels: dict[str, int] = {}
    for number in np.unique(table["induction"]):
        rows = np.flatnonzero((table["induction"] == number) & inside)
        if not len(rows):
            continue
        steps, means, last = steps_of(table["time"][rows], values[rows], protocol.step)
        name, label = f"{number:03d}", int(table["class"][rows[0]])
        pieces = np.split(np.arange(len(steps)), np.flatnonzero(np.diff(steps) > 1) + 1)
        windows[name] = [
            cut_windows(
                means[piece], np.full(len(piece), label), rows[last[piece]],
                protocol.window, protocol.stride,
            )
            for piece in pieces
        ]  # fmt: skip
        labels[name] = label
    if protocol.leaky:
        draw = derive_seed(seed, "gas", "windows")
        divided = assign_windows(windows, protocol.validation, protocol.test, draw)
    else:
        divided = by_split(windows, _sides(windows, labels, protocol, seed))
    splits = scaled_splits(divided, robust=True, clip=protocol.clip)
    used = sum(any(len(part.y) for part in parts) for parts in windows.values())
    return Arrays(
        splits=splits,
        classes=CLASSES,
        features=SENSORS,
        predictions=sensor_controls(splits),
        notes=(
            f"{used} inductions give windows of {protocol.window * protocol.step / 60:g} minutes, "
            "inside the stimulus interval, a step being the mean of "
            f"{protocol.step:g} s of readings.",
            f"Inputs beyond {protocol.clip:g} robust deviations are clipped: "
            f"{_clipped(splits, protocol.clip):.2f} % of train's.",
            *((LEAKY_NOTE,) if protocol.leaky else ()),
        ),
    )


def _sides(
    windows: Mapping[str, list[Windows]],
    labels: Mapping[str, int],
    protocol: GASProtocol,
    seed: int,
) -> dict[str, str]:
    """Divide each class's inductions by their numbers of windows, since they differ tenfold."""
    counts = {name: sum(len(part.y) for part in parts) for name, parts in windows.items()}
    sides: dict[str, str] = {}
    for label in sorted(set(labels.values())):
        own = {name: count for name, count in counts.items() if labels[name] == label}
        draw = derive_seed(seed, "gas", "split", label)
        sides |= assign(own, protocol.validation, protocol.test, draw)
    return sides


def _clipped(splits: Mapping[str, Any], limit: float) -> float:
    return 100 * float(np.mean(np.abs(splits["train"].x) >= limit))


DATASET = Dataset(CARD, GASProtocol, prepare, read)
