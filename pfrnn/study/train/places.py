"""Where a job reads and writes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Places(NamedTuple):
    """Folders a job reads and writes.

    Attributes:
        results: the tier's folder, ``results/<tier>``.
        prepared: parent of the prepared data sets.
    """

    results: Path
    prepared: Path = Path("data/prepared")
