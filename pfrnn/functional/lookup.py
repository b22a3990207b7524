"""Rows of embeddings with weights that may carry leading (member) axes."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def embed(tokens: Tensor, weight: Tensor) -> Tensor:
    """Take each token's row of its member's table.

    Args:
        tokens: (T, *lead, N), whole numbers in [0, V).
        weight: (*lead, V, W).

    Returns:
        (T, *lead, N, W).

    Example:
        >>> embed(torch.zeros(5, 2, 3, dtype=torch.int64), torch.ones(2, 7, 4)).shape
        torch.Size([5, 2, 3, 4])
    """
    *lead, vocabulary, width = weight.shape
    if not lead:
        return F.embedding(tokens.long(), weight)
    # The members' tables one under the other.
    offset = torch.arange(math.prod(lead), device=tokens.device) * vocabulary
    rows = tokens.long() + offset.view(*lead, 1)
    return F.embedding(rows, weight.reshape(-1, width))
