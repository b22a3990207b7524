"""Reading ``best.pt``, the best states of a finished job's members."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import torch

from pfrnn.errors import RecordError
from pfrnn.study.jobfolder import again, check_seal

NAME = "best.pt"
_KEYS = ("parameters", "buffers", "members")


def read_best(folder: Path) -> dict[str, Any]:
    """Read a finished job's best states to the CPU.

    Args:
        folder: the block's or final's folder.

    Returns:
        ``{"parameters": {name: (M, ...)}, "buffers": ..., "members": {"number": (M,)}}``.

    Raises:
        RecordError: the file is missing, changed since the job finished, or damaged.
    """
    path = folder / NAME
    check_seal(folder, NAME)
    try:
        payload = path.read_bytes()
    except FileNotFoundError as error:
        raise RecordError(f"{path}: missing; {again(folder)}") from error
    try:
        # From memory: of a file that was cut torch would raise what stands for a faulty disk, too.
        saved = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError) as error:
        # torch's own words run over many lines, and advise to load unsafely.
        came = "not what torch saves, or cut" if payload else "an empty file"
        raise RecordError(
            f"{path}: expected members' states, got {came}; {again(folder)}"
        ) from error
    if not isinstance(saved, dict) or any(name not in saved for name in _KEYS):
        raise RecordError(
            f"{path}: expected {', '.join(_KEYS)}, got something else; {again(folder)}"
        )
    return saved
