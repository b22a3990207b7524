"""Layers: PFLSTM, PFGRU, their cells and states; experiment networks."""

from pfrnn.nn.cells import PFGRUCell, PFLSTMCell
from pfrnn.nn.convert import copy_rnn_weights
from pfrnn.nn.layers import PFGRU, PFLSTM, Filtered
from pfrnn.nn.options import PRESETS, CellOptions
from pfrnn.nn.plain import GRUCell, LSTMCell
from pfrnn.nn.state import FilterOutput, PFState, RNNOutput, RNNState

__all__ = [
    "PFGRU",
    "PFLSTM",
    "PRESETS",
    "CellOptions",
    "FilterOutput",
    "Filtered",
    "GRUCell",
    "LSTMCell",
    "PFGRUCell",
    "PFLSTMCell",
    "PFState",
    "RNNOutput",
    "RNNState",
    "copy_rnn_weights",
]
