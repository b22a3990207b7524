"""Telling a person how far a block is: a bar on a terminal, else a line every half minute."""

from __future__ import annotations

import sys
from typing import Any

# Of a log, which a bar that moves would fill.
_LINE = "{desc}: {n_fmt}/{total_fmt} steps, at most {remaining} left{postfix}\n"


def progress_bar(label: str, total: int, done: int) -> Any:
    """Count a block's training steps; early stopping may end it before the total.

    Args:
        label: what is trained.
        total: steps in all.
        done: steps of sessions before this one.
    """
    from tqdm import tqdm

    log = {} if sys.stderr.isatty() else {"mininterval": 30.0, "bar_format": _LINE}
    return tqdm(total=total, initial=done, desc=label, unit="step", **log)
