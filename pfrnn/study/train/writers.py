"""Writing a block's records with the columns of ``pfrnn.study.records``."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pfrnn.study.files import write_text
from pfrnn.study.records import HISTORY_COLUMNS, MEMBER_COLUMNS
from pfrnn.study.train.members import Member
from pfrnn.study.train.state import MemberProgress


def number(value: float) -> str:
    """Format a number so that reading it back gives the same float; NaN and inf become empty."""
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else ""
    return str(value)


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as CSV with the given columns first; further keys follow in order of appearance.

    Missing, NaN and infinite values become empty fields.
    """
    rows = list(rows)
    extra = dict.fromkeys(key for row in rows for key in row if key not in columns)
    names = [*columns, *extra]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([number(row[name]) if name in row else "" for name in names])
    write_text(path, buffer.getvalue())


def write_history(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write history.csv, sorted by member, then epoch."""
    ordered = sorted(rows, key=lambda row: (row["member"], row["epoch"]))
    write_table(path, HISTORY_COLUMNS, ordered)


def write_members(
    path: Path, members: Sequence[Member], progress: Sequence[MemberProgress], parameters: int
) -> None:
    """Write members.csv.

    Args:
        path: the file.
        members: the block's members.
        progress: how each ended.
        parameters: trainable numbers of one member.
    """
    rows = []
    for member, one in zip(members, progress, strict=True):
        row: dict[str, Any] = {
            "member": member.number,
            "learning_rate": member.setting.learning_rate,
            "clip": member.setting.clip,
            "l2": member.setting.l2,
            "repetition": member.repetition,
            "seed": member.seed,
            "status": one.status,
            "epochs": one.epochs,
            "best_epoch": one.best_epoch,
            "val_loss": one.loss,
            "val_score": one.score,
            "train_loss": one.train_loss,
            "parameters": parameters,
        }
        rows.append(row | {f"val_{name}": value for name, value in one.metrics.items()})
    write_table(path, MEMBER_COLUMNS, rows)
