"""An invented data set of one file, to fetch and to judge."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pfrnn.study.data.base import Address, Arrays, Card, Dataset, Protocol, RawFile
from pfrnn.study.data.raw import Layout, read_table

BODY = b"a,b\r\n" + b"".join(b"%d,%d\r\n" % (i, i * i) for i in range(2000))
OTHER = BODY.replace(b"5,25\r\n", b"5,26\r\n", 1)


def sha(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def read(folder: Path) -> Mapping[str, Any]:
    return read_table(folder / "toy.csv", Layout(("a", "b")))


def never(folder: Path, protocol: Any, seed: int) -> Arrays:
    raise NotImplementedError


def toy(*addresses: Address, digests: tuple[str, ...] = (sha(BODY),), **card: Any) -> Dataset:
    """A data set of one file, ``toy.csv``."""
    files = card.pop("files", (RawFile("toy.csv", digests),))
    text = dict.fromkeys(("title", "origin", "citation", "licence", "target", "unit"), "invented")
    facts = {"task": "regression", "redistributable": True, "rows": 2000, "metric": "rmse"}
    made = Card(name="toy", files=files, addresses=addresses, **{**text, **facts, **card})
    return Dataset(made, Protocol, never, read)


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, body in members.items():
            archive.writestr(name, body)
    return buffer.getvalue()


def visible(raw: Path) -> list[str]:
    """Files that a reader of the raw folder sees (names that start with a dot left out)."""
    found = [path for path in (raw / "toy").rglob("*") if path.is_file()]
    return sorted(str(p.relative_to(raw / "toy")) for p in found if not p.name.startswith("."))
