"""Encoders in front of the recurrent cell: vectors, tokens, and the maze's map.

Every module is written for one model and works unchanged with parameters that carry leading
(member) axes, as ``torch.func.functional_call`` with stacked parameters gives it.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pfrnn.functional.linear import affine
from pfrnn.functional.lookup import embed

# Convolutions halve the map while it is larger than this.
_SMALLEST_MAP = 8
_MAP_CELL_KINDS = 3


class Affine(nn.Module):
    """A fully connected layer, x @ weight + bias, with weight of shape (in, out).

    Initialised as :class:`torch.nn.Linear`: uniform in +-1/sqrt(in).
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """(T, ..., N, in) -> (T, ..., N, out)."""
        return affine(x, self.weight, self.bias)


class VectorEncoder(nn.Module):
    """Fully connected ReLU layers: one (the paper's appendix) or two (its main text)."""

    def __init__(self, inputs: int, width: int, layers: int) -> None:
        super().__init__()
        sizes = [inputs] + [width] * layers
        self.layers = nn.ModuleList(Affine(a, b) for a, b in itertools.pairwise(sizes))
        self.outputs = width

    def forward(self, x: Tensor) -> Tensor:
        """(T, ..., N, D) -> (T, ..., N, width)."""
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


class TokenEncoder(nn.Module):
    """An embedding, trained from scratch and read by the cell directly (paper, appendix)."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocabulary, width))
        self.outputs = width

    def forward(self, tokens: Tensor) -> Tensor:
        """Token ids (T, ..., N) -> (T, ..., N, width)."""
        return embed(tokens, self.weight)


class MapEncoder(nn.Module):
    """Features of a constant map: 3x3 convolutions with ReLU, then a fully connected layer.

    A population runs as one grouped convolution, a group a member.
    """

    map: Tensor

    def __init__(self, cells: Tensor, channels: int, convolutions: int, width: int) -> None:
        super().__init__()
        planes = F.one_hot(cells.long(), _MAP_CELL_KINDS).permute(2, 0, 1)
        planes = planes.to(torch.get_default_dtype())
        self.register_buffer("map", planes, persistent=False)
        self.strides: list[int] = []
        self.kernels = nn.ParameterList()
        self.biases = nn.ParameterList()
        inputs, height, breadth = planes.shape
        for _ in range(convolutions):
            bound = 1.0 / math.sqrt(9 * inputs)
            kernel = torch.empty(channels, inputs, 3, 3).uniform_(-bound, bound)
            self.kernels.append(nn.Parameter(kernel))
            self.biases.append(nn.Parameter(torch.empty(channels).uniform_(-bound, bound)))
            stride = 2 if max(height, breadth) > _SMALLEST_MAP else 1
            self.strides.append(stride)
            height, breadth = (height - 1) // stride + 1, (breadth - 1) // stride + 1
            inputs = channels
        self.features = Affine(channels * height * breadth, width)

    def forward(self) -> Tensor:
        """Return (..., width)."""
        lead = self.kernels[0].shape[:-4]
        members = math.prod(lead)
        # Map is a constant: without leading axes also when the population is stacked.
        planes = self.map.reshape(-1, *self.map.shape[-3:])[:1].repeat(1, members, 1, 1)
        for kernel, bias, stride in zip(self.kernels, self.biases, self.strides, strict=True):
            planes = F.conv2d(
                planes,
                kernel.reshape(-1, *kernel.shape[-3:]),
                bias.reshape(-1),
                stride=stride,
                padding=1,
                groups=members,
            )
            planes = torch.relu(planes)
        flat = planes.reshape(*lead, 1, -1)
        return torch.relu(self.features(flat)).squeeze(-2)


class LocalizationEncoder(nn.Module):
    """Map, control and observation features of the maze.

    Half of the width holds features of the inputs multiplied by features of the map (in the
    authors' release the map multiplies the inputs), the other half features of the inputs alone,
    so that no input is lost where a map feature is zero.
    """

    def __init__(
        self,
        inputs: int,
        width: int,
        layers: int,
        cells: Tensor,
        channels: int,
        convolutions: int,
    ) -> None:
        super().__init__()
        self.inputs = VectorEncoder(inputs, width, layers)
        self.map = MapEncoder(cells, channels, convolutions, width // 2)
        self.outputs = width

    def forward(self, x: Tensor) -> Tensor:
        """(T, ..., N, D) -> (T, ..., N, width)."""
        features = self.inputs(x)
        half = self.outputs // 2
        seen = features[..., :half] * self.map().unsqueeze(-2)
        return torch.cat([seen, features[..., half:]], -1)
