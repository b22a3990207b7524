"""How much memory a training step needs, estimated before it starts.

The unit is a tile: one float32 number for every time step, sequence, particle and hidden unit of
a member. The fused path's six tiles are measured (0.27 GiB a member at batch 64, T = 100, K = 30,
H = 64 on one H200, docs/performance.md), with a head outside the kernels; one inside saves the
hidden states' gradient, a tile. The fused plain RNNs' are the tensors that :mod:`pfrnn.kernels.rnn`
makes, and the projected input. The others are counted: what autograd saves for one step
on a CPU (PF-LSTM 13.0 to 14.4 tiles, PF-GRU 10.0 to 10.4, LSTM 12.7 to 14.8, GRU 9.3 to 10.7) and
the gradients that its backward holds beside them.
"""

from __future__ import annotations

import os

import torch

from pfrnn.errors import ConfigError
from pfrnn.kernels.ground import MAX_OUTPUTS
from pfrnn.study.train.networks import NetworkSpec, mean_of_heads

# Sets the room on any device, in GiB; for tests, and to leave memory to others.
VARIABLE = "PFRNN_MEMORY_LIMIT"
TILES = {
    ("fused particle", "lstm"): 6.0,
    ("fused particle", "gru"): 6.0,
    ("fused plain", "lstm"): 16.0,
    ("fused plain", "gru"): 12.0,
    ("particle", "lstm"): 17.0,
    ("particle", "gru"): 13.0,
    ("plain", "lstm"): 19.0,
    ("plain", "gru"): 15.0,
}
# The gradient of all hidden states, which isn't made where the head is inside the kernels.
_READ_OUT = 1.0
# Encoded inputs, their gradient, and the share of the inputs before the recurrence.
_ENCODED = 4
# Values, running means, best values, gradients, the update's temporaries.
_PARAMETERS = 10
# Fragments, and what the counts leave out.
_MARGIN = 1.25
# A library's own context and workspaces aren't ours to fill.
_SHARE = 0.9
_FLOAT = 4


def member_bytes(
    spec: NetworkSpec, sequences: int, steps: int, parameters: int, name: str, graphs: bool
) -> int:
    """Estimate the peak memory of one member's training step.

    Args:
        spec: the network.
        sequences: N of a batch.
        steps: T of the longest batch.
        parameters: trainable numbers of a member.
        name: the path's, ``fused`` or another.
        graphs: whether steps are captured: a graph keeps its memory while the first step of
            another size runs beside it.
    """
    kind = f"fused {spec.kind}" if name == "fused" else spec.kind
    cell = steps * sequences * spec.hidden * max(spec.particles, 1)
    inputs = steps * sequences * (spec.inputs + _ENCODED * spec.encoder)
    tiles = TILES[kind, spec.cell]
    if kind == "fused particle" and reads_out(spec):
        tiles -= _READ_OUT
    numbers = tiles * cell + inputs
    step = numbers * (2 if graphs else 1)
    return int(_MARGIN * _FLOAT * (step + _PARAMETERS * parameters))


def reads_out(spec: NetworkSpec) -> bool:
    """Whether a training step's head is applied in the fused loop, and no particles leave it."""
    return mean_of_heads(spec) and spec.dropout == 0 and spec.outputs <= MAX_OUTPUTS


def room(device: torch.device, held: int = 0) -> int | None:
    """Bytes that a population may take; None where nobody knows (a CPU).

    Args:
        device: where it trains.
        held: bytes of data that lie there already, which a limit set by hand covers too.

    Raises:
        ConfigError: PFRNN_MEMORY_LIMIT is no positive number.
    """
    asked = os.environ.get(VARIABLE)
    if asked is not None:
        try:
            limit = float(asked)
        except ValueError:
            limit = 0.0
        if not limit > 0:
            raise ConfigError(f"{VARIABLE}: expected GiB, a number above 0, got {asked!r}")
        return max(0, int(limit * 2**30) - held)
    if device.type != "cuda":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    # What torch keeps for reuse is free, too.
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(_SHARE * (free + kept))


def group_sizes(members: int, each: int, available: int | None) -> list[int]:
    """Split a population into as few groups as fit, of nearly equal size, at least one member."""
    if available is None or members * each <= available:
        return [members]
    groups = -(-members // max(1, available // each))
    return [members // groups + (place < members % groups) for place in range(groups)]
