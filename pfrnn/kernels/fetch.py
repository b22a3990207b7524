"""Weight blocks fetched into shared memory by the tensor copy engine, on Hopper and later.

A program's loads pass through its registers on their way to the shared memory from which the
tensor cores read; 64 x 64 weights are 32 registers of each of 128 threads, and more for their
addresses. The copy engine writes to shared memory by itself, told where by a descriptor that the
host makes at the launch. The numbers are the same.
"""

from __future__ import annotations

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from pfrnn.kernels.dependent_launch import has_dependent_launch
from pfrnn.kernels.ground import interpreted, padded_units

# Bytes: where a fetched tensor begins, and its rows' length, are multiples of it.
_ALIGNMENT = 16


def can_fetch(device: torch.device) -> bool:
    """Whether kernels for ``device`` may fetch so: the hardware that has dependent launches."""
    return interpreted() or has_dependent_launch(device)


def fetchable(units: int, inner: int, bytes_each: int, address: int) -> bool:
    """Whether whole blocks of ``units`` x ``units`` weights can be fetched as they lie in memory.

    Args:
        units: H; a tile's width is a power of two, and nothing masks what is fetched.
        inner: the longest sum that a product takes in one piece.
        bytes_each: of a weight.
        address: where the first block begins.

    >>> fetchable(64, 64, 4, 512), fetchable(33, 64, 4, 512), fetchable(128, 64, 4, 512)
    (True, False, False)
    """
    whole = padded_units(units) == units <= inner
    return whole and units * bytes_each % _ALIGNMENT == 0 and address % _ALIGNMENT == 0


def block_descriptor(blocks: Tensor, inner: int, asked: bool) -> TensorDescriptor | None:
    """Describe (M, G, H, H) to the copy engine as rows of H, of which a block is H.

    None where that wasn't ``asked`` for or isn't possible: the kernels then load as usual. A
    descriptor is made once a run and holds the tensor, whose memory must stay.
    """
    units = blocks.shape[-1]
    fits = fetchable(units, inner, blocks.element_size(), blocks.data_ptr())
    if not (asked and fits and blocks.is_contiguous() and can_fetch(blocks.device)):
        return None
    return TensorDescriptor.from_tensor(blocks.view(-1, units), [units, units])
