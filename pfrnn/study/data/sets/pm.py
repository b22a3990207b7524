"""PM: five years of hourly PM2.5 and weather in Beijing; PM2.5 one hour ahead."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import Field

from pfrnn.study.data.base import Address, Arrays, Card, Dataset, RawFile
from pfrnn.study.data.forecast import ForecastProtocol, Series, calendar, forecast_arrays
from pfrnn.study.data.raw import Layout, Table, numbers_of, read_table, times_of

FILE = "PRSA_data_2010.1.1-2014.12.31.csv"
TARGET = "pm2.5"
CLOCK = ("year", "month", "day", "hour")
MEASURED = ("pm2.5", "DEWP", "TEMP", "PRES", "Iws", "Is", "Ir")
WINDS = ("NE", "NW", "SE", "cv")
LAYOUT = Layout(
    ("No", *CLOCK, "pm2.5", "DEWP", "TEMP", "PRES", "cbwd", "Iws", "Is", "Ir"),
    text=("cbwd",),
    missing={"pm2.5": "NA"},
)

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


def read(folder: Path) -> Table:
    """Parse the publisher's csv; NA in pm2.5 becomes NaN, anywhere else it is an error."""
    path = folder / FILE
    table = read_table(path, LAYOUT)
    clock = zip(*(table[name].astype(int) for name in CLOCK), strict=True)
    cells = [f"{year:04d}-{month:02d}-{day:02d} {hour:02d}" for year, month, day, hour in clock]
    hours = times_of(path, cells, "%Y-%m-%d %H", 3600)
    numbers_of(path, table, "cbwd", WINDS)
    return {"hour": hours, "cbwd": table["cbwd"], **{name: table[name] for name in MEASURED}}


def prepare(folder: Path, protocol: PmProtocol, seed: int) -> Arrays:
    """Cut one-hour-ahead sequences of PM2.5; the wind direction enters as one of four."""
    columns = read(folder)
    values = np.stack([columns[name] for name in MEASURED], axis=1)
    known = {f"cbwd {wind}": (columns["cbwd"] == wind).astype(float) for wind in WINDS}
    if protocol.calendar:
        known |= calendar(columns["hour"], 24)
    series = Series(MEASURED, values, MEASURED.index(TARGET), known)
    return forecast_arrays(series, protocol, season=24)


DATASET = Dataset(CARD, PmProtocol, prepare, read)
