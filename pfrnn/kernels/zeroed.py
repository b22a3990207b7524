"""Several buffers of zeros, filled by one launch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from torch import Tensor

# Bytes between which a buffer may begin, as torch's allocator places tensors on a GPU: a kernel
# compiled for aligned pointers reads all of them.
_ALIGNMENT = 512


def zeroed(like: Tensor, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
    """Return contiguous zeros of each shape, of the type and on the device of ``like``.

    They lie in one piece of memory, which lasts as long as any of them.
    """
    step = _ALIGNMENT // like.element_size()
    sizes = [math.prod(shape) for shape in shapes]
    starts = list(itertools.accumulate((-(-size // step) * step for size in sizes), initial=0))
    whole = like.new_zeros(starts[-1])
    return [
        whole[start : start + size].view(tuple(shape))
        for start, size, shape in zip(starts, sizes, shapes, strict=False)
    ]
