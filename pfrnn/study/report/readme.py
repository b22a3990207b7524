"""The README's block on results: the report's ``summary.md``, between two markers."""

from __future__ import annotations

import re
from pathlib import Path

from pfrnn.errors import RecordError
from pfrnn.study.files import write_text

BEGIN = "<!-- summary: written by `make report`, do not edit -->"
END = "<!-- end of summary -->"


def readme_block(text: str, path: Path) -> tuple[int, int]:
    """Return where the text between the markers starts and ends.

    Raises:
        RecordError: a marker is missing, or they are not in order.
    """
    start, end = text.find(BEGIN), text.find(END)
    if start < 0 or end < start:
        raise RecordError(f"{path}: expected the lines {BEGIN!r} and {END!r}; put them back")
    return start + len(BEGIN), end


def block_text(summary: str, folder: str) -> str:
    """Return ``summary.md`` as it stands in a README beside the report's folder."""
    moved = re.sub(r"\]\((?![a-z]+:|#)", f"]({folder}/", summary.strip())
    return f"\n{moved}\n\nThe whole report: [{folder}/index.html]({folder}/index.html).\n"


def write_readme(readme: Path, report: Path) -> None:
    """Put the report's summary into the README."""
    text = readme.read_text(encoding="utf-8")
    start, end = readme_block(text, readme)
    write_text(readme, text[:start] + _wanted(readme, report) + text[end:])


def readme_difference(readme: Path, report: Path) -> str:
    """Say how the README's block differs from the report's summary; empty when it doesn't."""
    text = readme.read_text(encoding="utf-8")
    start, end = readme_block(text, readme)
    if text[start:end] == _wanted(readme, report):
        return ""
    return f"{readme.name}: its summary is not the report's"


def _wanted(readme: Path, report: Path) -> str:
    folder = report.resolve().relative_to(readme.resolve().parent).as_posix()
    return block_text((report / "summary.md").read_text(encoding="utf-8"), folder)
