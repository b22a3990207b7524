"""Copying the weights of torch.nn.LSTM and torch.nn.GRU into a particle filter layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pfrnn.errors import ConfigError
from pfrnn.nn.cells import ParticleCell, PFGRUCell, PFLSTMCell
from pfrnn.nn.rnn import ParticleLayer

# Where each of our blocks stands in torch's order (LSTM i f g o; GRU r z n).
_LSTM_ORDER, _GRU_ORDER = (0, 1, 3, 2), (1, 0, 2)


def copy_rnn_weights(layer: ParticleLayer, rnn: nn.LSTM | nn.GRU, *, quiet: bool = False) -> None:
    """Start a PFLSTM from an nn.LSTM, or a PFGRU with ``reset_after`` from an nn.GRU.

    Gates and candidate are copied; the noise scale and f_obs, which torch's layers don't have,
    keep their values, or become 0 with ``quiet``. With ``quiet``, tanh and no batch norm the
    layer then computes what ``rnn`` computes, in every particle.

    Args:
        layer: with the sizes of ``rnn`` and no gate networks.
        rnn: one direction, no projection.
        quiet: set the noise scale and f_obs to 0.

    Raises:
        ConfigError: the two layers don't match.
    """
    for index, cell in enumerate(layer._cells()):
        _check(layer, cell, rnn)
        with torch.no_grad():
            _copy(cell, rnn, index, quiet)


def _check(layer: ParticleLayer, cell: ParticleCell, rnn: nn.LSTM | nn.GRU) -> None:
    kind = nn.LSTM if isinstance(cell, PFLSTMCell) else nn.GRU
    if not isinstance(rnn, kind):
        raise ConfigError(f"expected torch.nn.{kind.__name__}, got {type(rnn).__name__}")
    ours = (layer.input_size, layer.hidden_size, layer.num_layers, layer.bias)
    theirs = (rnn.input_size, rnn.hidden_size, rnn.num_layers, rnn.bias)
    if ours != theirs or rnn.bidirectional or rnn.proj_size:
        more = f" with bidirectional={rnn.bidirectional}" if rnn.bidirectional else ""
        more += f" with proj_size={rnn.proj_size}" if rnn.proj_size else ""
        raise ConfigError(
            f"expected one direction, no projection and (input, hidden, layers, bias) = {ours}, "
            f"got {theirs}{more}"
        )
    if cell.options.gate_features is not None:
        raise ConfigError("a cell with gate networks (gate_features) has no counterpart in torch")
    if kind is nn.GRU and not cell.options.reset_after:
        raise ConfigError("torch.nn.GRU resets after the product: build with reset_after=True")


def _copy(cell: ParticleCell, rnn: nn.LSTM | nn.GRU, layer: int, quiet: bool) -> None:
    size = cell.hidden_size
    order = _GRU_ORDER if isinstance(cell, PFGRUCell) else _LSTM_ORDER

    def ours(name: str) -> Tensor:
        blocks: tuple[Tensor, ...] = getattr(rnn, f"{name}_l{layer}").split(size)
        return torch.cat([blocks[j] for j in order])

    main = len(order) * size
    cell.weight_input[:, :main] = ours("weight_ih").t()
    recurrent = ours("weight_hh").t()
    scale: Tensor
    if isinstance(cell, PFGRUCell):
        cell.weight_recurrent[:, : 2 * size] = recurrent[:, : 2 * size]
        cell.weight_candidate[:, :] = recurrent[:, 2 * size :]
        scale = cell.weight_recurrent[:, 2 * size :]
    else:
        cell.weight_recurrent[:, :main] = recurrent
        scale = cell.weight_recurrent[:, main:]
    if cell.bias is not None:
        both = ours("bias_ih") + ours("bias_hh")
        cell.bias[:main] = both
        if isinstance(cell, PFGRUCell) and cell.bias_candidate is not None:
            cell.bias[2 * size : main] = ours("bias_ih")[2 * size :]
            cell.bias_candidate[:] = ours("bias_hh")[2 * size :]
    if quiet:
        scale.zero_()
        cell.weight_input[:, main:] = 0
        cell.weight_observation.zero_()
        if cell.bias is not None:
            cell.bias[main:] = 0
