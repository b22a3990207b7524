"""AIR: one year of hourly air quality in an Italian city; benzene one hour ahead."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pfrnn.study.data.base import Address, Arrays, Card, Dataset, RawFile
from pfrnn.study.data.forecast import ForecastProtocol, Series, calendar, split_by_time
from pfrnn.study.data.tables import TextTable, check_steps, read_table, times_of, to_numbers

FILE = "AirQualityUCI.csv"
TARGET = "C6H6(GT)"
MISSING = ("-200", "-200,0")
MEASURED = (
    "CO(GT)", "PT08.S1(CO)", "NMHC(GT)", "C6H6(GT)", "PT08.S2(NMHC)", "NOx(GT)", "PT08.S3(NOx)",
    "NO2(GT)", "PT08.S4(NO2)", "PT08.S5(O3)", "T", "RH", "AH",
)  # fmt: skip
HEADER = ("Date", "Time", *MEASURED, "", "")

CARD = Card(
    name="air",
    title="AIR",
    task="regression",
    origin="UCI Machine Learning Repository 360, Air Quality; S. De Vito, ENEA",
    citation="De Vito et al. (2008), On field calibration of an electronic nose for benzene "
    "estimation in an urban pollution monitoring scenario, Sensors and Actuators B 129",
    # Which of the two holds is for its readers to judge: nothing is passed on from here.
    licence="CC BY 4.0 at UCI (not re-checked); its text also asks for research use",
    redistributable=False,
    files=(RawFile(FILE, ("13277ae5d8581e80b7be09d47c7d3d06fe9b8e957078f2cf6e859f955e62f996",)),),
    addresses=(
        Address("https://archive.ics.uci.edu/static/public/360/air+quality.zip", {FILE: FILE}),
    ),
    rows=9357,
    target="benzene C6H6(GT), one hour ahead",
    unit="ug/m3",
    metric="mse",
    tables=("a8bfb20263d7b8d85f0995416c02e86087b49f063908fb4cdbd965f645dbdedc",),
)


def read(folder: Path) -> Mapping[str, npt.NDArray[Any]]:
    """Parse the publisher's csv: ``;`` between cells, decimal commas, -200 for missing (NaN)."""
    table = read_table(folder / FILE, HEADER, ";")
    columns: dict[str, npt.NDArray[Any]] = {"hour": _hours(table)}
    for name in MEASURED:
        columns[name] = to_numbers(table, name, decimal=",", missing=MISSING)
    return columns


def _hours(table: TextTable) -> npt.NDArray[np.int64]:
    """Hours since 1970-01-01 of each row; consecutive, or it is an error."""
    cells = zip(table.columns["Date"], table.columns["Time"], strict=True)
    both = {"Date, Time": [f"{date} {time}" for date, time in cells]}
    hours = times_of(table._replace(columns=both), "Date, Time", "%d/%m/%Y %H.%M.%S") // 3600
    check_steps(table, hours, 1, "hours")
    return hours


def prepare(folder: Path, protocol: ForecastProtocol, seed: int) -> Arrays:
    """Cut one-hour-ahead sequences of benzene.

    C6H6 is nearly a function of the same hour's sensors, so the inputs of step t end at hour t
    and the target is hour t + 1. NMHC(GT) is dropped: 90 % of it is missing.
    """
    columns = read(folder)
    names = [name for name in MEASURED if name != "NMHC(GT)"]
    values = np.stack([columns[name] for name in names], axis=1)
    known = calendar(columns["hour"], 24) if protocol.calendar else {}
    series = Series(names, values, names.index(TARGET), known)
    arrays = split_by_time(series, protocol, per_day=24)
    return arrays._replace(notes=("NMHC(GT) dropped: missing in 90 % of rows.", *arrays.notes))


DATASET = Dataset(CARD, ForecastProtocol, prepare, read)
