"""A mirror with an invented AIR file in the publisher's format."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np

from pfrnn.study.data.sets import air


def write_air(mirror: Path, rows: int = 600) -> Path:
    """Write ``air/`` below ``mirror``, marked as an excerpt; return ``mirror``."""
    draw = np.random.default_rng(0)
    start = dt.datetime(2004, 3, 10, 18)
    lines = [";".join(["Date", "Time", *air.MEASURED, "", ""])]
    for row in range(rows):
        moment = start + dt.timedelta(hours=row)
        cells = [moment.strftime("%d/%m/%Y"), moment.strftime("%H.%M.%S")]
        cells += [f"{10 + draw.normal():.1f}".replace(".", ",") for _ in air.MEASURED]
        lines.append(";".join([*cells, "", ""]))
    folder = mirror / "air"
    folder.mkdir(parents=True)
    (folder / air.FILE).write_bytes(("\r\n".join(lines) + "\r\n").encode())
    (folder / "PARTIAL.md").write_text("Invented for a test.\n")
    return mirror
