"""AIR: one year of hourly air quality in an Italian city; benzene one hour ahead."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from pfrnn.study.data.base import Address, Alternative, Arrays, Card, Dataset, RawFile
from pfrnn.study.data.forecast import ForecastProtocol, Series, calendar, forecast_arrays
from pfrnn.study.data.raw import Layout, Table, read_table, times_of

FILE = "AirQualityUCI.csv"
TARGET = "C6H6(GT)"
MISSING = -200
MEASURED = (
    "CO(GT)", "PT08.S1(CO)", "NMHC(GT)", "C6H6(GT)", "PT08.S2(NMHC)", "NOx(GT)", "PT08.S3(NOx)",
    "NO2(GT)", "PT08.S4(NO2)", "PT08.S5(O3)", "T", "RH", "AH",
)  # fmt: skip
LAYOUT = Layout(("Date", "Time", *MEASURED, "", ""), ";", text=("Date", "Time"), decimal=",")

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


class AirProtocol(ForecastProtocol):
    """How AIR becomes sequences; docs/protocols.md names the source of each choice."""

    added: ClassVar[tuple[str, ...]] = ("missing",)

    missing: Literal["masked", "value"] = Field(
        default="masked", description="value: the code -200 is left in as if it were measured."
    )


def read(folder: Path) -> Table:
    """Parse the publisher's csv: ``;`` between cells, decimal commas, -200 for missing (NaN)."""
    path = folder / FILE
    table = read_table(path, LAYOUT)
    cells = [f"{date} {time}" for date, time in zip(table["Date"], table["Time"], strict=True)]
    hours = times_of(path, cells, "%d/%m/%Y %H.%M.%S", 3600)
    values = {name: np.where(table[name] == MISSING, np.nan, table[name]) for name in MEASURED}
    return {"hour": hours, **values}


def prepare(folder: Path, protocol: AirProtocol, seed: int) -> Arrays:
    """Cut one-hour-ahead sequences of benzene.

    C6H6 is nearly a function of the same hour's sensors, so the inputs of step t end at hour t
    and the target is hour t + 1. NMHC(GT) is dropped: 90 % of it is missing.
    """
    columns = read(folder)
    names = [name for name in MEASURED if name != "NMHC(GT)"]
    values = np.stack([columns[name] for name in names], axis=1)
    if protocol.missing == "value":
        values = np.where(np.isnan(values), float(MISSING), values)
    known = calendar(columns["hour"], 24) if protocol.calendar else {}
    series = Series(names, values, names.index(TARGET), known)
    arrays = forecast_arrays(series, protocol, season=24)
    return arrays._replace(notes=("NMHC(GT) dropped: missing in 90 % of rows.", *arrays.notes))


ALTERNATIVES = (
    Alternative(
        "codes_left_in",
        {"missing": "value"},
        "The code -200 of missing values left in as if it were measured; RMSE.",
        metric="rmse",
    ),
)

DATASET = Dataset(CARD, AirProtocol, prepare, read, ALTERNATIVES)
