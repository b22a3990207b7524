"""AEP: appliances energy of a Belgian house every ten minutes; the next ten minutes' use."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pfrnn.errors import DataError
from pfrnn.study.data.base import Address, Arrays, Card, Dataset, RawFile
from pfrnn.study.data.forecast import (
    LAGS,
    ForecastProtocol,
    Series,
    assigned_arrays,
    calendar,
    split_by_time,
)
from pfrnn.study.data.tables import check_steps, read_lines, read_table, times_of, to_numbers
from pfrnn.study.seeding import derive_seed

FILE = "energydata_complete.csv"
AUTHOR_TEST = "author_testing_rows.csv"
TARGET = "Appliances"
ROOMS = tuple(f"{kind}{room}" for room in range(1, 10) for kind in ("T", "RH_"))
OUTSIDE = ("T_out", "Press_mm_hg", "RH_out", "Windspeed", "Visibility", "Tdewpoint")
MEASURED = (TARGET, "lights", *ROOMS, *OUTSIDE)
# Two columns of the same random numbers, which the author added to test variable selection.
RANDOM = ("rv1", "rv2")
HEADER = ("date", *MEASURED, *RANDOM)
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
    tables=("3dc4af04fe96b2b575d25c6f7f84cc124fb9f530c066c33ef6670008d20e13ec",),
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


def read(folder: Path) -> Mapping[str, npt.NDArray[Any]]:
    """Parse the publisher's csv: every cell in double quotes, some with leading spaces."""
    table = read_table(folder / FILE, HEADER, ",")
    seconds = times_of(table, "date", "%Y-%m-%d %H:%M:%S")
    check_steps(table, seconds, 600, "seconds")
    columns: dict[str, npt.NDArray[Any]] = {"step": seconds // 600}
    return columns | {name: to_numbers(table, name) for name in (*MEASURED, *RANDOM)}


def author_test_steps(folder: Path) -> npt.NDArray[np.int64]:
    """Return the steps (10 minutes since 1970) of the author's random test rows."""
    path = folder / AUTHOR_TEST
    if not path.is_file():
        raise DataError(
            f"{path}: missing, and `split: author` needs it; fetch it from {GITHUB}testing.csv "
            "under this name, or use `split: time`"
        )
    header = read_lines(path)[0].replace('"', "").split(",")
    if header[: len(HEADER)] != list(HEADER):
        raise DataError(
            f"{path}: line 1: expected the header {','.join(HEADER)}, got {','.join(header)}; "
            "get the author's file"
        )
    return times_of(read_table(path, header, ","), "date", "%Y-%m-%d %H:%M:%S") // 600


def prepare(folder: Path, protocol: AepProtocol, seed: int) -> Arrays:
    """Cut ten-minutes-ahead sequences of the appliances' energy use; rv1 and rv2 are dropped."""
    columns = read(folder)
    values = np.stack([columns[name] for name in MEASURED], axis=1)
    known = calendar(columns["step"], PER_DAY) if protocol.calendar else {}
    series = Series(MEASURED, values, MEASURED.index(TARGET), known)
    if protocol.split == "author":
        test = np.isin(columns["step"], author_test_steps(folder))
        generator = np.random.default_rng(derive_seed(seed, "aep", "validation"))
        validation = ~test & (generator.random(len(test)) < protocol.validation)
        arrays = assigned_arrays(
            series, validation, test, window=protocol.window, season=PER_DAY, lags=LAGS
        )
    else:
        arrays = split_by_time(series, protocol, PER_DAY)
    return arrays._replace(notes=("rv1 and rv2 (random numbers) dropped.", *arrays.notes))


DATASET = Dataset(CARD, AepProtocol, prepare, read)
