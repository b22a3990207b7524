"""Plain LSTM and GRU cells with the interface of the particle cells, optionally with BN and ReLU.

They exist beside torch's own because a population of models, batch norm inside the cell and
truncated gradients need the cell's equations to be ours.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pfrnn.functional.linear import affine
from pfrnn.functional.rnn import GRUWeights, LSTMWeights, RNNStep, gru_step, lstm_step, run_rnn
from pfrnn.functional.types import RNNOutput, RNNState, RNNSwitches
from pfrnn.nn.statistics import RunningStatistics

RNNRun = Callable[..., RNNOutput]


class PlainCell(nn.Module):
    """What plain cells share; use :class:`LSTMCell` or :class:`GRUCell`.

    Args:
        input_size: features of x, at least 1.
        hidden_size: H, at least 1.
        bias: whether the blocks have biases.
        activation: of the candidate: ``tanh``, ``relu`` or ``leaky_relu``.
        batch_norm: of the candidate: ``none`` or ``feature``. The paper's LSTM-BNReLU is
            ``activation="relu", batch_norm="feature"``.
        reset_after: GRU only: the reset gate acts after the product, as in torch.nn.GRU, instead
            of before it, as the paper prints it.
        momentum: of the running batch-norm statistics, in (0, 1].
        norm_eps: added to the variance, above 0.
        device: of the parameters.
        dtype: of the parameters.

    Randomness:
        Parameters are drawn from torch's default generator; nothing else is random.
    """

    step: RNNStep
    blocks: int
    has_cell: bool

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        *,
        activation: str = "tanh",
        batch_norm: str = "none",
        reset_after: bool = False,
        momentum: float = 0.1,
        norm_eps: float = 1e-5,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.switches = RNNSwitches(activation, batch_norm, norm_eps, reset_after)
        self._factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.weight_input = self._new(input_size, self.blocks * hidden_size)
        self.bias = self._new(self.blocks * hidden_size) if bias else None
        self._add_recurrent()
        self.norm_gain = self.norm_shift = self.running = None
        if batch_norm != "none":
            self.norm_gain, self.norm_shift = self._new(hidden_size), self._new(hidden_size)
            self.running = RunningStatistics(hidden_size, None, momentum, **self._factory)
        self.reset_parameters()

    def _new(self, *shape: int) -> nn.Parameter:
        return nn.Parameter(torch.empty(shape, **self._factory))

    def _add_recurrent(self) -> None:
        raise NotImplementedError("a subclass adds its recurrent weights")

    def reset_parameters(self) -> None:
        """Draw weights and biases from U(-1/sqrt(H), 1/sqrt(H)), as torch.nn.LSTM does."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for name, parameter in self.named_parameters():
            if name == "norm_gain":
                nn.init.ones_(parameter)
            elif name == "norm_shift":
                nn.init.zeros_(parameter)
            else:
                nn.init.uniform_(parameter, -bound, bound)
        if self.running is not None:
            self.running.reset_running_stats()

    def weights(self) -> NamedTuple:
        """Return the weights that the step reads."""
        raise NotImplementedError("a subclass says which weights its step reads")

    def project(self, x: Tensor) -> Tensor:
        """Return the input's share of the blocks: (T, ..., N, blocks * H)."""
        return affine(x, self.weight_input, self.bias)

    def initial_state(self, sequences: int) -> RNNState:
        """Return zeros (..., N, H) for N sequences, hidden and for an LSTM cell."""
        like = self.weight_input
        shape = (*like.shape[:-2], sequences, self.hidden_size)
        hidden = torch.zeros(shape, device=like.device, dtype=like.dtype)
        return RNNState(hidden, torch.zeros_like(hidden) if self.has_cell else None)

    def unroll(
        self,
        x: Tensor,
        state: RNNState | None = None,
        *,
        valid: Tensor | None = None,
        bptt: int | None = None,
        update: bool = True,
        run: RNNRun | None = None,
    ) -> RNNOutput:
        """Run over a sequence.

        Args:
            x: (T, ..., N, input_size).
            state: before the first step; zeros when None.
            valid: (T, ..., N) bool; False for padding.
            bptt: cut the gradient of the carried state every so many steps.
            update: in training, move the running statistics (once).
            run: the loop over time, called as :func:`pfrnn.functional.rnn.run_rnn` without its
                first argument; None takes that.

        Returns:
            See :class:`RNNOutput`: hidden (T, ..., N, H) and the state after the last step.
        """
        state = self.initial_state(x.shape[-2]) if state is None else state
        if valid is not None:
            # NaN in padding times a gradient of 0 would be NaN in the weights' gradients.
            x = torch.where(valid.unsqueeze(-1), x, 0.0)
        learn = self.running is not None and self.training
        output = (run or self.loop())(
            self.project(x),
            state,
            self.weights(),
            self.switches,
            statistics=None if self.running is None or learn else self.running.given(x.shape[0]),
            valid=valid,
            bptt=bptt,
        )
        if self.running is not None and learn and update:
            self.running.update(output)
        return output

    def loop(self) -> RNNRun:
        """Return the reference loop over time of the cell's step."""
        return functools.partial(run_rnn, type(self).step)

    def forward(self, x: Tensor, state: RNNState | None = None) -> RNNState:
        """Advance by one step: x (..., N, input_size)."""
        return self.unroll(x.unsqueeze(0), state).final

    def extra_repr(self) -> str:
        """Return the sizes and every switch that differs from the usual."""
        text = f"{self.input_size}, {self.hidden_size}"
        pairs = zip(RNNSwitches._fields, self.switches, RNNSwitches(), strict=True)
        return text + "".join(f", {name}={v!r}" for name, v, usual in pairs if v != usual)


class LSTMCell(PlainCell):
    """A plain LSTM cell; gate order input, forget, candidate, output, as torch's.

    Arguments: see :class:`PlainCell`. A step is
    :func:`pfrnn.functional.lstm_step`.

    Example:
        >>> LSTMCell(3, 4)(torch.zeros(2, 3)).hidden.shape
        torch.Size([2, 4])
    """

    step = staticmethod(lstm_step)
    blocks = 4
    has_cell = True

    def _add_recurrent(self) -> None:
        self.weight_recurrent = self._new(self.hidden_size, 4 * self.hidden_size)

    def weights(self) -> LSTMWeights:
        """Return the weights that :func:`pfrnn.functional.lstm_step` reads."""
        return LSTMWeights(self.weight_recurrent, self.norm_gain, self.norm_shift)


class GRUCell(PlainCell):
    """A plain GRU cell; gate order reset, update, candidate, as torch's.

    Arguments: see :class:`PlainCell`. A step is
    :func:`pfrnn.functional.gru_step`.

    Example:
        >>> GRUCell(3, 4)(torch.zeros(2, 3)).hidden.shape
        torch.Size([2, 4])
    """

    step = staticmethod(gru_step)
    blocks = 3
    has_cell = False

    def _add_recurrent(self) -> None:
        self.weight_recurrent = self._new(self.hidden_size, 2 * self.hidden_size)
        self.weight_candidate = self._new(self.hidden_size, self.hidden_size)
        needs_bias = self.switches.reset_after and self.bias is not None
        self.bias_candidate = self._new(self.hidden_size) if needs_bias else None

    def weights(self) -> GRUWeights:
        """Return the weights that :func:`pfrnn.functional.gru_step` reads."""
        return GRUWeights(
            self.weight_recurrent,
            self.weight_candidate,
            self.norm_gain,
            self.norm_shift,
            self.bias_candidate,
        )
