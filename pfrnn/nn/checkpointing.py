"""A long sequence run in pieces, each computed again in the backward pass: less memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from pfrnn.errors import ConfigError
from pfrnn.functional.arguments import check_count
from pfrnn.functional.batch_norm import pool
from pfrnn.functional.types import FilterOutput, PFState

# What a run returns for each step: joined along time.
_TIMED = ("hidden", "log_weights", "ancestors", "ess", "step_mean", "step_variance", "step_count",
          "belief")  # fmt: skip


def run_in_pieces(
    run: Callable[..., FilterOutput],
    every: int,
    projected: Tensor,
    state: PFState,
    noise: Tensor | None,
    uniforms: Tensor | None,
    weights: Any,
    switches: Any,
    *,
    statistics: tuple[Tensor, Tensor] | None = None,
    valid: Tensor | None = None,
    bptt: int | None = None,
    **options: Any,
) -> FilterOutput:
    """Call a loop over time for pieces of ``every`` steps; other arguments as :func:`run_pf`.

    Between two pieces only the state is kept.

    Raises:
        TypeError: ``every`` is not an int.
        ConfigError: it is below 1, or not a multiple of ``bptt``.
    """
    check_count("checkpoint_every", every)
    if bptt is not None and every % bptt:
        raise ConfigError(f"checkpoint_every: expected a multiple of bptt = {bptt}, got {every}")
    timed = statistics is not None and statistics[0].dim() == projected.dim() - 1
    outputs = []
    for start in range(0, projected.shape[0], every):
        piece = slice(start, start + every)
        if bptt is not None and start > 0:
            state = state.detach()
        output: FilterOutput = checkpoint(
            run,
            projected[piece],
            state,
            *(_numbers(one, piece) for one in (noise, uniforms)),
            weights,
            switches,
            statistics=tuple(x[piece] for x in statistics) if timed and statistics else statistics,
            valid=None if valid is None else valid[piece],
            bptt=bptt,
            use_reentrant=False,
            preserve_rng_state=False,  # nothing inside draws numbers
            **options,
        )
        outputs.append(output)
        state = output.final
    return _join(outputs)


def _numbers(one: Any, piece: slice) -> Any:
    """Return a piece's random numbers, or the key of numbers of its own."""
    if one is None or isinstance(one, Tensor):
        return None if one is None else one[piece]
    return one.later(piece.start)


def _join(outputs: list[FilterOutput]) -> FilterOutput:
    joined: dict[str, Tensor] = {}
    for name in _TIMED:
        parts = [getattr(output, name) for output in outputs]
        if isinstance(parts[0], Tensor):
            joined[name] = torch.cat(parts)
    whole = outputs[-1]._replace(**joined)
    if "step_count" not in joined:
        return whole
    mean, variance, count = pool(
        *(joined[f"step_{name}"] for name in ("mean", "variance", "count"))
    )
    return whole._replace(mean=mean, variance=variance, count=count)
