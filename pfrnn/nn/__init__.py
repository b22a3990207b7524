"""Layers: PFLSTM, PFGRU, their cells and states; experiment networks."""

from pfrnn.nn.cells import PFGRUCell, PFLSTMCell
from pfrnn.nn.options import PRESETS, CellOptions
from pfrnn.nn.plain import GRUCell, LSTMCell
from pfrnn.nn.state import FilterOutput, PFState, RNNOutput, RNNState

__all__ = [
    "PRESETS",
    "CellOptions",
    "FilterOutput",
    "GRUCell",
    "LSTMCell",
    "PFGRUCell",
    "PFLSTMCell",
    "PFState",
    "RNNOutput",
    "RNNState",
]
