"""AEP: appliances energy of a Belgian house every ten minutes; the next ten minutes' use."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from pfrnn.errors import DataError
from pfrnn.study.data.base import Address, Alternative, Arrays, Card, Dataset, RawFile
from pfrnn.study.data.forecast import (
    ForecastProtocol,
    Series,
    assigned_arrays,
    calendar,
    forecast_arrays,
)
from pfrnn.study.data.raw import Layout, Table, read_table, times_of
from pfrnn.study.seeding import derive_seed

FILE = "energydata_complete.csv"
AUTHOR_TEST = "author_testing_rows.csv"
TARGET = "Appliances"
ROOMS = tuple(f"{kind}{room}" for room in range(1, 10) for kind in ("T", "RH_"))
OUTSIDE = ("T_out", "Press_mm_hg", "RH_out", "Windspeed", "Visibility", "Tdewpoint")
MEASURED = (TARGET, "lights", *ROOMS, *OUTSIDE)
# Two columns of the same random numbers, which the author added to test variable selection.
RANDOM = ("rv1", "rv2")
LAYOUT = Layout(("date", *MEASURED, *RANDOM), text=("date",))
TEST_LAYOUT = Layout(
    (*LAYOUT.columns, "NSM", "WeekStatus", "Day_of_week"),
    text=("date", "WeekStatus", "Day_of_week"),
)
TIME = "%Y-%m-%d %H:%M:%S"
PER_DAY = 144

GITHUB = "https://raw.githubusercontent.com/LuisM78/Appliances-energy-prediction-data/master/"

CARD = Card(
    name="aep",
    title="AEP",
    task="regression",
    origin="UCI Machine Learning Repository 374, Appliances energy prediction; L. Candanedo",
    citation="Candanedo et al. (2017), Data driven prediction models of energy use of appliances "
    "in a low-energy house, Energy and Buildings 140",
    licence="CC BY 4.0 (UCI's default; not re-checked)",
    redistributable=True,
    files=(
        RawFile(FILE, ("2820bf712ad0275cb18b85a05250926100d8e65ebb9f4d2d016ca91ea152a25d",)),
        RawFile(
            AUTHOR_TEST,
            ("9d60780e70db92c3c470286452fca7f28e38ac4a3f420a5ca6d43a39b847e251",),
            optional=True,
        ),
    ),
    addresses=(
        Address(GITHUB + "testing.csv", {AUTHOR_TEST: ""}),
        Address(
            "https://archive.ics.uci.edu/static/public/374/appliances+energy+prediction.zip",
            {FILE: FILE},
        ),
        Address(GITHUB + FILE, {FILE: ""}),
    ),
    rows=19735,
    target="appliances' energy use in the next ten minutes",
    unit="Wh",
    metric="rmse",
    # Without and with the author's test rows.
    tables=(
        "3dc4af04fe96b2b575d25c6f7f84cc124fb9f530c066c33ef6670008d20e13ec",
        "97c634091cbc0d18210f29849a8ad74f3fca470b10c06b832c2f587682fa2bc7",
    ),
    paper_scale=0.1,
)


class AepProtocol(ForecastProtocol):
    """As AIR's, in steps of 10 minutes; and the author's split."""

    split: Literal["time", "author"] = Field(
        default="time",
        description="author: the author's random test rows, which leaks; `test` has no say then.",
    )

    @property
    def leaky(self) -> bool:
        """A random row's neighbours, ten minutes away, stand in the training set."""
        return self.split == "author"


def read(folder: Path) -> Table:
    """Parse the publisher's csv (every cell in double quotes), and the author's test rows if there.

    Returns:
        step (10 minutes since 1970), the measurements, and ``author_test``, the steps of the
        author's random test rows, where their file is there.
    """
    table = read_table(folder / FILE, LAYOUT)
    columns: Table = {"step": times_of(folder / FILE, list(table["date"]), TIME, 600)}
    columns |= {name: table[name] for name in (*MEASURED, *RANDOM)}
    if (folder / AUTHOR_TEST).is_file():
        test = read_table(folder / AUTHOR_TEST, TEST_LAYOUT)
        moments = np.array([datetime.strptime(cell, TIME) for cell in test["date"]])
        columns["author_test"] = moments.astype("datetime64[s]").astype(np.int64) // 600
    return columns


def prepare(folder: Path, protocol: AepProtocol, seed: int) -> Arrays:
    """Cut ten-minutes-ahead sequences of the appliances' energy use; rv1 and rv2 are dropped."""
    columns = read(folder)
    values = np.stack([columns[name] for name in MEASURED], axis=1)
    known = calendar(columns["step"], PER_DAY) if protocol.calendar else {}
    series = Series(MEASURED, values, MEASURED.index(TARGET), known)
    if protocol.split == "author":
        if "author_test" not in columns:
            raise DataError(
                f"{folder / AUTHOR_TEST}: missing, and `split: author` needs it; see {GITHUB}"
            )
        test = np.isin(columns["step"], columns["author_test"])
        generator = np.random.default_rng(derive_seed(seed, "aep", "validation"))
        validation = ~test & (generator.random(len(test)) < protocol.validation)
        arrays = assigned_arrays(series, validation, test, protocol.window, PER_DAY)
    else:
        arrays = forecast_arrays(series, protocol, PER_DAY)
    return arrays._replace(notes=("rv1 and rv2 (random numbers) dropped.", *arrays.notes))


ALTERNATIVES = (
    Alternative("author", {"split": "author"}, "The author's random test rows."),
    Alternative(
        "min_max",
        {},
        "The target scaled to [0, 1] (10 to 1080 Wh), MSE x 1000: the unit of the printed numbers?",
        metric="mse",
        scale=1000 / 1070**2,
    ),
)

DATASET = Dataset(CARD, AepProtocol, prepare, read, ALTERNATIVES)
