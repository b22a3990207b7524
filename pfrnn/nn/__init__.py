"""Layers: PFLSTM, PFGRU, their cells and states."""

from pfrnn.functional.types import FilterOutput, PFState
from pfrnn.nn.cells import PFGRUCell, PFLSTMCell
from pfrnn.nn.convert import copy_rnn_weights
from pfrnn.nn.options import PRESETS, CellOptions
from pfrnn.nn.rnn import PFGRU, PFLSTM, Filtered

__all__ = [
    "PFGRU",
    "PFLSTM",
    "PRESETS",
    "CellOptions",
    "FilterOutput",
    "Filtered",
    "PFGRUCell",
    "PFLSTMCell",
    "PFState",
    "copy_rnn_weights",
]
