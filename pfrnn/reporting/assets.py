"""The files of the report that are not Python, with their digests.

A rule reruns when the source that it reaches changes, and that source is Python: so the digests
stand here, and changing a template without its digest is an error that says what to do.
"""

from __future__ import annotations

import hashlib
from importlib import resources

from pfrnn.errors import RecordError

ASSETS = {
    "tables.csv": ("paper", "78753f597e78c6a3"),
    "index.html": ("templates", "8d482c54eb8da1a0"),
    "style.css": ("templates", "e6964a52b7b35f13"),
    "page.js": ("templates", "e78c03ee137987d2"),
}


def asset(name: str) -> str:
    """Return a file's text.

    Raises:
        RecordError: the file is not the one whose digest stands here.
    """
    folder, digest = ASSETS[name]
    text = resources.files("pfrnn.reporting").joinpath(folder, name).read_text(encoding="utf-8")
    found = hashlib.sha256(text.encode()).hexdigest()[:16]
    if found != digest:
        raise RecordError(
            f"pfrnn/reporting/{folder}/{name}: digest {found}, expected {digest}; if the change is "
            "wanted, write the new digest into pfrnn/reporting/assets.py"
        )
    return text
