"""From configuration, variant and data card to a network's structure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy.typing as npt

from pfrnn.functional.types import RNNSwitches
from pfrnn.nn.options import CellOptions, resolve
from pfrnn.study.config import Config
from pfrnn.study.data.base import PreparedCard
from pfrnn.study.variants import Variant


class NetworkSpec(NamedTuple):
    """Everything that decides a network's structure, and its dropout."""

    task: str
    inputs: int
    vocabulary: int
    outputs: int
    max_length: int
    encoder: int
    layers: int
    cell: str
    kind: str
    hidden: int
    particles: int
    filter: CellOptions
    rnn: RNNSwitches
    bptt: int
    keep_particles: bool
    map_channels: int = 0
    map_cells: tuple[tuple[int, ...], ...] = ()
    dropout: float = 0.0
    own: str | None = None


def network_spec(
    config: Config,
    card: PreparedCard,
    variant: Variant,
    hidden: int,
    particles: int,
    extra: Mapping[str, npt.NDArray[Any]],
) -> NetworkSpec:
    """Derive a network's structure from the configuration and the data set's card."""
    net = config.network
    width = {
        "regression": net.encoder_regression,
        "classification": net.encoder_classification,
        "localization": net.encoder_localization,
    }[card.task]
    cells: tuple[tuple[int, ...], ...] = ()
    if "map" in extra:
        cells = tuple(tuple(int(cell) for cell in row) for row in extra["map"])
    return NetworkSpec(
        task=card.task,
        inputs=card.inputs,
        vocabulary=card.vocabulary,
        outputs=len(card.classes) or len(card.target_mean),
        max_length=card.max_length,
        encoder=net.embedding if card.vocabulary else width,
        layers=2 if net.text == "main" else 1,
        cell=variant.cell,
        kind="particle" if variant.kind == "particle" else "plain",
        hidden=hidden,
        particles=particles,
        filter=filter_options(config, variant, card.max_length),
        rnn=RNNSwitches(activation="relu", batch_norm="feature")
        if variant.batch_norm_relu
        else RNNSwitches(),
        bptt=config.training.bptt,
        keep_particles=variant.elbo_loss and config.loss.beta > 0,
        map_channels=net.map_channels,
        map_cells=cells,
        dropout=net.dropout,
        own=variant.own,
    )


def filter_options(config: Config, variant: Variant, max_length: int) -> CellOptions:
    """Resolve the particle cell's options: fidelity preset, configuration, the variant's changes.

    A later one wins: the ablation without batch norm has none whatever the switches say.

    Batch norm keeps running statistics of every time step: a filter that starts at zero has
    another spread in its first steps than later, and statistics pooled over time fit neither.
    """
    moved: dict[str, Any] = dict(config.filter.moved)
    if moved.get("gate_features") == 0:
        moved["gate_features"] = None
    chosen = moved | {
        "alpha": config.filter.alpha,
        "resampling": variant.resampling or config.filter.resampling,
        "statistics": "per_time",
        "max_steps": max_length,
    }
    if not variant.batch_norm_relu:
        chosen |= {"activation": "tanh", "batch_norm": "none"}
    return resolve(config.filter.fidelity, chosen)
