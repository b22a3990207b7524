"""LPA: activities of a person who wears four radio tags (Kaluža 2010)."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pfrnn.errors import DataError
from pfrnn.study.data.base import Address, Alternative, Arrays, Card, Dataset, RawFile
from pfrnn.study.data.controls import sensor_controls
from pfrnn.study.data.raw import Layout, Table, numbers_of, read_table
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

FILE = "ConfLongDemo_JSI.txt"
TAGS = {
    "010-000-024-033": "ankle_left",
    "010-000-030-096": "ankle_right",
    "020-000-033-111": "chest",
    "020-000-032-221": "belt",
}
CLASSES = (
    "walking", "falling", "lying down", "lying", "sitting down", "sitting",
    "standing up from lying", "on all fours", "sitting on the ground",
    "standing up from sitting", "standing up from sitting on the ground",
)  # fmt: skip
LAYOUT = Layout(
    ("sequence", "tag", "timestamp", "date", "x", "y", "z", "activity"),
    text=("sequence", "tag", "timestamp", "date", "activity"),
    header=False,
)
TICKS_PER_SECOND = 10_000_000

CARD = Card(
    name="lpa",
    title="LPA",
    task="classification",
    origin="UCI Machine Learning Repository 196, Localization Data for Person Activity",
    citation=(
        "B. Kaluža, V. Mirchevska, E. Dovgan, M. Luštrek, M. Gams: An Agent-Based Approach to Care "
        "in Independent Living. AmI 2010."
    ),
    licence="CC BY 4.0",
    redistributable=True,
    files=(RawFile(FILE, ("md5:280a677ae0d673ec9a50ada480d8a529",)),),
    addresses=(
        Address(
            "https://archive.ics.uci.edu/static/public/196/"
            "localization+data+for+person+activity.zip",
            {FILE: FILE},
            ("6660124b4d1fd98963c56a6804bbb0ca0c5ee12edc9b772c8a867148af20d0da",),
        ),
    ),
    rows=164_860,
    target="activity at the window's last step, one of 11",
    unit="%",
    metric="accuracy",
    excerpts=("3aae4e734ccc0e822dbd1af9004af916da0a47ca65961d7d038bd6be2bf35030",),
)


class LPAProtocol(WindowsProtocol):
    """Resampling, windows and split; docs/protocols.md names the source of each choice."""

    added: ClassVar[tuple[str, ...]] = ("split_seed", "activities")

    period: float = Field(0.1, gt=0, description="Seconds between the steps of the resampled tags.")
    window: int = Field(30, ge=2, description="Steps of a window.")
    stride: int = Field(4, ge=1, description="Steps between the starts of windows.")
    split: Literal["sequence", "person", "random_windows"] = Field(
        "sequence",
        description="Whole sequences on one side; whole persons; or (leaky!) single windows.",
    )
    activities: Literal["any", "single"] = Field(
        "any", description="single: only windows whose steps all have one activity."
    )
    validation: float = Field(0.2, gt=0, lt=0.5, description="Share of the validation split.")
    test: float = Field(0.2, gt=0, lt=0.5, description="Share of the test split.")


def read(folder: Path) -> Table:
    """Parse the file; rows in the order of sequence, time stamp and tag.

    The file itself runs backwards by a few milliseconds here and there, where tags overtake each
    other, so the order of its lines carries no meaning.

    Returns:
        sequence (text), tag and activity (numbers into ``TAGS`` and ``CLASSES``), ticks (int64,
        100 ns), x, y, z (float64, metres).
    """
    path = folder / FILE
    raw = read_table(path, LAYOUT)
    try:
        ticks = raw["timestamp"].astype(np.int64)
    except ValueError as error:
        raise DataError(f"{path}: column 'timestamp': expected 100 ns ticks: {error}") from error
    tag = numbers_of(path, raw, "tag", tuple(TAGS))
    activity = numbers_of(path, raw, "activity", CLASSES)
    table = {"sequence": raw["sequence"], "ticks": ticks, "tag": tag, "activity": activity}
    table |= {axis: raw[axis] for axis in "xyz"}
    order = np.lexsort((tag, ticks, raw["sequence"]))
    return {name: values[order] for name, values in table.items()}


def resample(
    ticks: npt.NDArray[np.int64],
    tag: npt.NDArray[np.int64],
    position: npt.NDArray[np.float64],
    period: float,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Put the tags of one sequence on a regular grid: each tag's last reading at or before it.

    Causal: nothing after a grid point is used. The grid starts when all tags have been read once.

    Args:
        ticks: (n,) ascending, 100 ns.
        tag: (n,) tag number.
        position: (n, 3) metres.
        period: seconds between grid points.

    Returns:
        Positions (steps, 3 tags) and the number of the newest reading at each step (steps,).

    Raises:
        DataError: a tag was never read.
    """
    seconds = (ticks - ticks[0]) / TICKS_PER_SECOND
    readings = [np.flatnonzero(tag == number) for number in range(len(TAGS))]
    silent = [name for name, rows in zip(TAGS.values(), readings, strict=True) if not len(rows)]
    if silent:
        raise DataError(f"the tag {silent[0]} was never read; fetch the file again")
    start = max(seconds[rows[0]] for rows in readings)
    # 1e-9: a last reading exactly on a grid point counts, whatever the division rounds to.
    steps = int((seconds[-1] - start) / period + 1e-9) + 1
    grid = start + period * np.arange(steps) + 1e-9
    held = [rows[np.searchsorted(seconds[rows], grid, side="right") - 1] for rows in readings]
    newest = np.searchsorted(seconds, grid, side="right") - 1
    return np.concatenate([position[rows] for rows in held], axis=1), newest


