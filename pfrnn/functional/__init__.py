"""Pure tensor functions: weights, resampling, gates, sequences, losses.

Leading axes are free, nothing draws random numbers, nothing keeps state.
"""

from pfrnn.functional.batch_norm import (
    Known,
    Statistics,
    apply_batch_norm,
    batch_statistics,
    pool,
    update_running,
)
from pfrnn.functional.belief import Modes, covariance, mean_particle, modes, quantiles
from pfrnn.functional.linear import activate, affine
from pfrnn.functional.losses import (
    Outputs,
    combined_loss,
    count_outputs,
    elbo_loss,
    exponential_time_weights,
    prediction_loss,
    reduce_loss,
)
from pfrnn.functional.pf_gru import PFGRUWeights, pf_gru_step
from pfrnn.functional.pf_lstm import PFLSTMWeights, pf_lstm_step
from pfrnn.functional.predictive import (
    Coverage,
    Interval,
    coverage,
    mixture_cdf,
    predictive_interval,
    predictive_quantile,
)
from pfrnn.functional.resampling import (
    Resampled,
    gather,
    multinomial_resample,
    resample,
    soft_resample,
    systematic_resample,
    unnormalized_correction,
)
from pfrnn.functional.rnn import GRUWeights, LSTMWeights, gru_step, lstm_step, run_rnn
from pfrnn.functional.sequence import run_pf
from pfrnn.functional.transition import filter_update
from pfrnn.functional.types import (
    FilterOutput,
    FilterSwitches,
    PFState,
    Readout,
    RNNInfo,
    RNNOutput,
    RNNState,
    RNNSwitches,
    StepInfo,
)
from pfrnn.functional.weights import (
    effective_sample_size,
    entropy,
    normalize,
    uniform_log_weights,
)

__all__ = [
    "Coverage",
    "FilterOutput",
    "FilterSwitches",
    "GRUWeights",
    "Interval",
    "Known",
    "LSTMWeights",
    "Modes",
    "Outputs",
    "PFGRUWeights",
    "PFLSTMWeights",
    "PFState",
    "RNNInfo",
    "RNNOutput",
    "RNNState",
    "RNNSwitches",
    "Readout",
    "Resampled",
    "Statistics",
    "StepInfo",
    "activate",
    "affine",
    "apply_batch_norm",
    "batch_statistics",
    "combined_loss",
    "count_outputs",
    "covariance",
    "coverage",
    "effective_sample_size",
    "elbo_loss",
    "entropy",
    "exponential_time_weights",
    "filter_update",
    "gather",
    "gru_step",
    "lstm_step",
    "mean_particle",
    "mixture_cdf",
    "modes",
    "multinomial_resample",
    "normalize",
    "pf_gru_step",
    "pf_lstm_step",
    "pool",
    "prediction_loss",
    "predictive_interval",
    "predictive_quantile",
    "quantiles",
    "reduce_loss",
    "resample",
    "run_pf",
    "run_rnn",
    "soft_resample",
    "systematic_resample",
    "uniform_log_weights",
    "unnormalized_correction",
    "update_running",
]
