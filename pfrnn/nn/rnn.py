"""PFLSTM and PFGRU: particle filter layers with the contract of torch.nn.LSTM and torch.nn.GRU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack, overload

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from pfrnn.errors import ConfigError
from pfrnn.functional.types import FilterOutput, PFState
from pfrnn.nn.cells import ParticleCell, PFGRUCell, PFLSTMCell
from pfrnn.nn.dispatch import Path, choose
from pfrnn.nn.inputs import (
    Sequences,
    arrange,
    arrange_state,
    check_numbers,
    check_sizes,
    layout,
    restore,
)
from pfrnn.nn.options import CellOptions, Fidelity, Options
from pfrnn.nn.state import layer_of, stack_layers

# A state as a layer, torch.nn.LSTM or torch.nn.GRU returned it.
State = Tensor | Sequence[Tensor | None] | None


class CallOptions(TypedDict, total=False):
    """The keywords of a layer's call (:meth:`ParticleLayer.forward`), for type checkers."""

    num_particles: int | None
    noise: Tensor | None
    uniforms: Tensor | None
    bptt: int | None
    checkpoint_every: int | None
    generator: torch.Generator | None


class Filtered(NamedTuple):
    """All that the last layer's filter knows, at every step.

    Axes are the input's: (T, N, ...), (N, T, ...) with ``batch_first``, (T, ...) unbatched. A
    packed input gives padded axes and ``valid``; a finished sequence repeats its last state.

    Attributes:
        particles: (T, N, K, H), hidden states after resampling.
        log_weights: (T, N, K), normalised.
        ancestors: (T, N, K) int64, the particle before the step that each one continues.
        ess: (T, N), effective sample size before resampling, in [1, K].
        state: of all layers after the last step, (num_layers, N, K, H).
        valid: (T, N) bool, or None when nothing is padded.
    """

    particles: Tensor
    log_weights: Tensor
    ancestors: Tensor
    ess: Tensor
    state: PFState
    valid: Tensor | None


