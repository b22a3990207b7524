"""Choosing how steps are computed."""

from __future__ import annotations

from pfrnn.config import Config
from pfrnn.nn.networks import NetworkSpec
from pfrnn.training.bayesian import BayesianPath
from pfrnn.training.loss import loss_weights
from pfrnn.training.path import ComputePath, PlainPath
from pfrnn.variants import Variant


def choose_path(spec: NetworkSpec, variant: Variant, config: Config, sequences: int) -> ComputePath:
    """Choose the compute path of a variant; its name goes to run.json.

    Args:
        spec: the network.
        variant: what is trained.
        config: the data set's configuration.
        sequences: number of training sequences.
    """
    weights = loss_weights(config.loss, variant, config.filter.fidelity)
    if variant.kind == "bayesian":
        return BayesianPath(spec, weights, config.training, config.bayesian, sequences)
    return PlainPath(spec, weights, config.training)
