"""PFLSTM and PFGRU: particle filter layers with the contract of torch.nn.LSTM and torch.nn.GRU."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from pfrnn.errors import ConfigError
from pfrnn.functional.types import FilterOutput, PFState
from pfrnn.functional.uniforms import check_uniforms
from pfrnn.nn.arguments import check_bool, check_dropout, check_particles, check_sizes
from pfrnn.nn.cells import ParticleCell, PFGRUCell, PFLSTMCell
from pfrnn.nn.inputs import (
    Sequences,
    arrange,
    arrange_state,
    check_kind,
    check_numbers,
    layout,
    restore,
)
from pfrnn.nn.options import CellOptions, refuse_unsupported
from pfrnn.nn.settings import Settled
from pfrnn.nn.state import layer_of, squeeze_batch, stack_layers


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


class ParticleLayer(Settled):
    """What the layers share; use :class:`PFLSTM` or :class:`PFGRU`.

    Layer l + 1 reads the mean particle of layer l, so that a stack stays as cheap as its parts.
    After construction ``num_particles``, ``options``, ``batch_first`` and ``dropout`` may be set;
    the settings that parameters follow from refuse a new value (AttributeError), and so does a
    cell of the layer set apart from the others.

    Reserved names, which a subclass can't use for attributes of its own: ``input_size``,
    ``hidden_size``, ``num_layers``, ``bias``, ``bidirectional``, ``proj_size``, ``fidelity`` and
    the options' ``alpha``, ``resampling``, ``ess_threshold``, ``batch_norm``, ``activation``,
    ``noise_scale``, ``initial_state``, ``gate_features``, ``gru_noise``, ``reset_after``,
    ``statistics``, ``max_steps``, ``momentum`` and ``norm_eps``.

    Args:
        input_size: features of x, at least 1.
        hidden_size: H, at least 1.
        num_layers: layers on top of each other, at least 1.
        bias: whether the cells have biases.
        batch_first: input and output are (N, T, ...) instead of (T, N, ...). States are not
            affected.
        dropout: probability, in [0, 1], of dropout on the output of every layer but the last.
        bidirectional: False, torch.nn.LSTM's default; True is refused.
        proj_size: 0, torch.nn.LSTM's default; another number is refused.
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
        TypeError: an argument or an option of the wrong type.
        ValueError: an argument out of range, as torch.nn.LSTM says it.
        ConfigError: an unknown option or choice, or an option out of range.
    """

    _settled = frozenset(
        (
            "input_size",
            "hidden_size",
            "num_layers",
            "bias",
            "bidirectional",
            "proj_size",
            "fidelity",
            *CellOptions._fields,
        )
    )
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
        fidelity: str = "paper",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        check_sizes(input_size, hidden_size, num_layers, bias, batch_first, dropout)
        refuse_unsupported(bidirectional, proj_size)
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
        self._take_in_cells()
        self._built = True

    def _take_in_cells(self) -> None:
        for layer in range(self.num_layers):
            self._cell(layer)._join(type(self).__name__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._take_in_cells()

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; what may be set after construction is checked as it was there.

        Raises:
            AttributeError: a settled one to a new value, after construction.
            TypeError: ``batch_first`` to what is no bool.
            ValueError: ``dropout`` to what is no number in [0, 1].
        """
        if name == "batch_first":
            check_bool(name, value)
        if name == "dropout":
            check_dropout(value)
        super().__setattr__(name, value)

    @property
    def num_particles(self) -> int:
        """K of all cells; a call may take another number.

        Raises:
            TypeError: set to what is no whole number.
            ConfigError: set below 1, or to another number with batch norm per particle slot.
        """
        return self._cell(0).num_particles

    @num_particles.setter
    def num_particles(self, count: int) -> None:
        options = self.options
        for layer in range(self.num_layers):  # alike, so that the first refuses or none
            self._cell(layer)._follow(count, options)

    @property
    def options(self) -> CellOptions:
        """The options that all cells share.

        Set as a whole, ``layer.options = layer.options._replace(alpha=0.3)``: those that only a
        step's arithmetic reads may change, ``alpha``, ``resampling``, ``ess_threshold``,
        ``activation``, ``noise_scale``, ``initial_state``, ``momentum`` and ``norm_eps``.

        Raises:
            TypeError: set to what is no CellOptions, or has an option of the wrong type.
            ConfigError: set to a value out of range, or another one that parameters follow from.
        """
        return self._cell(0).options

    @options.setter
    def options(self, options: CellOptions) -> None:
        for layer in range(self.num_layers):
            self._cell(layer)._follow(self._cell(layer).num_particles, options)

    def _cell(self, layer: int) -> ParticleCell:
        cell = self.cells[layer]
        if not isinstance(cell, ParticleCell):
            raise ConfigError(f"cells.{layer}: expected a particle cell, got {type(cell).__name__}")
        return cell

    def flatten_parameters(self) -> None:
        """Do nothing: code written for torch.nn.LSTM calls this; there is no cuDNN buffer here."""

    def compile_step(self, backend: str | None = "inductor") -> None:
        """Compile the step of every cell (torch.compile) at its next call; None stops that.

        The first call with new sizes takes some seconds; then a step is about twice as fast on a
        CPU. For the whole layer in one graph call ``torch.compile(layer, fullgraph=True)``, whose
        compile time grows with the number of steps.

        Raises:
            TypeError: the backend is neither a name, a function nor None.
        """
        if backend is not None and not isinstance(backend, str) and not callable(backend):
            raise TypeError(
                "backend: expected a name that torch.compile takes, a function or None, "
                f"got {backend!r}"
            )
        for layer in range(self.num_layers):
            self._cell(layer).compile_backend = backend

    def reset_parameters(self) -> None:
        """Draw all parameters again, as torch.nn.LSTM does; reset the running statistics.

        Randomness:
            From torch's default generator.
        """
        for layer in range(self.num_layers):
            self._cell(layer).reset_parameters()

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Any = None,
        *,
        num_particles: int | None = None,
        noise: Tensor | None = None,
        uniforms: Tensor | None = None,
        bptt: int | None = None,
    ) -> tuple[Tensor | PackedSequence, PFState]:
        """Return the mean particle at every step, and the final state.

        Args:
            input: (T, N, input_size), (N, T, input_size) with ``batch_first``,
                (T, input_size) for one sequence, or a PackedSequence.
            hx: a state that a layer returned (also as a plain tuple of its three parts), or one
                of torch.nn.LSTM's (torch.nn.GRU's) shape, which is given to every particle; None
                starts anew.
            num_particles: K of this call; when None the number of ``hx`` if that has particles,
                else the layer's own.
            noise: (num_layers, T, N, K, H) standard normal; drawn when None.
            uniforms: (num_layers, T, N, K) in [0, 1); drawn when None.
            bptt: cut the gradient of the carried state every so many steps.

        Returns:
            The output, (T, N, H) in the input's form, and the state (num_layers, N, K, H),
            (num_layers, K, H) for one sequence.

        Randomness:
            Noise and uniforms that are not given come from torch's default generator, in
            evaluation too: a filter is stochastic. So do dropout between layers in training, and
            a new state with ``initial_state="uniform"``.

        Raises:
            TypeError: ``input``, noise or uniforms are no tensors, ``hx`` is no state, or
                ``num_particles`` no whole number.
            ValueError: as torch.nn.LSTM; a state or noise of another dtype than the weights'
                (autocast converts half precision and float32 by itself); noise or uniforms of
                another shape; uniforms outside
                [0, 1) (looked at on the CPU in eager mode: elsewhere a look costs too much, and
                they are taken as the nearest in it).
            ConfigError: ``num_particles`` is below 1 or, with batch norm per particle slot,
                another than the layer's; ``bptt`` is no whole number from 1.
            RuntimeError: as torch.nn.LSTM, or ``num_particles`` is not the number of ``hx``.
        """
        given, run, state = self._run(input, hx, num_particles, noise, uniforms, bptt, False)
        if run.belief is None:
            raise ConfigError("the filter returned no belief; report this")
        return restore(run.belief, given, self.batch_first), state

    def filter(
        self,
        input: Tensor | PackedSequence,
        hx: Any = None,
        *,
        num_particles: int | None = None,
        noise: Tensor | None = None,
        uniforms: Tensor | None = None,
        bptt: int | None = None,
    ) -> Filtered:
        """Return particles, log-weights, ancestors and ESS of the last layer at every step.

        Arguments, randomness and errors: as :meth:`forward`.

        Returns:
            See :class:`Filtered`. The mean particle that :meth:`forward` returns is the sum of
            ``particles`` weighted with ``log_weights.exp()``.
        """
        given, run, state = self._run(input, hx, num_particles, noise, uniforms, bptt, True)
        if run.hidden is None:
            raise ConfigError("the filter returned no particles; report this")
        form = (given.batched, self.batch_first)
        return Filtered(
            layout(run.hidden, *form),
            layout(run.log_weights, *form),
            layout(run.ancestors, *form),
            layout(run.ess, *form),
            state,
            None if given.valid is None else layout(given.valid, *form),
        )

    def _run(
        self,
        x: Tensor | PackedSequence,
        hx: Any,
        num_particles: int | None,
        noise: Tensor | None,
        uniforms: Tensor | None,
        bptt: int | None,
        particles: bool,
    ) -> tuple[Sequences, FilterOutput, PFState]:
        name, like = type(self).__name__, self._cell(0).weight_observation
        given = arrange(x, name, self.input_size, self.batch_first, like)
        count = self.num_particles if num_particles is None else num_particles
        check_particles(count)
        state = None
        if hx is not None:
            expected = (self.num_layers, given.data.shape[1], self.hidden_size)
            state = arrange_state(hx, given.batched, expected, count, self._cell(0).has_cell, like)
            if num_particles is None:
                count = state.hidden.shape[-2]
        # All layers' before the first moves its running statistics.
        shape = (self.num_layers, *given.data.shape[:2], count)
        check_numbers("noise", noise, "(num_layers, T, N, K, H)", (*shape, self.hidden_size), like)
        check_numbers("uniforms", uniforms, "(num_layers, T, N, K)", shape, like)
        check_kind("noise", noise, like)
        check_uniforms(uniforms)
        data, finals = given.data, []
        for layer in range(self.num_layers):
            last = layer == self.num_layers - 1
            run = self._cell(layer).unroll(
                data,
                None if state is None else layer_of(state, layer),
                None if noise is None else noise[layer],
                None if uniforms is None else uniforms[layer],
                valid=given.valid,
                bptt=bptt,
                num_particles=num_particles,
                particles=particles and last,
                belief=not (particles and last),
            )
            finals.append(run.final)
            if not last and run.belief is not None:
                data = F.dropout(run.belief, self.dropout, self.training)
        final = stack_layers(finals)
        return given, run, final if given.batched else squeeze_batch(final)

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

    Arguments and reserved names: see :class:`ParticleLayer`.

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

    Arguments and reserved names: see :class:`ParticleLayer`. ``reset_after=True`` takes torch's
    form of the reset gate instead of the paper's.

    Example:
        >>> output, state = PFGRU(4, 8, num_particles=10)(torch.zeros(5, 2, 4))
        >>> output.shape, state.cell
        (torch.Size([5, 2, 8]), None)
    """

    cell_class = PFGRUCell
