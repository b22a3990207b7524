"""Parameters of a particle cell: projection, weights, initial state, random draws.

A cell is written for one model. Its methods read parameters of shape (in, out) or, swapped in by
``torch.func.functional_call``, stacked ones of shape (M, in, out): a population of M models.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pfrnn.errors import ConfigError
from pfrnn.functional.linear import LEAKY_SLOPE, affine
from pfrnn.functional.types import FilterSwitches, PFState
from pfrnn.functional.weights import uniform_log_weights
from pfrnn.nn.inputs import check_particles, check_sizes
from pfrnn.nn.options import CellOptions, Fidelity, Options, check_change, resolve
from pfrnn.nn.statistics import RunningStatistics


class ParticleParameters(nn.Module):
    """What PF-LSTM and PF-GRU cells own: their parameters and what is derived from them.

    Args:
        input_size: features of x, at least 1.
        hidden_size: H, at least 1.
        bias: whether the blocks and f_obs have biases.
        num_particles: K, at least 1; may be changed at call time unless batch norm is per particle
            slot.
        fidelity: preset of the options, ``paper`` or ``authors_code``.
        device: of the parameters.
        dtype: of the parameters.
        **options: fields of :class:`pfrnn.nn.CellOptions`, laid over the preset.

    Randomness:
        Parameters are drawn from torch's default generator.

    Raises:
        TypeError: an argument or an option of the wrong type, or an unknown option.
        ValueError: a size below 1.
        ConfigError: an unknown choice, or a number out of range.
    """

    blocks: int
    has_cell: bool
    weight_recurrent: nn.Parameter

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        *,
        num_particles: int,
        fidelity: Fidelity = "paper",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__()
        check_sizes(input_size, hidden_size, bias=bias)
        check_particles(num_particles)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias_enabled = bias
        self.num_particles = num_particles
        self.fidelity = fidelity
        self._options = resolve(fidelity, options)
        self._factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self._add_projection()
        self._add_recurrent()
        self.weight_observation = self._new(hidden_size)
        self._add_norm()
        self.reset_parameters()

    @property
    def options(self) -> CellOptions:
        """All options of the cell.

        Set as a whole, ``cell.options = cell.options._replace(alpha=0.3)``: those that only a
        step's arithmetic reads may change, ``alpha``, ``resampling``, ``ess_threshold``,
        ``activation``, ``noise_scale``, ``initial_state``, ``momentum`` and ``norm_eps``.

        Raises:
            TypeError: an option of the wrong type.
            ConfigError: set to a value out of range, or another one that parameters follow from.
        """
        return self._options

    @options.setter
    def options(self, options: CellOptions) -> None:
        check_change(self._options, options)
        self._options = options
        if self.running is not None:
            self.running.momentum = options.momentum

    @property
    def switches(self) -> FilterSwitches:
        """The options that a step reads."""
        return self._options.switches()

    def _new(self, *shape: int) -> nn.Parameter:
        return nn.Parameter(torch.empty(shape, **self._factory))

    def _add_projection(self) -> None:
        features = self.options.gate_features
        rows = self.input_size if features is None else features
        width = self.blocks * self.hidden_size
        one = 1 if features is None else 0  # the column of f_obs stands beside or by itself
        self.weight_input = self._new(rows, width + one)
        self.bias = self._new(width + 1) if self.bias_enabled else None
        self.weight_control = self.bias_control = None
        self.weight_sense = self.bias_sense = self.weight_sensed = None
        if features is not None:
            self.weight_control = self._new(self.input_size, features)
            self.weight_sense = self._new(self.input_size, features)
            self.weight_sensed = self._new(features, 1)
            if self.bias_enabled:
                self.bias_control, self.bias_sense = self._new(features), self._new(features)

    def _add_recurrent(self) -> None:
        raise NotImplementedError("a subclass adds its recurrent weights")

    def _add_norm(self) -> None:
        mode = self.options.batch_norm
        self.norm_gain = self.norm_shift = self.running = None
        if mode == "none":
            return
        channels = self.hidden_size if mode == "feature" else self.num_particles
        self.norm_gain, self.norm_shift = self._new(channels), self._new(channels)
        sets = self.options.max_steps if self.options.statistics == "per_time" else None
        self.running = RunningStatistics(channels, sets, self.options.momentum, **self._factory)

    def reset_parameters(self) -> None:
        """Draw all weights and biases from U(-1/sqrt(H), 1/sqrt(H)), as torch.nn.LSTM does.

        Batch norm starts at gain 1 and shift 0, its running statistics at mean 0, variance 1.

        Randomness:
            From torch's default generator.
        """
        bound = 1.0 / math.sqrt(self.hidden_size)
        for name, parameter in self.named_parameters():
            if name == "norm_gain":
                nn.init.ones_(parameter)
            elif name == "norm_shift":
                nn.init.zeros_(parameter)
            else:
                nn.init.uniform_(parameter, -bound, bound)
        if self.running is not None:
            self.running.reset_running_stats()

    def weights(self) -> NamedTuple:
        """Return the weights that the step reads."""
        raise NotImplementedError("a subclass says which weights its step reads")

    def project(self, x: Tensor) -> Tensor:
        """Return the input's share of the blocks and of f_obs, for any number of steps at once.

        Args:
            x: (..., N, input_size), or (T, ..., N, input_size).

        Returns:
            (..., N, blocks * H + 1), with T in front if x has it.
        """
        if self.weight_control is None or self.weight_sense is None or self.weight_sensed is None:
            return affine(x, self.weight_input, self.bias)
        control = F.leaky_relu(affine(x, self.weight_control, self.bias_control), LEAKY_SLOPE)
        sensed = F.leaky_relu(affine(x, self.weight_sense, self.bias_sense), LEAKY_SLOPE)
        gate_bias = None if self.bias is None else self.bias[..., :-1]
        sense_bias = None if self.bias is None else self.bias[..., -1:]
        gates = affine(control, self.weight_input, gate_bias)
        return torch.cat([gates, affine(sensed, self.weight_sensed, sense_bias)], dim=-1)

    def initial_state(self, sequences: int, num_particles: int | None = None) -> PFState:
        """Return the state before the first step: zeros or U[0, 1), with equal weights.

        Args:
            sequences: N.
            num_particles: K; the cell's own when None.

        Returns:
            hidden (..., N, K, H), for a PF-LSTM a cell of this shape, and log-weights (..., N, K).

        Randomness:
            ``initial_state="uniform"`` draws from torch's default generator.

        Raises:
            TypeError: ``num_particles`` is not an int.
            ConfigError: ``num_particles`` is one that the cell can't take.
        """
        count = self.particles_for(num_particles)
        like = self.weight_observation
        shape = (*like.shape[:-1], sequences, count, self.hidden_size)
        make = torch.zeros if self.options.initial_state == "zeros" else torch.rand
        made: dict[str, Any] = {"device": like.device, "dtype": like.dtype}
        hidden = make(shape, **made)
        cell = make(shape, **made) if self.has_cell else None
        log_weights = uniform_log_weights(*shape[:-1], device=like.device, dtype=self._wide())
        return PFState(hidden, cell, log_weights)

    def particles_for(self, num_particles: int | None) -> int:
        """Return a call's number of particles, the cell's own when None.

        Raises:
            TypeError: not an int.
            ConfigError: below 1, or another than the cell's with batch norm per particle slot.
        """
        count = self.num_particles if num_particles is None else num_particles
        check_particles(count)
        if self.options.batch_norm == "particle_slot" and count != self.num_particles:
            raise ConfigError(
                f"batch_norm='particle_slot' has one channel for each of {self.num_particles} "
                f"particles, so the number can't become {count}; take batch_norm='feature'"
            )
        return count

    def draw(
        self, steps: int, sequences: int, count: int, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Draw the noise and uniforms of T steps, all at once.

        Args:
            steps: T.
            sequences: N.
            count: K.
            generator: torch's default one when None.

        Returns:
            noise (T, ..., N, K, H) and uniforms (T, ..., N, K), None without resampling.
        """
        like = self.weight_observation
        shape = (steps, *like.shape[:-1], sequences, count)
        where: dict[str, Any] = {"device": like.device, "generator": generator}
        noise = torch.randn((*shape, self.hidden_size), dtype=like.dtype, **where)
        if self.options.resampling == "none":
            return noise, None
        return noise, torch.rand(shape, dtype=self._wide(), **where)

    def _wide(self) -> torch.dtype:
        """Return the type of log-weights and uniforms: at least float32."""
        return torch.promote_types(self.weight_observation.dtype, torch.float32)

    def extra_repr(self) -> str:
        """Return sizes, K and every option that differs from the paper's preset."""
        text = f"{self.input_size}, {self.hidden_size}, num_particles={self.num_particles}"
        if not self.bias_enabled:
            text += ", bias=False"
        pairs = zip(CellOptions._fields, self.options, CellOptions(), strict=True)
        return text + "".join(f", {name}={v!r}" for name, v, usual in pairs if v != usual)
