"""Seeds derived from named axes, so that a number's randomness never depends on job order."""

from __future__ import annotations

import hashlib


def derive_seed(base: int, *axes: str | int) -> int:
    """Derive a seed from a base seed and named axes.

    The same axes give the same seed on every machine and Python version; any other axes give an
    unrelated one (the first 63 bits of a SHA-256 over the length-prefixed axes).

    Args:
        base: the study's base seed (``params.yaml``: ``seed``).
        *axes: names and numbers that identify the use, e.g. ``("maze10", "repetition", 3)``.

    Returns:
        An integer in [0, 2**63).

    Example:
        >>> derive_seed(0, "air", "order", 1) == derive_seed(0, "air", "order", 1)
        True
        >>> derive_seed(0, "air", 1) == derive_seed(0, "air", "1")
        False
    """
    digest = hashlib.sha256()
    for axis in (base, *axes):
        text = f"{type(axis).__name__}:{axis}".encode()
        digest.update(len(text).to_bytes(4, "big") + text)
    return int.from_bytes(digest.digest()[:8], "big") >> 1
