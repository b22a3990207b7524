"""Whether committed tables, claims and figures still follow from the committed evidence."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pfrnn.study.files import read_mapping
from pfrnn.study.report.evidence import read_evidence
from pfrnn.study.report.report import DIGESTS, published_beside, render

# Bytes of these depend on the evidence and the code only, whatever machine renders them.
TEXTS = ("claims.md", "summary.md", "tables/*.csv", "tables/*.md", "tables/*.tex")


def check_report(folder: Path) -> list[str]:
    """Render the evidence again beside the committed files; return what differs, in words.

    Texts are compared by bytes, figures by the digest of the numbers that they draw; the page by
    bytes where the same matplotlib on the same kind of machine renders.

    Raises:
        RecordError: the folder holds no evidence or no figures' digests.
    """
    cure = "write the report first (`pfrnn report`)"
    stored = read_mapping(folder / "figures" / DIGESTS, cure)
    with tempfile.TemporaryDirectory() as temporary:
        fresh = Path(temporary)
        render(read_evidence(folder), fresh, published_beside(folder))
        new = read_mapping(fresh / "figures" / DIGESTS, cure)
        names = _names(folder) | _names(fresh)
        if stored["renderer"] == new["renderer"]:
            names.add("index.html")
        said = [
            f"{name}: doesn't follow from the evidence"
            for name in sorted(names)
            if _bytes(folder / name) != _bytes(fresh / name)
        ]
    old = stored["figures"]
    said += [
        f"figures/{name}: draws other numbers than the evidence has"
        for name in sorted(old.keys() | new["figures"].keys())
        if old.get(name) != new["figures"].get(name)
    ]
    files = {path.name for path in (folder / "figures").glob("*.p*")}
    wanted = {f"{name}.{kind}" for name in old for kind in ("pdf", "png")}
    return said + [f"figures/{name}: missing, or of no figure" for name in sorted(files ^ wanted)]


def _names(folder: Path) -> set[str]:
    found = (path for pattern in TEXTS for path in folder.glob(pattern))
    return {path.relative_to(folder).as_posix() for path in found}


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
