"""PF-LSTM and PF-GRU cells: one step, and a run over a sequence."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pfrnn.functional.pf_gru import PFGRUWeights, pf_gru_step
from pfrnn.functional.pf_lstm import PFLSTMWeights, pf_lstm_step
from pfrnn.functional.sequence import Step
from pfrnn.functional.types import FilterOutput, PFState
from pfrnn.nn import dispatch
from pfrnn.nn.checkpointing import run_in_pieces
from pfrnn.nn.inputs import check_input
from pfrnn.nn.parameters import ParticleParameters


@functools.cache
def compiled(step: Step, backend: str) -> Step:
    """Return the compiled step, the same one for all cells; it recompiles for other sizes."""
    return torch.compile(step, backend=backend)


class ParticleCell(ParticleParameters):
    """A cell that runs; use :class:`PFLSTMCell` or :class:`PFGRUCell`.

    Arguments: see :class:`pfrnn.nn.parameters.ParticleParameters`.
    """

    step: Step
    # Backend of torch.compile for the step, or None. Compiling the step rather than the whole
    # layer takes seconds instead of minutes, and serves sequences of every length.
    compile_backend: str | None = None

    def unroll(
        self,
        x: Tensor,
        state: PFState | None = None,
        noise: Tensor | None = None,
        uniforms: Tensor | None = None,
        *,
        valid: Tensor | None = None,
        bptt: int | None = None,
        num_particles: int | None = None,
        particles: bool = True,
        belief: bool = False,
        update: bool = True,
        checkpoint_every: int | None = None,
        generator: torch.Generator | None = None,
    ) -> FilterOutput:
        """Run the filter over a sequence.

        Args:
            x: (T, ..., N, input_size).
            state: before the first step; :meth:`initial_state` when None.
            noise: (T, ..., N, K, H) standard normal; drawn when None.
            uniforms: (T, ..., N, K) in [0, 1); drawn when None.
            valid: (T, ..., N) bool; False for padding.
            bptt: cut the gradient of the carried state every so many steps.
            num_particles: K of a new state; the cell's own when None. A given state has its own.
            particles: return the particles of all steps.
            belief: return the mean particle of all steps.
            update: in training, move the running statistics (once).
            checkpoint_every: keep the states between pieces of so many steps only, and compute the
                pieces again in the backward pass: less memory for a third more time. With ``bptt``
                a multiple of it.
            generator: that draws noise and uniforms, on the input's device; torch's default one
                when None.

        Returns:
            See :class:`FilterOutput`; ``belief`` is None unless asked for.

        Randomness:
            Noise and uniforms that are not given come from ``generator``. A new state with
            ``initial_state="uniform"`` comes from torch's default generator.

        Raises:
            ConfigError: T is 0, ``bptt`` or ``checkpoint_every`` is not an int of at least 1, or
                the cell can't take the number of particles.
            RuntimeError: another number of features.
            ValueError: tensors that don't fit each other, or another dtype than the weights'.
        """
        check_input(x, self.input_size, self.weight_observation)
        steps, sequences = x.shape[0], x.shape[-2]
        if valid is not None:
            # NaN in padding times a gradient of 0 would be NaN in the weights' gradients.
            x = torch.where(valid.unsqueeze(-1), x, 0.0)
        if state is None:
            state = self.initial_state(sequences, num_particles)
        count = self.particles_for(state.hidden.shape[-2])
        step = type(self).step
        if self.compile_backend is not None:
            step = compiled(step, self.compile_backend)
        run, noise, uniforms = dispatch.loop(self, step, x, count, noise, uniforms, generator)
        learn = self.running is not None and self.training
        given = None if self.running is None or learn else self.running.given(steps)
        if checkpoint_every is not None:
            run = functools.partial(run_in_pieces, run, checkpoint_every)
        output = run(
            self.project(x),
            state,
            noise,
            uniforms,
            self.weights(),
            self.switches,
            statistics=given,
            valid=valid,
            bptt=bptt,
            particles=particles,
            belief=belief,
        )
        if self.running is not None and learn and update:
            self.running.update(output)
        return output

    def forward(
        self,
        x: Tensor,
        state: PFState | None = None,
        noise: Tensor | None = None,
        uniforms: Tensor | None = None,
    ) -> PFState:
        """Advance by one step, as torch.nn.LSTMCell does.

        In training every call moves the running batch-norm statistics; a loop over time should
        rather call :meth:`unroll`, which moves them once.

        Args:
            x: (N, input_size), or (input_size,) for one sequence.
            state: from the last step; :meth:`initial_state` when None.
            noise: (N, K, H); drawn when None.
            uniforms: (N, K) in [0, 1); drawn when None.

        Returns:
            The state after the step: hidden (N, K, H), cell likewise for a PF-LSTM, log-weights
            (N, K); without N for one sequence.

        Randomness:
            As :meth:`unroll`.

        Raises:
            ValueError: x is neither 1-D nor 2-D, or tensors that don't fit each other.
            RuntimeError: x has another number of features.
        """
        if x.dim() not in (1, 2):
            name = type(self).__name__
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {x.dim()}D instead")
        alone = x.dim() == 1
        if alone:
            x, noise, uniforms = (None if one is None else one.unsqueeze(0)
                                  for one in (x, noise, uniforms))  # fmt: skip
            state = None if state is None else _map(state, lambda part: part.unsqueeze(0))
        output = self.unroll(
            x.unsqueeze(0),
            state,
            None if noise is None else noise.unsqueeze(0),
            None if uniforms is None else uniforms.unsqueeze(0),
            particles=False,
        )
        return _map(output.final, lambda part: part.squeeze(0)) if alone else output.final

    if TYPE_CHECKING:
        __call__ = forward


def _map(state: PFState, change: Any) -> PFState:
    return PFState(*(None if part is None else change(part) for part in state))


class PFLSTMCell(ParticleCell):
    """The PF-LSTM cell (the paper, section "PF-LSTMs and PF-GRUs").

    Arguments: see :class:`pfrnn.nn.parameters.ParticleParameters`.

    Example:
        >>> cell = PFLSTMCell(3, 8, num_particles=5)
        >>> cell(torch.zeros(2, 3)).hidden.shape
        torch.Size([2, 5, 8])
    """

    step = staticmethod(pf_lstm_step)
    blocks = 5
    has_cell = True

    def _add_recurrent(self) -> None:
        self.weight_recurrent = self._new(self.hidden_size, 5 * self.hidden_size)

    def weights(self) -> PFLSTMWeights:
        """Return the weights that :func:`pfrnn.functional.pf_lstm_step` reads."""
        return PFLSTMWeights(
            self.weight_recurrent, self.weight_observation, self.norm_gain, self.norm_shift
        )


class PFGRUCell(ParticleCell):
    """The PF-GRU cell (the paper's appendix).

    Arguments: see :class:`pfrnn.nn.parameters.ParticleParameters`.

    Example:
        >>> cell = PFGRUCell(3, 8, num_particles=5)
        >>> cell(torch.zeros(2, 3)).log_weights.shape
        torch.Size([2, 5])
    """

    step = staticmethod(pf_gru_step)
    blocks = 4
    has_cell = False
    weight_candidate: nn.Parameter
    bias_candidate: nn.Parameter | None

    def _add_recurrent(self) -> None:
        size, inner = self.hidden_size, self.options.gru_noise == "reset"
        self.weight_recurrent = self._new(size, (2 if inner else 3) * size)
        self.weight_candidate = self._new(size, (2 if inner else 1) * size)
        needs_bias = self.options.reset_after and self.bias_enabled
        self.bias_candidate = self._new(size) if needs_bias else None

    def weights(self) -> PFGRUWeights:
        """Return the weights that :func:`pfrnn.functional.pf_gru_step` reads."""
        return PFGRUWeights(
            self.weight_recurrent,
            self.weight_candidate,
            self.weight_observation,
            self.norm_gain,
            self.norm_shift,
            self.bias_candidate,
        )
