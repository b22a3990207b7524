"""The experiment network: encoder, recurrent core, head; one class for all variants.

Written once for one model. With stacked parameters (M, ...) through
``torch.func.functional_call`` the same code runs a population; see ``population``.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pfrnn.errors import ConfigError
from pfrnn.functional.batch_norm import Known, Statistics
from pfrnn.functional.types import Readout
from pfrnn.study.train.cores import ParticleCore, PlainCore, Randomness
from pfrnn.study.train.encoders import Affine, LocalizationEncoder, TokenEncoder, VectorEncoder
from pfrnn.study.train.spec import NetworkSpec

# Paper: two convolutions for the smaller maps, five for the largest one (27 x 27).
_LARGE_MAP = 27


class NetworkOutput(NamedTuple):
    """What a network predicts; T' is 1 for classification (the last valid step).

    Attributes:
        prediction: (T', ..., N, C), from the mean particle or the hidden state; standardised
            targets or logits.
        particles: (T', ..., N, K, C), each particle's own prediction, or None.
        log_weights: (T', ..., N, K) or None.
        ess: (T, ..., N) or None.
        ancestors: (T, ..., N, K) or None.
        statistics: batch-norm statistics of each step, (T, ..., H), or None.
    """

    prediction: Tensor
    particles: Tensor | None
    log_weights: Tensor | None
    ess: Tensor | None
    ancestors: Tensor | None
    statistics: Statistics | Known | None


class ExperimentNetwork(nn.Module):
    """Encoder, recurrent core and head, as the paper describes them."""

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.spec = spec
        self.encoder = _encoder(spec)
        self.mean_of_heads = mean_of_heads(spec)
        self.core: ParticleCore | PlainCore
        if spec.kind == "particle":
            self.core = ParticleCore(spec, self.encoder.outputs, mean=not self.mean_of_heads)
        else:
            self.core = PlainCore(spec, self.encoder.outputs)
        widths = [spec.hidden] * spec.layers + [spec.outputs]
        self.head = nn.ModuleList(Affine(a, b) for a, b in itertools.pairwise(widths))

    def read_out(self, hidden: Tensor) -> Tensor:
        """Apply f_out: (T, ..., N, H) -> (T, ..., N, C)."""
        for layer in self.head[:-1]:
            hidden = torch.relu(layer(hidden))
        return self.head[-1](hidden)

    def forward(
        self, x: Tensor, valid: Tensor | None = None, randomness: Randomness | None = None
    ) -> NetworkOutput:
        """Predict from inputs.

        Args:
            x: (T, ..., N, D), or token ids (T, ..., N).
            valid: (T, ..., N) bool; None when nothing is padded.
            randomness: noise and uniforms of a particle filter, and dropout's mask.

        Raises:
            ConfigError: a sequence is longer than the network was built for.
        """
        if len(x) > self.spec.max_length:
            raise ConfigError(f"expected at most {self.spec.max_length} steps, got {len(x)}")
        last = self.spec.task == "classification"
        if self.mean_of_heads:
            head = Readout(self.head[-1].weight, self.head[-1].bias)
            output = self.core(self.encoder(x), valid, randomness, last, head)
        else:
            output = self.core(self.encoder(x), valid, randomness, last)
        particles = output.read
        if output.particles is not None:
            sequences, count = output.particles.shape[-3:-1]
            flat = self.read_out(output.particles.flatten(-3, -2))
            particles = flat.unflatten(-2, (sequences, count))
        if self.mean_of_heads:
            prediction = (output.log_weights.exp().unsqueeze(-1) * particles).sum(-2)
        else:
            prediction = self.read_out(output.belief)
        return NetworkOutput(
            prediction,
            particles if self.spec.keep_particles else None,
            output.log_weights,
            output.ess,
            output.ancestors,
            output.statistics,
        )


def mean_of_heads(spec: NetworkSpec) -> bool:
    """Whether the prediction is the mean of the particles' heads.

    With a linear head that is the head of the mean particle. At many steps it is far cheaper: the
    particles are the largest tensor, and are then read by the head alone, inside a fused loop.
    """
    return spec.kind == "particle" and spec.layers == 1 and spec.task != "classification"


def _encoder(spec: NetworkSpec) -> VectorEncoder | TokenEncoder | LocalizationEncoder:
    if spec.vocabulary:
        return TokenEncoder(spec.vocabulary, spec.encoder)
    if spec.map_cells:
        convolutions = 5 if len(spec.map_cells) >= _LARGE_MAP else 2
        cells = torch.tensor(spec.map_cells)
        return LocalizationEncoder(
            spec.inputs, spec.encoder, spec.layers, cells, spec.map_channels, convolutions
        )
    return VectorEncoder(spec.inputs, spec.encoder, spec.layers)
