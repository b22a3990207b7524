"""Choosing how steps are computed."""

from __future__ import annotations

import logging
import os
from typing import Any

import torch

from pfrnn.errors import ConfigError
from pfrnn.kernels import dispatch
from pfrnn.kernels.graph import CudaCapture
from pfrnn.study.config import Config
from pfrnn.study.train.bayesian import BayesianPath
from pfrnn.study.train.contract import ComputePath
from pfrnn.study.train.graphed import GraphedPath
from pfrnn.study.train.loss import loss_weights
from pfrnn.study.train.networks import NetworkSpec
from pfrnn.study.train.path import PlainPath
from pfrnn.study.variants import Variant

log = logging.getLogger(__name__)

# 0: steps are launched one by one on a GPU too.
GRAPHS = "PFRNN_GRAPHS"


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
    path = PlainPath(spec, weights, config.training)
    if variant.kind == "bayesian":
        path = BayesianPath(spec, weights, config.training, config.bayesian, sequences)
    if variant.kind == "particle":
        path = particle_path(path, device, config.execution.precision)
    elif device.type == "cuda" or dispatch.asked_for() != "auto":
        path.take(rnn_choice(path, device))
    return with_graphs(path, device)


def rnn_choice(path: PlainPath, device: torch.device) -> dispatch.Choice:
    """Choose the loop over time of a path's plain RNN.

    Raises:
        ConfigError: PFRNN_KERNELS has an unknown value, or asks for what can't be.
    """
    cell: Any = path.network.core.cell
    choice = dispatch.choose_rnn(type(cell).step, cell.switches, device)
    log.info("%s: %s", choice.name, choice.reason)
    return choice


def with_graphs(path: PlainPath, device: torch.device) -> ComputePath:
    """Wrap a path where graphs exist and aren't switched off (``PFRNN_GRAPHS=0``).

    Raises:
        ConfigError: PFRNN_GRAPHS has an unknown value.
    """
    asked = os.environ.get(GRAPHS, "1")
    if asked not in ("0", "1"):
        raise ConfigError(f"{GRAPHS}: expected 0 or 1, got {asked!r}")
    if device.type != "cuda":
        path.graph = f"off: no CUDA graphs on {device.type}"
        return path
    if asked == "0":
        path.graph = f"off: {GRAPHS}=0"
        return path
    return GraphedPath(path, CudaCapture)


def particle_path(plain: PlainPath, device: torch.device, precision: str = "tf32") -> PlainPath:
    """Give a particle filter's path the fastest loop over time that can run it.

    Args:
        plain: the path as it is.
        device: where it runs.
        precision: of the fused kernels' products, where they run.

    Raises:
        ConfigError: the kernels would run and the card isn't to be trusted with the precision.
    """
    cell: Any = plain.network.core.cell
    problem = dispatch.Problem(
        step=type(cell).step,
        switches=cell.switches,
        particles=plain.spec.particles,
        units=plain.spec.hidden,
        device=device,
        dtype=cell.weight_observation.dtype,
    )
    choice = dispatch.choose(problem, precision)
    log.info("%s: %s", choice.name, choice.reason)
    if choice.name == "fused":
        # Here, because it imports Triton, which torch brings on CUDA machines only.
        from pfrnn.study.train.fused import FusedPath

        return FusedPath(plain.spec, plain.weights, plain.training, choice)
    plain.take(choice)
    return plain
