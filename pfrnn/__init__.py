"""PF-LSTM and PF-GRU layers, and the reproduction of the paper that introduced them.

The layers are imported on first use, so that parts which need no torch (the report, the
configuration) start fast and run on a machine without it.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_LAYERS = ("PFGRU", "PFLSTM", "PFGRUCell", "PFLSTMCell")
__all__ = ["PFGRU", "PFLSTM", "PFGRUCell", "PFLSTMCell", "__version__"]


def __getattr__(name: str) -> Any:
    """Import a layer on first use (PEP 562)."""
    if name in _LAYERS:
        return getattr(importlib.import_module("pfrnn.nn"), name)
    raise AttributeError(f"module 'pfrnn' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, the lazily imported layers included."""
    return sorted(__all__)
