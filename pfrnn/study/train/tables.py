"""Writing a block's records with the columns of ``pfrnn.study.records``, and its best weights."""

from __future__ import annotations

import csv
import io
import math
import pickle
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from pfrnn.errors import RecordError
from pfrnn.study.files import atomic_path, write_text
from pfrnn.study.jobfolder import again
from pfrnn.study.records import HISTORY_COLUMNS, MEMBER_COLUMNS
from pfrnn.study.train.checkpoint import MemberProgress
from pfrnn.study.train.members import Member
from pfrnn.study.train.population import Weights


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
            **{
                name: value for name, value in member.setting._asdict().items() if value is not None
            },
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


def write_best(path: Path, members: Sequence[Member], weights: Weights) -> None:
    """Write best.pt: stacked weights of some members, and their numbers."""
    numbers = {"number": torch.tensor([member.number for member in members])}
    saved = {"parameters": weights.parameters, "buffers": weights.buffers, "members": numbers}
    # Through memory: torch reports a full disk as a fault of its own, Python by its name.
    buffer = io.BytesIO()
    torch.save(saved, buffer)
    with atomic_path(path) as temporary:
        temporary.write_bytes(buffer.getvalue())


def read_best(folder: Path) -> tuple[list[int], Weights]:
    """Read the best weights that a finished job left, to the CPU.

    Args:
        folder: the block's or final's folder.

    Returns:
        The members' numbers, and their weights, (M, ...).

    Raises:
        RecordError: the file is missing or damaged.
    """
    path = folder / "best.pt"
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
        numbers = saved["members"]["number"].tolist()
        return numbers, Weights(saved["parameters"], saved["buffers"])
    except FileNotFoundError as error:
        raise RecordError(f"{path}: missing; {again(folder)}") from error
    except (
        OSError, EOFError, RuntimeError, ValueError, KeyError, TypeError, pickle.UnpicklingError
    ) as error:  # fmt: skip
        raise RecordError(f"{path}: cannot be read; {again(folder)}") from error
