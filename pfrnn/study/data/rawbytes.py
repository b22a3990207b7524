"""Bytes of a raw file, with the faults that every format shares refused."""

from __future__ import annotations

from pathlib import Path

from pfrnn.errors import DataError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# So much of a file is looked at to tell a web page.
HEAD = 512
_WEB_PAGE = (b"<!doctype", b"<html", b"<head", b"<?xml")


def read_bytes(path: Path) -> bytes:
    """Read a raw file whole.

    Raises:
        DataError: missing, empty, or a web page.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; run `pfrnn fetch` for its data set") from error
    if not raw.strip():
        raise DataError(f"{path}: the file is empty; delete it and fetch it again")
    if is_web_page(raw[:HEAD]):
        raise web_page(path)
    return raw


def is_web_page(head: bytes) -> bool:
    r"""Tell whether a file's first bytes are those of a web page.

    Servers give their error and log-in pages under the name of the file that was asked for.

    Example:
        >>> is_web_page(b"\n<!DOCTYPE html>"), is_web_page(b"Date;Time")
        (True, False)
    """
    return head.lstrip(BYTE_ORDER_MARK + b" \t\r\n").lower().startswith(_WEB_PAGE)


def web_page(path: Path) -> DataError:
    """Return the error for a web page that lies under a raw file's name."""
    return DataError(
        f"{path}: line 1: expected data, got an HTML page (a server's error page?); delete it "
        "and fetch it again"
    )
