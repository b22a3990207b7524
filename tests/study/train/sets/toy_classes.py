"""Token sequences of unequal length: the class is the token that appears more often."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pfrnn.study.data.base import Arrays, Card, Dataset, Protocol, Split

T = 7


class ToyProtocol(Protocol):
    train: int = 40


def _split(rng: np.random.Generator, count: int, offset: int) -> Split:
    length = rng.integers(3, T + 1, count)
    label = rng.integers(0, 2, count)
    tokens = np.zeros((count, T), np.int32)
    mask = np.zeros((count, T), bool)
    rows = np.full((count, T), -1, np.int64)
    for i, n in enumerate(length):
        common = rng.random(n) < 0.8
        tokens[i, :n] = np.where(common, 1 + label[i], 2 - label[i])
        mask[i, n - 1] = True
        rows[i, :n] = offset + i * T + np.arange(n)
    return Split(tokens, length.astype(np.int32), label.astype(np.int64), mask, rows)


def prepare(folder: Path, protocol: ToyProtocol, seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    counts = (("train", protocol.train), ("validation", 16), ("test", 20))
    splits = {name: _split(rng, count, 1000 * i) for i, (name, count) in enumerate(counts)}
    return Arrays(splits, classes=("one", "two"), vocabulary=3)


DATASET = Dataset(
    Card(
        name="toy_classes",
        title="Toy tokens",
        task="classification",
        origin="made here",
        citation="none",
        licence="none",
        redistributable=True,
        files=(),
        addresses=(),
        rows=None,
        target="class",
        unit="%",
        metric="accuracy",
    ),
    ToyProtocol,
    prepare,
)
