"""The tuples that the filter passes around: switches, states, outputs.

Axes: time T, leading axes ``...`` (none for one model, M for a population), sequences N,
particles K, hidden units H.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from pfrnn.functional.state import PFState as PFState


class FilterSwitches(NamedTuple):
    """Static choices of the filter; hashable, so a compiled step may be cached by them.

    Attributes:
        resampling: ``soft``, ``multinomial``, ``systematic`` or ``none``.
        alpha: mixture of soft resampling, in (0, 1]: q = alpha w + (1 - alpha) / K.
        ess_threshold: resample a sequence only when its effective sample size is below this
            fraction of K, in (0, 1]; None resamples at every step.
        noise_scale: ``linear`` (the paper: xi = eps * (W [h, x] + b)) or ``softplus`` of it.
        activation: of the candidate: ``relu``, ``leaky_relu`` (slope 0.01) or ``tanh``.
        batch_norm: of the candidate: per ``feature`` (over sequences and particles), per
            ``particle_slot`` (over sequences and features), or ``none``.
        norm_eps: added to the variance, above 0.
        gru_noise: PF-GRU's noise scale reads the ``hidden`` state (the paper) or the ``reset``
            hidden state r * h (the authors' release).
        reset_after: PF-GRU's reset gate acts after the candidate's product, as in
            :class:`torch.nn.GRU`, instead of before it, as the paper prints it.
    """

    resampling: str = "soft"
    alpha: float = 0.5
    ess_threshold: float | None = None
    noise_scale: str = "linear"
    activation: str = "relu"
    batch_norm: str = "feature"
    norm_eps: float = 1e-5
    gru_noise: str = "hidden"
    reset_after: bool = False


class StepInfo(NamedTuple):
    """What a step did, beside the new state.

    Attributes:
        ancestors: (..., N, K) int64, the particle that each new particle continues.
        ess: (..., N), effective sample size before resampling, in [1, K]; no gradient.
        mean: batch-norm mean of the step, (..., H), or (..., K) per particle slot; None when
            there was no batch norm or the statistics were given. No gradient.
        variance: biased variance, of the same shape.
        count: (...), the number of values behind each mean.
    """

    ancestors: Tensor
    ess: Tensor
    mean: Tensor | None
    variance: Tensor | None
    count: Tensor | None  # type: ignore[assignment]  # shadows tuple.count


class Readout(NamedTuple):
    """A linear head that a filter applies to every particle: weight (..., H, C), bias (..., C)."""

    weight: Tensor
    bias: Tensor | None = None


class FilterOutput(NamedTuple):
    """The result of a filter over a sequence.

    Attributes:
        hidden: (T, ..., N, K, H), or None when the particles were not asked for.
        log_weights: (T, ..., N, K).
        ancestors: (T, ..., N, K) int64; without a run's extras it may be int32.
        ess: (T, ..., N).
        final: the state after the last step (for a padded sequence: after its last valid one);
            its cell may be None without a run's extras, as may the next three be.
        mean: batch-norm mean pooled over time and valid steps, (..., H) or (..., K), or None.
        variance: variance pooled likewise (the law of total variance, biased).
        count: (...), the number of values behind the pooled statistics.
        step_mean: (T, ..., H) or (T, ..., K), the statistics of each step, or None.
        step_variance: of the same shape.
        step_count: (T, ...), or where a fast loop was run without extras, and nothing is padded,
            the number that all of them are.
        belief: (T, ..., N, H), the weighted mean particle, when asked for.
        read: (T, ..., N, K, C), a linear head of every particle, when one was given.
    """

    hidden: Tensor | None
    log_weights: Tensor
    ancestors: Tensor
    ess: Tensor
    final: PFState
    mean: Tensor | None = None
    variance: Tensor | None = None
    count: Tensor | None = None  # type: ignore[assignment]
    step_mean: Tensor | None = None
    step_variance: Tensor | None = None
    step_count: Tensor | float | None = None
    belief: Tensor | None = None
    read: Tensor | None = None


class RNNState(NamedTuple):
    """State of a plain RNN: hidden (..., N, H) and, for an LSTM, cell (..., N, H)."""

    hidden: Tensor
    cell: Tensor | None


class RNNSwitches(NamedTuple):
    """Static choices of a plain RNN.

    Attributes:
        activation: of the candidate: ``tanh``, ``relu`` or ``leaky_relu``.
        batch_norm: of the candidate: ``none`` or per ``feature`` (over sequences).
        norm_eps: added to the variance, above 0.
        reset_after: GRU: as :class:`torch.nn.GRU` (True) or as the paper prints it (False).
    """

    activation: str = "tanh"
    batch_norm: str = "none"
    norm_eps: float = 1e-5
    reset_after: bool = False


class RNNInfo(NamedTuple):
    """Batch-norm statistics of a plain RNN's step; None without batch norm in training."""

    mean: Tensor | None
    variance: Tensor | None
    count: Tensor | None  # type: ignore[assignment]  # shadows tuple.count


class RNNOutput(NamedTuple):
    """The result of a plain RNN over a sequence; fields as in :class:`FilterOutput`."""

    hidden: Tensor
    final: RNNState
    mean: Tensor | None = None
    variance: Tensor | None = None
    count: Tensor | None = None  # type: ignore[assignment]
    step_mean: Tensor | None = None
    step_variance: Tensor | None = None
    step_count: Tensor | None = None
