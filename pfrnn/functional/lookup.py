"""Rows of embeddings with weights that may carry leading (member) axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from pfrnn.functional.handover import Handover

Lookup = Callable[[Tensor, Tensor], Any]
_LOOKUPS = Handover("lookups")


def lookups(by: Lookup) -> AbstractContextManager[None]:
    """Compute inside what :func:`embed` does for a population by another function.

    Args:
        by: called with tokens (T, M, N) and weight (M, V, W); returns (T, M, N, W), or
            ``NotImplemented`` for what it doesn't take.

    Example:
        >>> with lookups(lambda tokens, weight: weight.new_zeros(())):
        ...     embed(torch.zeros(5, 2, 3, dtype=torch.int64), torch.ones(2, 7, 4))
        tensor(0.)
    """
    return _LOOKUPS.to(by)


def embed(tokens: Tensor, weight: Tensor) -> Tensor:
    """Take each token's row of its member's table.

    Args:
        tokens: (T, *lead, N), whole numbers in [0, V).
        weight: (*lead, V, W).

    Returns:
        (T, *lead, N, W). A library's order of adding the gradient up may go by a member's company:
        inside :func:`lookups` it is the other function's.

    Example:
        >>> embed(torch.zeros(5, 2, 3, dtype=torch.int64), torch.ones(2, 7, 4)).shape
        torch.Size([5, 2, 3, 4])
    """
    if weight.dim() == 2:
        return F.embedding(tokens.long(), weight)
    found = _LOOKUPS.result(tokens, weight) if weight.dim() == tokens.dim() == 3 else None
    if found is not None:
        return found
    return F.embedding(stacked_rows(tokens, weight), weight.reshape(-1, weight.shape[-1]))


def stacked_rows(tokens: Tensor, weight: Tensor) -> Tensor:
    """Rows of all members' tables one under the other: tokens, an offset a member.

    Args:
        tokens: (T, *lead, N), whole numbers.
        weight: (*lead, V, W).

    Returns:
        As tokens, int64.

    Example:
        >>> stacked_rows(torch.tensor([[[1], [2]]]), torch.ones(2, 7, 4)).tolist()
        [[[1], [9]]]
    """
    *lead, vocabulary, _ = weight.shape
    offset = torch.arange(math.prod(lead), device=tokens.device) * vocabulary
    return tokens.long() + offset.view(*lead, 1)
