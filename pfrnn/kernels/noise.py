"""The key of the filter's random numbers, and tensors filled with the very same numbers."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pfrnn.errors import ConfigError
from pfrnn.kernels.ground import padded_units
from pfrnn.kernels.philox import fill_normal_kernel, fill_uniform_kernel


class NoiseKey(NamedTuple):
    """What the numbers of a run derive from, on the device, so that a CUDA graph can replay.

    Attributes:
        seeds: (M,) int64, one a member.
        step: (1,) int64, the training step (or evaluation pass); a new one gives new numbers.
    """

    seeds: Tensor
    step: Tensor

    def later(self, steps: int) -> NoiseKey:
        """Return the key of other numbers, those of ``steps`` training steps later."""
        return NoiseKey(self.seeds, self.step + steps)


def noise_key(seeds: list[int], step: int = 0, device: torch.device | str = "cuda") -> NoiseKey:
    """Make a key from members' seeds in [0, 2**63)."""
    return NoiseKey(
        torch.tensor(seeds, dtype=torch.int64, device=device),
        torch.tensor([step], dtype=torch.int64, device=device),
    )


def fill_normal(key: NoiseKey, steps: int, sequences: int, particles: int, units: int) -> Tensor:
    """Return (T, M, N, K, H) standard normals, those that the fused kernels draw for this key.

    Raises:
        ConfigError: the sizes pass the counter's 32 bits a step and member.
    """
    rows = sequences * particles
    if rows * ((units + 3) // 4) >= 2**31:
        raise ConfigError(f"noise: {rows} rows of {units} units a step pass the counter's 31 bits")
    members = key.seeds.shape[0]
    shape = (steps, members, sequences, particles, units)
    out = torch.empty(shape, device=key.seeds.device)
    tile = 32
    grid = (-(-rows // tile), members, steps)
    fill_normal_kernel[grid](
        out, key.seeds, key.step, members, sequences, K=particles, H=units,
        HP=padded_units(units), R=tile,
    )  # fmt: skip
    return out


def fill_uniform(key: NoiseKey, steps: int, sequences: int, particles: int) -> Tensor:
    """Return (T, M, N, K) uniforms in [0, 1)."""
    members, rows = key.seeds.shape[0], sequences * particles
    out = torch.empty(steps, members, sequences, particles, device=key.seeds.device)
    tile = 256
    grid = (-(-rows // (4 * tile)), members, steps)
    fill_uniform_kernel[grid](out, key.seeds, key.step, members, rows, R=tile)
    return out
