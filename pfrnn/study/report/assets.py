"""The files of the report that are not Python; the report's source digest counts them by bytes."""

from __future__ import annotations

from importlib import resources

FOLDERS = {
    "tables.csv": "paper",
    "gaps.csv": "templates",
    "index.html": "templates",
    "style.css": "templates",
    "page.js": "templates",
}


def asset(name: str) -> str:
    """Return a file's text."""
    folder = resources.files("pfrnn.study.report").joinpath(FOLDERS[name])
    return folder.joinpath(name).read_text(encoding="utf-8")
