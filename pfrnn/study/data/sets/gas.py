"""GAS: wine, banana or nothing? Eight gas sensors in a home (Huerta 2016)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pfrnn.errors import DataError
from pfrnn.study.data.base import Address, Alternative, Arrays, Card, Dataset, RawFile
from pfrnn.study.data.controls import sensor_controls
from pfrnn.study.data.raw import Layout, Table, numbers_of, read_table
from pfrnn.study.data.windows import (
    LEAKY_NOTE,
    Windows,
    WindowsProtocol,
    assign_by_weight,
    cut_windows,
    deal_groups,
    deal_windows,
    join,
    robust_scale,
    scaled_splits,
    split_draws,
)
from pfrnn.study.seeding import derive_seed

READINGS = "HT_Sensor_dataset.dat"
METADATA = "HT_Sensor_metadata.dat"
CLASSES = ("background", "banana", "wine")
SENSORS = ("R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "Temp.", "Humidity")
READINGS_LAYOUT = Layout(("id", "time", *SENSORS), separator="")
METADATA_LAYOUT = Layout(("id", "date", "class", "t0", "dt"), separator="", text=("date", "class"))
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
        RawFile(READINGS),
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
    excerpts=("7342fc262f29bdffcf5856767d1d34469ba71468bd75131fae4a438ad6e03366",),
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


def read(folder: Path) -> Table:
    """Parse the readings, in the order of induction and time, with their class and duration.

    Returns:
        induction and class (int64), time [h, 0 at the stimulus], duration [h] of the stimulus,
        and the ten sensors, a value a reading.
    """
    table = read_table(folder / READINGS, READINGS_LAYOUT)
    meta = read_table(folder / METADATA, METADATA_LAYOUT)
    classes = numbers_of(folder / METADATA, meta, "class", CLASSES)
    places = {number: row for row, number in enumerate(meta["id"].astype(np.int64).tolist())}
    induction = table.pop("id").astype(np.int64)
    unknown = set(induction.tolist()) - set(places)
    if unknown or len(places) < len(classes):
        raise DataError(
            f"{folder}: the inductions of {READINGS} and {METADATA} do not fit; get both again"
        )
    order = np.lexsort((table["time"], induction))
    table = {name: values[order] for name, values in table.items()}
    row = np.array([places[number] for number in induction[order].tolist()])
    return table | {
        "induction": induction[order], "class": classes[row], "duration": meta["dt"][row],
    }  # fmt: skip


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


def cut_inductions(
    table: Table, protocol: GASProtocol
) -> tuple[dict[str, Windows], dict[str, int]]:
    """Cut each induction into windows, inside its stimulus interval and between gaps.

    Returns:
        Induction -> windows, induction -> class.
    """
    values = np.stack([table[name] for name in SENSORS], axis=1)
    # Outside of the stimulus there is no wine and no banana to recognise.
    inside = (table["time"] >= 0) & (table["time"] <= table["duration"])
    windows: dict[str, Windows] = {}
    labels: dict[str, int] = {}
    for number in np.unique(table["induction"]):
        rows = np.flatnonzero((table["induction"] == number) & inside)
        if not len(rows):
            continue
        steps, means, last = steps_of(table["time"][rows], values[rows], protocol.step)
        name, label = f"{number:03d}", int(table["class"][rows[0]])
        pieces = np.split(np.arange(len(steps)), np.flatnonzero(np.diff(steps) > 1) + 1)
        windows[name] = join([
            cut_windows(
                means[piece], np.full(len(piece), label), rows[last[piece]],
                protocol.window, protocol.stride,
            )
            for piece in pieces
        ])  # fmt: skip
        labels[name] = label
    return windows, labels


def prepare(folder: Path, protocol: GASProtocol, seed: int) -> Arrays:
    """Make the arrays; row numbers count the readings in the order of ``read``."""
    windows, labels = cut_inductions(read(folder), protocol)
    shares = (protocol.validation, protocol.test)
    draw = protocol.draw(seed)
    if protocol.leaky:
        divided = deal_windows(windows, *shares, derive_seed(draw, "gas", "windows"))
    else:
        # By numbers of windows, since inductions differ tenfold; class by class.
        sides: dict[str, str] = {}
        for label in sorted(set(labels.values())):
            own = {name: len(part.y) for name, part in windows.items() if labels[name] == label}
            sides |= assign_by_weight(own, *shares, derive_seed(draw, "gas", "split", label))
        divided = deal_groups(windows, sides)
    splits = scaled_splits(divided, *robust_scale(divided["train"]), clip=protocol.clip)
    clipped = 100 * float(np.mean(np.abs(splits["train"].x) >= protocol.clip))
    used = sum(len(part.y) > 0 for part in windows.values())
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
            f"{clipped:.2f} % of train's.",
            *((LEAKY_NOTE,) if protocol.leaky else ()),
        ),
    )


ALTERNATIVES = (
    Alternative(
        "random_windows", {"split": "random_windows"}, "Overlapping windows dealt at random."
    ),
    *split_draws({}),
)

DATASET = Dataset(CARD, GASProtocol, prepare, read, ALTERNATIVES)
