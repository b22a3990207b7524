"""Invented raw files in the publishers' formats: no value in them is anybody's measurement."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pfrnn.study.data.sets import aep, air, arem, nasdaq, pm


def air_bytes(rows: int = 400, seed: int = 0) -> bytes:
    """``;``, decimal commas, CRLF, two empty columns, -200 for missing, empty rows at the end."""
    draw = np.random.default_rng(seed)
    start = dt.datetime(2004, 3, 10, 18)
    lines = [";".join(air.LAYOUT.columns)]
    for row in range(rows):
        moment = start + dt.timedelta(hours=row)
        cells = [moment.strftime("%d/%m/%Y"), moment.strftime("%H.%M.%S")]
        for column in air.MEASURED:
            value = 10 + 5 * np.sin(row / 24 * 2 * np.pi) + draw.normal()
            missing = draw.random() < (0.9 if column.startswith("NMHC") else 0.05)
            cells.append("-200" if missing else f"{value:.1f}".replace(".", ","))
        lines.append(";".join([*cells, "", ""]))
    lines += [";" * (len(air.LAYOUT.columns) - 1)] * 3
    return ("\r\n".join(lines) + "\r\n").encode()


def pm_bytes(rows: int = 400, seed: int = 0) -> bytes:
    """Commas, CRLF, NA in pm2.5 only."""
    draw = np.random.default_rng(seed)
    start = dt.datetime(2010, 1, 1)
    lines = [",".join(pm.LAYOUT.columns)]
    for row in range(rows):
        moment = start + dt.timedelta(hours=row)
        target = "NA" if row < 3 or draw.random() < 0.05 else str(int(draw.integers(5, 400)))
        weather = [str(int(draw.integers(-20, 20))), f"{draw.normal():.1f}", "1021"]
        wind = [pm.WINDS[int(draw.integers(4))], f"{draw.random() * 9:.2f}", "0", "0"]
        clock = [str(v) for v in (row + 1, moment.year, moment.month, moment.day, moment.hour)]
        lines.append(",".join([*clock, target, *weather, *wind]))
    return ("\r\n".join(lines) + "\r\n").encode()


def aep_bytes(rows: int = 400, seed: int = 0) -> bytes:
    """Every cell quoted, some with leading spaces, CRLF, ten-minute steps."""
    draw = np.random.default_rng(seed)
    start = dt.datetime(2016, 1, 11, 17)
    lines = [",".join(f'"{name}"' for name in aep.LAYOUT.columns)]
    for row in range(rows):
        moment = start + dt.timedelta(minutes=10 * row)
        cells = [moment.strftime("%Y-%m-%d %H:%M:%S"), f"{10 * int(draw.integers(1, 40)):4d}"]
        cells += [f"{draw.normal(20, 3):.15f}" for _ in aep.LAYOUT.columns[2:]]
        lines.append(",".join(f'"{cell}"' for cell in cells))
    return ("\r\n".join(lines) + "\r\n").encode()


def aep_test_rows(rows: int = 400, every: int = 4) -> bytes:
    """The author's random test rows: the same columns and three more."""
    lines = aep_bytes(rows).decode().splitlines()
    header = lines[0] + ',"NSM","WeekStatus","Day_of_week"'
    return "\n".join([header, *(f'{x},"0","Weekday","Monday"' for x in lines[1::every])]).encode()


def nasdaq_bytes(rows: int = 400, seed: int = 0) -> bytes:
    """81 stocks, then the index; commas, LF."""
    draw = np.random.default_rng(seed)
    stocks = 50 + np.cumsum(draw.normal(0, 0.05, (rows, len(nasdaq.STOCKS))), axis=0)
    table = np.column_stack([stocks, 60 * stocks.mean(axis=1)])
    lines = [",".join([*nasdaq.STOCKS, nasdaq.TARGET])]
    lines += [",".join(f"{value:.4f}" for value in row) for row in table]
    return ("\n".join(lines) + "\n").encode()


def arem_bytes(name: str, seed: int = 0) -> bytes:
    """480 rows at 250 ms below five comment lines, mixed line ends; the known defects by name."""
    draw = np.random.default_rng([seed, *name.encode()])
    activity = name.partition("/")[0]
    lines = [f"# Task: {activity}", "# Frequency (Hz): 20", "# Clock (millisecond): 250"]
    lines += ["# Duration (seconds): 120", "# Columns: time,avg_rss12,..."]
    rows = []
    for step in range(480):
        values = draw.normal(20 + 5 * arem.ACTIVITIES.index(activity), 3, 6)
        rows.append(",".join([str(250 * step), *(f"{value:.2f}" for value in values)]))
    if name == "sitting/dataset8.csv":
        del rows[54]
    if name == "bending2/dataset4.csv":
        rows = [row.replace(",", " ") + " " for row in rows]
    text = "\r\n".join(lines) + "\r\n" + "\n".join(rows) + "\n"
    return (text.rstrip("\n") + ",\n").encode() if name == "cycling/dataset9.csv" else text.encode()


def write_arem(folder: Path) -> None:
    """All 88 files; bit-equal and nearly equal copies as in the publisher's."""
    for name in arem.FILES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(arem_bytes(name))
    original = (folder / "lying/dataset1.csv").read_bytes()
    (folder / "lying/dataset15.csv").write_bytes(original)
    near = original.replace(b"\n1500,", b"\n1500,9", 1)
    (folder / "lying/dataset10.csv").write_bytes(near)


ONE_FILE: dict[str, tuple[str, Callable[[], bytes]]] = {
    "air": (air.FILE, air_bytes),
    "pm": (pm.FILE, pm_bytes),
    "aep": (aep.FILE, aep_bytes),
    "nasdaq": (nasdaq.FILE, nasdaq_bytes),
}


def write_raw(name: str, folder: Path) -> Path:
    """Write one set's invented raw files into ``folder``; return it."""
    folder.mkdir(parents=True, exist_ok=True)
    if name == "arem":
        write_arem(folder)
    else:
        file, make = ONE_FILE[name]
        (folder / file).write_bytes(make())
    return folder
