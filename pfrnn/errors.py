"""The errors that pfrnn raises on purpose; each says what was expected, what came, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


class PfrnnError(Exception):
    """Something failed that the message explains (exit code 1)."""

    exit_code = 1


class ConfigError(PfrnnError):
    """The configuration or a command line can't be used as it stands (exit code 2)."""

    exit_code = 2


class DataError(PfrnnError):
    """A raw or prepared file is missing, damaged or not what was expected."""


class MissingDataError(DataError):
    """A data set can't be had here: no file on disk, no mirror, no network."""


class RecordError(PfrnnError):
    """A run record or checkpoint is damaged or belongs to another configuration."""


def suggestion(name: str, known: Sequence[str], what: str = "known") -> str:
    """Return the end of a message about an unknown name: the nearest one, or all there are.

    Example:
        >>> suggestion("airr", ["air", "pm"])
        "; did you mean 'air'?"
    """
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; {what}: {', '.join(known)}"
