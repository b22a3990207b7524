"""PM: five years of hourly PM2.5 and weather in Beijing; PM2.5 one hour ahead."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pfrnn.errors import DataError
from pfrnn.study.data.base import Address, Arrays, Card, Dataset, RawFile
from pfrnn.study.data.forecast import ForecastProtocol, Series, calendar, split_by_time
from pfrnn.study.data.tables import TextTable, check_steps, read_table, to_numbers

FILE = "PRSA_data_2010.1.1-2014.12.31.csv"
TARGET = "pm2.5"
CLOCK = ("year", "month", "day", "hour")
MEASURED = ("pm2.5", "DEWP", "TEMP", "PRES", "Iws", "Is", "Ir")
WINDS = ("NE", "NW", "SE", "cv")
HEADER = ("No", *CLOCK, "pm2.5", "DEWP", "TEMP", "PRES", "cbwd", "Iws", "Is", "Ir")

CARD = Card(
    name="pm",
    title="PM",
    task="regression",
    origin="UCI Machine Learning Repository 381, Beijing PM2.5; Song Xi Chen, Peking University",
    citation="Liang et al. (2015), Assessing Beijing's PM2.5 pollution: severity, weather impact, "
    "APEC and winter heating, Proceedings of the Royal Society A 471",
    licence="CC BY 4.0 (UCI's default; not re-checked)",
    redistributable=True,
    files=(RawFile(FILE, ("4127f868775e31b3956522adc0ec75af8937dde6a3896e8beed3a376c6d27f1c",)),),
    addresses=(
        Address(
            "https://archive.ics.uci.edu/static/public/381/beijing+pm2+5+data.zip", {FILE: FILE}
        ),
    ),
    rows=43824,
    target="PM2.5, one hour ahead",
    unit="ug/m3",
    metric="rmse",
    tables=("16ae88205b3f4844b5fea6142d9ff1efa87ec4466bff7af5843f1183f10d8b33",),
)


class PmProtocol(ForecastProtocol):
    """As AIR's, with starts twice as far apart: the series is nearly five times as long."""

    stride: int = Field(default=24, ge=1, description="Steps between training sequences' starts.")


def read(folder: Path) -> Mapping[str, npt.NDArray[Any]]:
    """Parse the publisher's csv; NA in pm2.5 becomes NaN, anywhere else it is an error."""
    table = read_table(folder / FILE, HEADER, ",")
    _check_numbers(table)
    columns: dict[str, npt.NDArray[Any]] = {"hour": _hours(table)}
    for name in MEASURED:
        columns[name] = to_numbers(table, name, missing=("NA",) if name == TARGET else ())
    for i, cell in enumerate(table.columns["cbwd"]):
        if cell not in WINDS:
            raise DataError(
                f"{table.path}: line {table.lines[i]}, column 'cbwd': expected one of "
                f"{', '.join(WINDS)}, got {cell!r}; get the publisher's file"
            )
    return columns | {"cbwd": np.array(table.columns["cbwd"])}


def _check_numbers(table: TextTable) -> None:
    for row, number in enumerate(to_numbers(table, "No"), start=1):
        if number != row:
            raise DataError(
                f"{table.path}: line {table.lines[row - 1]}, column 'No': expected {row}, got "
                f"{number:g}; rows are out of order or altered: get the publisher's file"
            )


def _hours(table: TextTable) -> npt.NDArray[np.int64]:
    """Hours since 1970-01-01 of each row; consecutive, or it is an error."""
    clock = np.stack([to_numbers(table, name) for name in CLOCK], axis=1).astype(int)
    hours = np.empty(len(clock), dtype=np.int64)
    for i, (year, month, day, hour) in enumerate(clock.tolist()):
        try:
            moment = dt.datetime(year, month, day, hour, tzinfo=dt.UTC)
        except ValueError as error:
            raise DataError(
                f"{table.path}: line {table.lines[i]}, columns year to hour: not a time "
                f"({error}); get the publisher's file"
            ) from error
        hours[i] = int(moment.timestamp()) // 3600
    check_steps(table, hours, 1, "hours")
    return hours


def prepare(folder: Path, protocol: PmProtocol, seed: int) -> Arrays:
    """Cut one-hour-ahead sequences of PM2.5; the wind direction enters as one of four."""
    columns = read(folder)
    values = np.stack([columns[name] for name in MEASURED], axis=1)
    known = {f"cbwd {wind}": (columns["cbwd"] == wind).astype(float) for wind in WINDS}
    if protocol.calendar:
        known |= calendar(columns["hour"], 24)
    series = Series(MEASURED, values, MEASURED.index(TARGET), known)
    return split_by_time(series, protocol, per_day=24)


DATASET = Dataset(CARD, PmProtocol, prepare, read)
