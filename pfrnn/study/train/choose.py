"""Choosing how steps are computed."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from pfrnn.errors import ConfigError
from pfrnn.kernels import dispatch
from pfrnn.kernels.graph import CudaCapture
from pfrnn.study.config import Config, Training
from pfrnn.study.train.bayesian import BayesianPath
from pfrnn.study.train.graphs import Graphs
from pfrnn.study.train.loss import LossWeights, loss_weights
from pfrnn.study.train.path import PlainPath
from pfrnn.study.train.spec import NetworkSpec
from pfrnn.study.variants import Variant

log = logging.getLogger(__name__)

# 0: steps are launched one by one on a GPU too.
GRAPHS = "PFRNN_GRAPHS"


def choose_path(
    spec: NetworkSpec, variant: Variant, config: Config, sequences: int, device: torch.device
) -> PlainPath:
    """Choose the compute path of a variant; its name and reason go to run.json.

    Args:
        spec: the network.
        variant: what is trained.
        config: the data set's configuration.
        sequences: number of training sequences.
        device: where it runs.

    Raises:
        ConfigError: PFRNN_KERNELS or PFRNN_GRAPHS has an unknown value, or asks for what can't be.
    """
    weights = loss_weights(config.loss, variant, config.filter.fidelity)
    path: PlainPath
    if variant.kind == "particle":
        path = particle_path(spec, weights, config.training, device, config.execution.precision)
    else:
        path = PlainPath(spec, weights, config.training)
        if variant.kind == "bayesian":
            path = BayesianPath(spec, weights, config.training, config.bayesian, sequences)
        if device.type == "cuda" or dispatch.asked_for() != "auto":
            cell: Any = path.network.core.cell
            _take(path, dispatch.choose_rnn(type(cell).step, cell.switches, device))
    asked = os.environ.get(GRAPHS, "1")
    if asked not in ("0", "1"):
        raise ConfigError(f"{GRAPHS}: expected 0 or 1, got {asked!r}")
    if device.type == "cuda" and asked == "1":
        path.graphs = Graphs(CudaCapture)
    return path


def particle_path(
    spec: NetworkSpec,
    weights: LossWeights,
    training: Training,
    device: torch.device,
    precision: str = "tf32",
) -> PlainPath:
    """Make a particle filter's path with the fastest loop over time that can run it.

    Args:
        spec: the network.
        weights: of the two losses.
        training: settings of the optimiser.
        device: where it runs.
        precision: of the fused kernels' products, where they run.
    """
    path = PlainPath(spec, weights, training)
    cell: Any = path.network.core.cell
    problem = dispatch.Problem(
        step=type(cell).step,
        switches=cell.switches,
        particles=spec.particles,
        units=spec.hidden,
        device=device,
        dtype=cell.weight_observation.dtype,
    )
    choice = dispatch.choose(problem, precision)
    if choice.name == "fused":
        # Here, because it imports Triton, which torch brings on CUDA machines only.
        from pfrnn.study.train.fused import FusedPath

        path = FusedPath(spec, weights, training)
    _take(path, choice)
    return path


def _take(path: PlainPath, choice: dispatch.Choice) -> None:
    """Give a path its loop over time, and kernels beside it where the loop is in kernels."""
    log.info("%s: %s", choice.name, choice.reason)
    path.take(choice)
    if choice.name == "fused":
        path.beside = _kernels_beside


@contextmanager
def _kernels_beside() -> Iterator[None]:
    from pfrnn.functional.linear import products
    from pfrnn.kernels.linear import product

    with products(product):
        yield
