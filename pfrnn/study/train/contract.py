"""What the training loop and the evaluation need from a compute path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import nn

from pfrnn.study.config import Training
from pfrnn.study.train.batches import DeviceSplit, Rows
from pfrnn.study.train.loss import LossWeights
from pfrnn.study.train.members import Member
from pfrnn.study.train.networks import NetworkSpec
from pfrnn.study.train.optimiser import Hyper
from pfrnn.study.train.population import Population
from pfrnn.study.train.scores import Scores


class ComputePath(Protocol):
    """What the training loop needs from a path."""

    @property
    def name(self) -> str:
        """How steps are computed."""

    @property
    def reason(self) -> str:
        """Why they are computed so."""

    @property
    def graph(self) -> str:
        """Whether steps are captured as CUDA graphs, or why not."""

    @property
    def stochastic(self) -> bool:
        """Whether two evaluations with different noise differ."""

    @property
    def spec(self) -> NetworkSpec:
        """The network's structure."""

    @property
    def weights(self) -> LossWeights:
        """Weights of the two losses."""

    @property
    def training(self) -> Training:
        """Settings of the optimiser."""

    def build(self) -> nn.Module:
        """Make one freshly initialised model."""

    def train_on(
        self,
        population: Population,
        members: Sequence[Member],
        hyper: Hyper,
        split: DeviceSplit,
        rows: Rows,
    ) -> None:
        """Update ``population`` with sequences ``rows`` of a split and add to its sums."""

    def score_on(
        self,
        population: Population,
        members: Sequence[Member],
        split: DeviceSplit,
        rows: Rows,
        axes: Sequence[str | int],
        best: bool,
    ) -> Scores:
        """Evaluate sequences ``rows`` with the noise that ``axes`` name.

        The result's tensors may be written again by the next call: copy what is kept.
        """

    def release(self) -> None:
        """Give up memory held for the population in training."""