class ParticleLayer(nn.Module):
    """What the layers share; use :class:`PFLSTM` or :class:`PFGRU`.

    Layer l + 1 reads the mean particle of layer l, so that a stack stays as cheap as its parts.
    After construction ``num_particles``, ``options``, ``batch_first`` and ``dropout`` may be set.

    Args:
        input_size: features of x, at least 1.
        hidden_size: H, at least 1.
        num_layers: layers on top of each other, at least 1.
        bias: whether the cells have biases.
        batch_first: input and output are (N, T, ...) instead of (T, N, ...). States are not
            affected.
        dropout: probability, in [0, 1], of dropout on the output of every layer but the last.
        bidirectional: False, torch.nn.LSTM's default; True is an error.
        proj_size: 0, torch.nn.LSTM's default; another number is an error.
        num_particles: K, at least 1; a call may take another number (not with batch norm per
            particle slot).
        fidelity: preset of the options, ``paper`` or ``authors_code``.
        device: of the parameters.
        dtype: of the parameters.
        **options: fields of :class:`pfrnn.nn.CellOptions` (alpha, resampling, ess_threshold,
            batch_norm, ...), laid over the preset.

    Randomness:
        Parameters are drawn from torch's default generator, as torch.nn.LSTM's are.

    Raises:
        TypeError: an argument or an option of the wrong type, or an unknown option.
        ValueError: an argument out of range, as torch.nn.LSTM says it.
        ConfigError: an unknown choice, or an option out of range.
    """

    cell_class: type[ParticleCell]
    # Code written for torch.nn.LSTM asks for these; no other value is taken.
    bidirectional = False
    proj_size = 0

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        *,
        num_particles: int,
        fidelity: Fidelity = "paper",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__()
        check_sizes(input_size, hidden_size, num_layers, bias, batch_first, dropout)
        if bidirectional:
            raise ValueError(
                "bidirectional=True is not supported: a filter's belief at a step knows the past "
                "only; run a second layer over the reversed sequence"
            )
        if proj_size:
            raise ValueError(
                f"proj_size={proj_size} is not supported: particles keep their whole hidden state; "
                "put a torch.nn.Linear on the output"
            )
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.fidelity = fidelity
        self.cells = nn.ModuleList(
            self.cell_class(
                input_size if layer == 0 else hidden_size,
                hidden_size,
                bias,
                num_particles=num_particles,
                fidelity=fidelity,
                device=device,
                dtype=dtype,
                **options,
            )
            for layer in range(num_layers)
        )

    def _cells(self) -> list[ParticleCell]:
        return list(self.cells)  # type: ignore[arg-type]

    @property
    def num_particles(self) -> int:
        """K of all cells; a call may take another number.

        Raises:
            TypeError: set to anything but an int.
            ConfigError: set below 1, or to another number with batch norm per particle slot.
        """
        return self._cells()[0].num_particles

    @num_particles.setter
    def num_particles(self, count: int) -> None:
        for cell in self._cells():
            cell.num_particles = cell.particles_for(count)

    @property
    def options(self) -> CellOptions:
        """The options that all cells share.

        Set as a whole, ``layer.options = layer.options._replace(alpha=0.3)``: those that only a
        step's arithmetic reads may change, ``alpha``, ``resampling``, ``ess_threshold``,
        ``activation``, ``noise_scale``, ``initial_state``, ``momentum`` and ``norm_eps``.

        Raises:
            TypeError: an option of the wrong type.
            ConfigError: set to a value out of range, or another one that parameters follow from.
        """
        return self._cells()[0].options

    @options.setter
    def options(self, options: CellOptions) -> None:
        for cell in self._cells():
            cell.options = options

    def flatten_parameters(self) -> None:
        """Do nothing: code written for torch.nn.LSTM calls this; there is no cuDNN buffer here."""

    def compile_step(self, backend: str | None = "inductor") -> None:
        """Compile the step of every cell (torch.compile) at its next call; None stops that.

        The first call with new sizes takes about 14 seconds; then a training step is about 1.2
        times as fast on a CPU. For the whole layer in one graph call
        ``torch.compile(layer, fullgraph=True)``, whose compile time grows with the number of steps.
        """
        for cell in self._cells():
            cell.compile_backend = backend

    def reset_parameters(self) -> None:
        """Draw all parameters again, as torch.nn.LSTM does; reset the running statistics.

        Randomness:
            From torch's default generator.
        """
        for cell in self._cells():
            cell.reset_parameters()

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: State = None,
        *,
        num_particles: int | None = None,
        noise: Tensor | None = None,
        uniforms: Tensor | None = None,
        bptt: int | None = None,
        checkpoint_every: int | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor | PackedSequence, PFState]:
        """Return the mean particle at every step, and the final state.

        Args:
            input: (T, N, input_size), (N, T, input_size) with ``batch_first``,
                (T, input_size) for one sequence, or a PackedSequence.
            hx: a state that a layer returned (also as a plain tuple of its three parts), or one
                of torch.nn.LSTM's (torch.nn.GRU's) shape, which is given to every particle; None
                starts from the initial state.
            num_particles: K of this call; when None the number of ``hx`` if that has particles,
                else the layer's own.
            noise: (num_layers, T, N, K, H) standard normal; drawn when None.
            uniforms: (num_layers, T, N, K) in [0, 1), others count as the nearest in it; drawn
                when None.
            bptt: cut the gradient of the carried state every so many steps.
            checkpoint_every: in long sequences, keep for the backward pass only every so many
                steps' states and compute the others again: less memory, a third more time. A
                multiple of ``bptt`` if that is given.
            generator: that draws noise and uniforms, on the input's device; torch's default one
                when None.

        Returns:
            The output, (T, N, H) in the input's form, and the state (num_layers, N, K, H),
            (num_layers, K, H) for one sequence.

        Randomness:
            Noise and uniforms that are not given are drawn, in evaluation too: a filter is
            stochastic. Dropout between layers in training, and a new state with
            ``initial_state="uniform"``, come from torch's default generator.

        Raises:
            TypeError: ``input`` or ``hx`` is of another kind, or a number not an int.
            ValueError: as torch.nn.LSTM; noise or uniforms of another shape.
            ConfigError: a number below 1; with batch norm per particle slot, another number of
                particles than the layer's; ``checkpoint_every`` is not a multiple of ``bptt``.
            RuntimeError: as torch.nn.LSTM, or ``num_particles`` is not the number of ``hx``.
        """
        given = self._arrange(input)
        options = (num_particles, noise, uniforms, bptt, checkpoint_every, generator)
        run, state = self._run(given, hx, False, *options)
        if run.belief is None:
            raise ConfigError("the filter returned no belief; report this")
        return restore(run.belief, given, self.batch_first), state

    if TYPE_CHECKING:

        @overload
        def __call__(
            self, input: Tensor, hx: State = None, **options: Unpack[CallOptions]
        ) -> tuple[Tensor, PFState]: ...
        @overload
        def __call__(
            self, input: PackedSequence, hx: State = None, **options: Unpack[CallOptions]
        ) -> tuple[PackedSequence, PFState]: ...
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...  # noqa: D102

    def filter(
        self,
        input: Tensor | PackedSequence,
        hx: State = None,
        **options: Unpack[CallOptions],
    ) -> Filtered:
        """Return particles, log-weights, ancestors and ESS of the last layer at every step.

        Arguments, randomness and errors: as :meth:`forward`.

        Returns:
            See :class:`Filtered`. The mean particle that :meth:`forward` returns is the sum of
            ``particles`` weighted with ``log_weights.exp()``.
        """
        given = self._arrange(input)
        run, state = self._run(given, hx, True, **options)
        if run.hidden is None:
            raise ConfigError("the filter returned no particles; report this")
        parts = (run.hidden, run.log_weights, run.ancestors, run.ess)
        placed = [layout(part, given.batched, self.batch_first) for part in parts]
        valid = given.valid
        if valid is not None:
            valid = layout(valid, given.batched, self.batch_first)
        return Filtered(*placed, state, valid)

    def _arrange(self, x: Tensor | PackedSequence) -> Sequences:
        like = self._cells()[0].weight_observation
        return arrange(x, type(self).__name__, self.input_size, self.batch_first, like)

    def path(self, input: Tensor | PackedSequence, num_particles: int | None = None) -> Path:
        """Say how a call with this input computes its loop over time, and why.

        Args:
            input: as :meth:`forward`'s.
            num_particles: likewise.

        Example:
            >>> PFGRU(3, 8, num_particles=5).path(torch.zeros(7, 2, 3)).name
            'plain'
        """
        first = self._cells()[0]
        return choose(first, self._arrange(input).data, first.particles_for(num_particles))

    def _run(
        self,
        given: Sequences,
        hx: State,
        particles: bool,
        num_particles: int | None = None,
        noise: Tensor | None = None,
        uniforms: Tensor | None = None,
        bptt: int | None = None,
        checkpoint_every: int | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[FilterOutput, PFState]:
        """Run all layers; ``particles`` asks for the last one's particles instead of its belief."""
        first, steps_and_batch = self._cells()[0], given.data.shape[:2]
        count = first.particles_for(num_particles)
        state = None
        if hx is not None:
            expected = (self.num_layers, steps_and_batch[1], self.hidden_size)
            state = arrange_state(hx, given.batched, expected, count, first.has_cell)
            found = state.hidden.shape[-2]
            if num_particles not in (None, found):
                raise RuntimeError(
                    f"Expected a state of num_particles={num_particles} particles, got {found}; "
                    "leave num_particles out: a state has its own"
                )
            count = found
        # All layers' before the first moves its running statistics.
        shape = (self.num_layers, *steps_and_batch, count)
        check_numbers("noise", noise, "(num_layers, T, N, K, H)", (*shape, self.hidden_size))
        check_numbers("uniforms", uniforms, "(num_layers, T, N, K)", shape)
        data, finals = given.data, []
        for layer, cell in enumerate(self._cells()):
            last = layer == self.num_layers - 1
            run = cell.unroll(
                data,
                None if state is None else layer_of(state, layer),
                None if noise is None else noise[layer],
                None if uniforms is None else uniforms[layer],
                valid=given.valid,
                bptt=bptt,
                num_particles=count,
                particles=particles and last,
                belief=not (particles and last),
                checkpoint_every=checkpoint_every,
                generator=generator,
            )
            finals.append(run.final)
            if not last and run.belief is not None:
                data = F.dropout(run.belief, self.dropout, self.training)
        final = stack_layers(finals)
        if not given.batched:
            final = PFState(*(None if part is None else part.squeeze(1) for part in final))
        return run, final

    def extra_repr(self) -> str:
        """Return the constructor's arguments, as torch.nn.LSTM does."""
        text = f"{self.input_size}, {self.hidden_size}"
        usual = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0}
        for name, default in usual.items():
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text + f", num_particles={self.num_particles}, fidelity={self.fidelity!r}"


class PFLSTM(ParticleLayer):
    """Particle filter LSTM with the contract of :class:`torch.nn.LSTM`.

    Arguments: see :class:`ParticleLayer`.

    Example:
        >>> layer = PFLSTM(4, 8, batch_first=True, num_particles=10)
        >>> output, state = layer(torch.zeros(2, 5, 4))
        >>> output.shape, state.hidden.shape
        (torch.Size([2, 5, 8]), torch.Size([1, 2, 10, 8]))
        >>> layer.filter(torch.zeros(2, 5, 4)).particles.shape
        torch.Size([2, 5, 10, 8])
    """

    cell_class = PFLSTMCell


class PFGRU(ParticleLayer):
    """Particle filter GRU with the contract of :class:`torch.nn.GRU`.

    Arguments: see :class:`ParticleLayer`. ``reset_after=True`` takes torch's
    form of the reset gate instead of the paper's.

    Example:
        >>> output, state = PFGRU(4, 8, num_particles=10)(torch.zeros(5, 2, 4))
        >>> output.shape, state.cell
        (torch.Size([5, 2, 8]), None)
    """

    cell_class = PFGRUCell
