"""A noisy autoregression: the next value from the last ones; learnable in a few epochs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pfrnn.study.data.base import Arrays, Card, Dataset, Protocol, Split

T = 6


class ToyProtocol(Protocol):
    train: int = 40
    noise: float = 0.1


def _split(rng: np.random.Generator, count: int, noise: float) -> Split:
    signal = np.zeros((count, T + 1))
    for t in range(T):
        signal[:, t + 1] = 0.8 * signal[:, t] + rng.normal(size=count)
    x = np.stack([signal[:, :-1], np.diff(signal, axis=1) * 0], -1)
    y = 0.8 * signal[:, :-1] + noise * rng.normal(size=(count, T))
    rows = rng.permutation(count * T).reshape(count, T)
    return Split(
        x.astype(np.float32),
        np.full(count, T, np.int32),
        y[:, :, None].astype(np.float32),
        np.ones((count, T), bool),
        rows.astype(np.int64),
    )


def prepare(folder: Path, protocol: ToyProtocol, seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    splits = {
        name: _split(rng, count, protocol.noise)
        for name, count in (("train", protocol.train), ("validation", 12), ("test", 20))
    }
    offset = 0
    for name, split in splits.items():
        splits[name] = split._replace(rows=split.rows + offset)
        offset += split.rows.size
    return Arrays(splits, target_mean=(3.0,), target_std=(2.0,), features=("a", "b"))


DATASET = Dataset(
    Card(
        name="toy_regression",
        title="Toy autoregression",
        task="regression",
        origin="made here",
        citation="none",
        licence="none",
        redistributable=True,
        files=(),
        addresses=(),
        rows=None,
        target="value",
        unit="m",
        metric="rmse",
    ),
    ToyProtocol,
    prepare,
)
