"""Choosing how steps are computed."""

from __future__ import annotations

import logging

import torch

from pfrnn.config import Config
from pfrnn.kernels import dispatch
from pfrnn.nn.networks import NetworkSpec
from pfrnn.training.bayesian import BayesianPath
from pfrnn.training.loss import loss_weights
from pfrnn.training.path import ComputePath, PlainPath
from pfrnn.variants import Variant

log = logging.getLogger(__name__)


def choose_path(
    spec: NetworkSpec, variant: Variant, config: Config, sequences: int, device: torch.device
) -> ComputePath:
    """Choose the compute path of a variant; its name and reason go to run.json.

    Args:
        spec: the network.
        variant: what is trained.
        config: the data set's configuration.
        sequences: number of training sequences.
        device: where it runs.
    """
    weights = loss_weights(config.loss, variant, config.filter.fidelity)
    if variant.kind == "bayesian":
        return BayesianPath(spec, weights, config.training, config.bayesian, sequences)
    if variant.kind != "particle":
        return PlainPath(spec, weights, config.training)
    return particle_path(PlainPath(spec, weights, config.training), device)


def particle_path(plain: PlainPath, device: torch.device) -> PlainPath:
    """Give a particle filter's path the fastest loop over time that can run it."""
    cell = plain.network.core.cell
    problem = dispatch.Problem(
        step=type(cell).step,
        switches=cell.switches,
        particles=plain.spec.particles,
        units=plain.spec.hidden,
        device=device,
        dtype=cell.weight_recurrent.dtype,
    )
    choice = dispatch.choose(problem)
    log.info("%s: %s", choice.name, choice.reason)
    if choice.name == "fused":
        # Here, because it imports Triton, which torch brings on CUDA machines only.
        from pfrnn.training.fused import FusedPath

        return FusedPath(plain.spec, plain.weights, plain.training, choice)
    plain.name, plain.reason = choice.name, choice.reason
    plain.network.core.run = choice.run
    return plain
