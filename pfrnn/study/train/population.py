"""A population: the stacked state of members that train side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pfrnn.functional.batch_norm import Known, Statistics, update_running
from pfrnn.kernels.graph import mapped
from pfrnn.study.train.flat import Flat, updates_by_kernel
from pfrnn.study.train.members import Member
from pfrnn.study.train.optimiser import Stacked

# Weight of a new batch in the running batch-norm statistics, once 1/n has fallen below it.
_MOMENTUM = 0.1
_RUNNING = "core.cell.running"


class Weights(NamedTuple):
    """What a network computes with: parameters and batch-norm statistics, name -> (M, ...)."""

    parameters: Stacked
    buffers: Stacked

    def at(self, place: int) -> Weights:
        """Copy one member's to the CPU, without the member axis."""
        one: Weights = mapped(self, lambda value: value[place].detach().cpu().clone())
        return one

    def only(self, place: int) -> Weights:
        """One member's, as a population of one."""
        one: Weights = mapped(self, lambda value: value[place : place + 1])
        return one

    def to(self, device: torch.device) -> Weights:
        """Move them to a device."""
        moved: Weights = mapped(self, lambda value: value.to(device))
        return moved


def stacked(weights: Sequence[Weights]) -> Weights:
    """Stack members' own weights."""
    return Weights(
        *({k: torch.stack([one[kind][k] for one in weights]) for k in weights[0][kind]}
          for kind in (0, 1))
    )  # fmt: skip


@dataclasses.dataclass
class Population:
    """Live members of one population; every tensor but ``clock`` has the member axis.

    A training step writes into the tensors where they lie, so that a captured step finds them;
    nothing but :meth:`take` gives a population new ones. Where a kernel updates them, the
    parameters lie in one piece of memory, and so do the running means.

    Attributes:
        members: indices (in the block) of the live members, in stacked order.
        parameters: trained tensors.
        buffers: running batch-norm statistics.
        square_average: RMSprop's running means.
        best: weights at each member's best validation score.
        epoch: epoch in progress, from 1.
        step: steps done in this epoch.
        updates: steps done in all.
        clock: () int64, ``updates`` on the device, for a step that can't ask the host.
        sums: (3, M): sums over this epoch's steps of loss times sequences, sequences, gradient
            norm.
        finite: bool (M,), False once a loss or gradient was not finite.
    """

    members: list[int]
    parameters: Stacked
    buffers: Stacked
    square_average: Stacked
    best: Weights
    epoch: int
    step: int
    updates: int
    clock: Tensor
    sums: Tensor
    finite: Tensor

    def __post_init__(self) -> None:
        if updates_by_kernel(self.parameters, self.device):
            self.parameters = Flat(self.parameters)
            self.square_average = Flat(self.square_average)

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.sums.device

    @property
    def current(self) -> Weights:
        """Weights as they are now."""
        return Weights(self.parameters, self.buffers)

    def take(self, positions: Sequence[int]) -> Population:
        """Keep the members at ``positions``."""
        index = torch.tensor(list(positions), dtype=torch.long, device=self.device)

        def kept(stack: Stacked) -> Stacked:
            return {name: value.index_select(0, index) for name, value in stack.items()}

        return dataclasses.replace(
            self,
            members=[self.members[place] for place in positions],
            parameters=kept(self.parameters),
            buffers=kept(self.buffers),
            square_average=kept(self.square_average),
            best=Weights(*map(kept, self.best)),
            clock=self.clock.clone(),
            sums=self.sums.index_select(1, index),
            finite=self.finite.index_select(0, index),
        )

    def remember_best(self, improved: Tensor) -> None:
        """Copy the current weights of members where ``improved`` (M,) into the best ones."""
        for current, best in zip(self.current, self.best, strict=True):
            for name, value in current.items():
                chosen = improved.view(-1, *([1] * (value.dim() - 1)))
                best[name].copy_(torch.where(chosen, value, best[name]))

    def moved_statistics(self, own: Statistics | Known | None) -> list[tuple[Tensor, Tensor]]:
        """Move the running batch-norm statistics of each time step towards the batch's.

        The n-th update weighs 1/n until that falls to 0.1, so that a short training isn't judged
        on statistics that still remember their start.

        Returns:
            Pairs of what the population holds for the batch's time steps, and its new value.
        """
        if own is None:
            return []
        steps = len(own.mean)
        mean, variance = (self.buffers[f"{_RUNNING}.{name}"] for name in ("mean", "variance"))
        old = (mean[..., :steps, :], variance[..., :steps, :])
        # A number on the host: an argument of the addition, which no copy follows.
        one = torch.ones((), dtype=torch.float64)
        momentum = (self.clock + one).reciprocal().clamp(min=_MOMENTUM)
        moved: Statistics | Known = own._replace(
            mean=own.mean.movedim(0, -2), variance=own.variance.movedim(0, -2)
        )
        if isinstance(moved, Statistics):
            moved = moved._replace(count=moved.count.movedim(0, -1))
        new = update_running(old, moved, momentum.to(old[0].dtype))
        return list(zip(old, new, strict=True))

    def count_step(self) -> None:
        """Count a training step on the host; the step itself moves ``clock``."""
        self.step += 1
        self.updates += 1

    def start_epoch(self) -> None:
        """Begin the next epoch: what is summed over one is zero again."""
        self.epoch += 1
        self.step = 0
        self.sums.zero_()

    def to_plain(self) -> dict[str, Any]:
        """Convert to tensors and plain data for a checkpoint."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        stacks = {name: dict(plain[name]) for name in ("parameters", "square_average")}
        return plain | stacks | {"best": list(self.best)}

    @classmethod
    def from_plain(cls, plain: dict[str, Any], device: torch.device) -> Population:
        """Rebuild from a checkpoint, on ``device``."""
        moved = mapped(plain, lambda tensor: tensor.to(device))
        return cls(**moved | {"best": Weights(*moved["best"])})


def initial_state(build: Callable[[], nn.Module], seed: int) -> dict[str, Tensor]:
    """Build one model with torch's generator seeded; the global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = build()
    return {name: value.detach().clone() for name, value in network.state_dict().items()}


def split_state(build: Callable[[], nn.Module], state: dict[str, Tensor]) -> Weights:
    """Split a (stacked) state dict into trained parameters and buffers."""
    learned = {name for name, _ in build().named_parameters()}
    return Weights(
        {name: value for name, value in state.items() if name in learned},
        {name: value for name, value in state.items() if name not in learned},
    )


def new_population(
    build: Callable[[], nn.Module], members: Sequence[Member], device: torch.device
) -> Population:
    """Initialise every member from its own seed and stack them.

    Args:
        build: makes one model; called once a distinct seed.
        members: the block's members.
        device: where the stacked tensors go.
    """
    seeds = [member.seed for member in members]
    states = {seed: initial_state(build, seed) for seed in dict.fromkeys(seeds)}
    start = split_state(
        build,
        {
            name: torch.stack([states[seed][name] for seed in seeds]).to(device)
            for name in states[seeds[0]]
        },
    )
    return Population(
        members=[member.number for member in members],
        parameters=start.parameters,
        buffers=start.buffers,
        square_average={name: torch.zeros_like(v) for name, v in start.parameters.items()},
        # Copies: a step writes into the parameters.
        best=mapped(start, torch.clone),
        epoch=1,
        step=0,
        updates=0,
        clock=torch.zeros((), dtype=torch.int64, device=device),
        sums=torch.zeros(3, len(members), device=device),
        finite=torch.ones(len(members), dtype=torch.bool, device=device),
    )
