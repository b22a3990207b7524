"""The device and threads a job runs with."""

from __future__ import annotations

import os
from typing import Any

import torch

from pfrnn.errors import ConfigError
from pfrnn.study.config import Execution
from pfrnn.study.devices import slots_per_device
from pfrnn.study.memory import peak_resident
from pfrnn.study.provenance import machine


def open_device(execution: Execution, asked: str | None = None) -> torch.device:
    """Choose the device and fix what sums depend on: CPU threads; cuDNN's algorithms on a GPU.

    Args:
        execution: ``device`` auto takes a CUDA device when there is one.
        asked: overrides ``execution.device``.

    Raises:
        ConfigError: the CUDA device that is asked for is absent.
    """
    torch.set_num_threads(execution.threads)
    name = asked or execution.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device {name!r}: torch sees no CUDA device here; use --device cpu")
    device = torch.device(name)
    if (device.index or 0) > 0 and device.index >= torch.cuda.device_count():
        raise ConfigError(
            f"device {name!r}: torch sees {torch.cuda.device_count()} CUDA devices here, counted "
            "from 0"
        )
    if device.type == "cuda":
        _repeat_convolutions()
    return device


def _repeat_convolutions() -> None:
    """Let cuDNN add up in a fixed order, and multiply in float32 as torch's other products do.

    Convolutions read the maze's map. By default their weights' gradient may be added up in
    whatever order its parts come, so that two trainings with the same seeds drift apart.
    """
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = False


def computed_on(device: torch.device) -> dict[str, Any]:
    """Describe the device for run.json; of a GPU also how many jobs may have shared it.

    From two jobs a card on, a job's seconds depend on its neighbours and are no cost of its own.
    """
    shared = {"jobs_per_card": slots_per_device(os.environ)} if device.type == "cuda" else {}
    return machine(str(device)) | shared


def peak_memory(device: torch.device) -> int:
    """Peak memory in bytes: of the device's allocator, or of the process on a CPU."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return peak_resident()
