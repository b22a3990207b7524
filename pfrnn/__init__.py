"""PF-LSTM and PF-GRU layers, and the reproduction of the paper that introduced them.

The layers are imported on first use, so that parts which need no torch (the report, the
configuration) start fast and run on a machine without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["PFGRU", "PFLSTM", "PFGRUCell", "PFLSTMCell", "PFState", "__version__"]

if TYPE_CHECKING:
    from pfrnn.nn import PFGRU, PFLSTM, PFGRUCell, PFLSTMCell, PFState
else:

    def __getattr__(name: str) -> Any:
        """Import a layer on first use (PEP 562)."""
        if name not in __all__:
            raise AttributeError(f"module 'pfrnn' has no attribute {name!r}")
        # By name: the study's digests follow import statements.
        return getattr(importlib.import_module("pfrnn.nn"), name)


def __dir__() -> list[str]:
    """List the public names, the lazily imported layers included."""
    return sorted(__all__)
