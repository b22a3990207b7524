"""Whether committed tables, claims and figures still follow from the committed evidence."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from pfrnn.errors import RecordError
from pfrnn.study.files import read_mapping, sha256_file
from pfrnn.study.recorded import read_part
from pfrnn.study.report.evidence import read_evidence
from pfrnn.study.report.licensing import not_allowed
from pfrnn.study.report.outputs import DIGESTS
from pfrnn.study.report.report import render

# Bytes of these depend on the evidence and the code only, whatever machine renders them.
TEXTS = ("claims.md", "summary.md", "tables/*.csv", "tables/*.md", "tables/*.tex")


def check_report(folder: Path) -> list[str]:
    """Render the evidence again beside the committed files; return what differs, in words.

    Texts are compared by bytes. A figure is compared by the digest of the numbers it draws and by
    the digest of its own file; where the same matplotlib on the same kind of machine renders, its
    bytes and the page's too.

    Raises:
        RecordError: the folder holds no evidence or no figures' digests.
    """
    read_evidence(folder)
    digests = folder / "figures" / DIGESTS
    stored = _digests(digests)
    with tempfile.TemporaryDirectory() as temporary:
        fresh = Path(temporary)
        render(folder, fresh)
        differences = _texts(folder, fresh)
        new = _digests(fresh / "figures" / DIGESTS)
        differences += _figures(folder, stored, new)
        differences += not_allowed(
            read_part(folder, "sequences.json"), read_part(folder, "cards.json")
        )
        if stored["renderer"] == new["renderer"]:
            differences += _bytes(folder, fresh, stored, new)
    return sorted(set(differences))


def _digests(path: Path) -> dict[str, Any]:
    """Read the figures' digests."""
    cure = "write the report first (`pfrnn report`), or take the committed file back"
    found = read_mapping(path, cure)
    figures = found.get("figures")
    whole = isinstance(figures, dict) and all(
        isinstance(one, dict) and one.keys() >= {"numbers", "pdf", "png"}
        for one in figures.values()
    )
    if not whole or "renderer" not in found:
        raise RecordError(f"{path}: expected renderer and figures, got others; {cure}")
    return found


def _names(folder: Path) -> set[str]:
    found = (path for pattern in TEXTS for path in folder.glob(pattern))
    return {path.relative_to(folder).as_posix() for path in found}


def _texts(folder: Path, fresh: Path) -> list[str]:
    differences = []
    committed, wanted = _names(folder), _names(fresh)
    for name in sorted(committed | wanted):
        if name not in committed:
            differences.append(f"{name}: missing")
        elif name not in wanted:
            differences.append(f"{name}: nothing in the evidence gives this file")
        else:
            line = _first_difference(folder / name, fresh / name)
            if line:
                differences.append(f"{name}, line {line}: doesn't follow from the evidence")
    if not (folder / "index.html").is_file():
        differences.append("index.html: missing")
    return differences


def _first_difference(one: Path, other: Path) -> int:
    """Number of the first line that differs, from 1; 0 when none does."""
    if one.read_bytes() == other.read_bytes():
        return 0
    lines = (path.read_text(encoding="utf-8").splitlines() for path in (one, other))
    pairs = enumerate(zip(*lines, strict=False), start=1)
    shortest = min(len(path.read_text(encoding="utf-8").splitlines()) for path in (one, other))
    return next((number for number, (a, b) in pairs if a != b), shortest + 1)


def _figures(folder: Path, stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    differences = []
    old, wanted = stored["figures"], new["figures"]
    for name in sorted(old.keys() | wanted.keys()):
        where = f"figures/{name}"
        if name not in old:
            differences.append(f"{where}: missing")
        elif name not in wanted:
            differences.append(f"{where}: nothing in the evidence gives this figure")
        elif old[name]["numbers"] != wanted[name]["numbers"]:
            differences.append(f"{where}: draws other numbers than the evidence has")
        for kind in ("pdf", "png"):
            path = folder / "figures" / f"{name}.{kind}"
            if name in old and not path.is_file():
                differences.append(f"{where}.{kind}: missing")
            elif name in old and sha256_file(path) != old[name][kind]:
                differences.append(f"{where}.{kind}: changed by hand, or its digest was")
    for path in (folder / "figures").iterdir():
        if path.suffix in (".pdf", ".png") and path.stem not in old:
            differences.append(f"figures/{path.name}: nothing in the evidence gives this figure")
    return differences


def _bytes(folder: Path, fresh: Path, stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    differences = []
    for name in sorted(stored["figures"].keys() & new["figures"].keys()):
        for kind in ("pdf", "png"):
            if stored["figures"][name][kind] != new["figures"][name][kind]:
                differences.append(f"figures/{name}.{kind}: not what the evidence renders to")
    page = folder / "index.html"
    if page.is_file() and page.read_bytes() != (fresh / "index.html").read_bytes():
        differences.append("index.html: doesn't follow from the evidence")
    return differences