def prepare(folder: Path, protocol: LPAProtocol, seed: int) -> Arrays:
    """Make the arrays; row numbers count the readings in the order of ``read``."""
    table = read(folder)
    position = np.stack([table[axis] for axis in "xyz"], axis=1)
    windows: dict[str, Windows] = {}
    for name in map(str, np.unique(table["sequence"])):
        rows = np.flatnonzero(table["sequence"] == name)
        try:
            values, newest = resample(
                table["ticks"][rows], table["tag"][rows], position[rows], protocol.period
            )
        except DataError as error:
            raise DataError(f"{folder / FILE}: sequence {name}: {error}") from error
        labels = table["activity"][rows[newest]]
        cut = cut_windows(values, labels, rows[newest], protocol.window, protocol.stride)
        if protocol.activities == "single":
            every = cut_windows(labels[:, None], labels, labels, protocol.window, protocol.stride)
            cut = cut.take((every.rows == every.y[:, None]).all(axis=1))
        windows[name] = cut
    splits = scaled_splits(_divide(windows, protocol, protocol.draw(seed)))
    return Arrays(
        splits=splits,
        classes=CLASSES,
        features=tuple(f"{tag}_{axis}" for tag in TAGS.values() for axis in "xyz"),
        predictions=sensor_controls(splits),
        notes=(
            f"{len(windows)} sequences of {len({name[0] for name in windows})} persons; windows of "
            f"{protocol.window * protocol.period:g} s, one every "
            f"{protocol.stride * protocol.period:g} s.",
            *(("Windows with more than one activity are left out.",)
              if protocol.activities == "single" else ()),
            *((LEAKY_NOTE,) if protocol.leaky else ()),
        ),
    )  # fmt: skip


def _divide(windows: dict[str, Windows], protocol: LPAProtocol, seed: int) -> dict[str, Windows]:
    draw = derive_seed(seed, "lpa", protocol.split)
    shares = (protocol.validation, protocol.test)
    if protocol.leaky:
        return deal_windows(windows, *shares, draw)
    # A person's letter is its class here: each person gives its share of sequences.
    persons = {name: ord(name[0]) for name in windows}
    if protocol.split == "sequence":
        return deal_groups(windows, by_group(persons, *shares, draw))
    order = np.random.default_rng(draw).permutation(sorted(set(persons.values()))).tolist()
    tested = max(1, round(protocol.test * len(order)))
    validated = round(protocol.validation * len(order)) if len(order) > 2 else 0
    parts = ["test"] * tested + ["validation"] * validated + ["train"] * len(order)
    sides = dict(zip(order, parts, strict=False))
    result = {name: sides[person] for name, person in persons.items()}
    if not validated:
        # Two persons only (an excerpt): validate on sequences of the training persons.
        rest = {name: number for name, number in persons.items() if result[name] == "train"}
        result |= by_group(rest, protocol.validation, 0.0, draw)
    return deal_groups(windows, result)


ALTERNATIVES = (
    Alternative("person", {"split": "person"}, "Whole persons on one side."),
    Alternative(
        "single_activity",
        {"activities": "single"},
        "Windows of one activity only; whole sequences stay on one side.",
    ),
    Alternative(
        "random_windows", {"split": "random_windows"}, "Overlapping windows dealt at random."
    ),
    *split_draws({}),
)

DATASET = Dataset(CARD, LPAProtocol, prepare, read, ALTERNATIVES)
