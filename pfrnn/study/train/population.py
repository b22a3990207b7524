"""A population: the stacked state of members that train side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pfrnn.study.train.flat import Flat
from pfrnn.study.train.members import Member
from pfrnn.study.train.optimiser import Stacked


@dataclasses.dataclass
class Population:
    """Live members of one population; every tensor but ``clock`` has the member axis.

    A training step writes into the tensors where they lie, so that a captured step finds them;
    nothing but :meth:`take` gives a population new ones. On a GPU the parameters lie in one piece
    of memory, and so do the running means (:meth:`flatten`).

    Attributes:
        members: indices (in the block) of the live members, in stacked order.
        parameters: trained tensors.
        buffers: running batch-norm statistics.
        square_average: RMSprop's running means.
        best_parameters: parameters at each member's best validation score.
        best_buffers: buffers at the same time.
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
    best_parameters: Stacked
    best_buffers: Stacked
    epoch: int
    step: int
    updates: int
    clock: Tensor
    sums: Tensor
    finite: Tensor

    def __post_init__(self) -> None:
        if self.device.type != "cpu":
            self.flatten()

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.sums.device

    @property
    def flat(self) -> bool:
        """Whether :meth:`flatten` was done."""
        return isinstance(self.parameters, Flat)

    def flatten(self) -> None:
        """Move the parameters, and RMSprop's running means, into one piece of memory each.

        Their update then takes few operations, with the same bits. Nothing happens to a population
        for evaluation only, or of several types of numbers.
        """
        types = {value.dtype for value in self.parameters.values()}
        if self.square_average and len(types) == 1:
            self.parameters = Flat(self.parameters)
            self.square_average = Flat(self.square_average)

    def take(self, positions: Sequence[int]) -> Population:
        """Keep the members at ``positions``."""
        index = torch.tensor(list(positions), dtype=torch.long, device=self.device)
        changes: dict[str, Any] = {
            name: {key: value.index_select(0, index) for key, value in getattr(self, name).items()}
            for name in _STACKS
        }
        taken = dataclasses.replace(
            self,
            members=[self.members[place] for place in positions],
            clock=self.clock.clone(),
            sums=self.sums.index_select(1, index),
            finite=self.finite.index_select(0, index),
            **changes,
        )
        if self.flat and not taken.flat:
            taken.flatten()
        return taken

    def remember_best(self, improved: Tensor) -> None:
        """Copy the current state of members where ``improved`` (M,) into the best state."""
        for current, best in (
            (self.parameters, self.best_parameters),
            (self.buffers, self.best_buffers),
        ):
            for name, value in current.items():
                chosen = improved.view(-1, *([1] * (value.dim() - 1)))
                best[name].copy_(torch.where(chosen, value, best[name]))

    def count_step(self) -> None:
        """Count a training step on the host; the step itself moves ``clock``."""
        self.step += 1
        self.updates += 1

    def start_epoch(self) -> None:
        """Reset what is summed over an epoch."""
        self.step = 0
        self.sums.zero_()

    def trained(self) -> list[Tensor]:
        """Every tensor that a training step writes."""
        stacks = (self.parameters, self.square_average, self.buffers)
        return [
            *(value for stack in stacks for value in stack.values()),
            self.clock,
            self.sums,
            self.finite,
        ]

    def to_plain(self) -> dict[str, Any]:
        """Convert to tensors and plain data for a checkpoint."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {
            name: dict(value) if isinstance(value, dict) else value for name, value in plain.items()
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any], device: torch.device) -> Population:
        """Rebuild from a checkpoint, on ``device``."""
        moved = {
            name: {key: tensor.to(device) for key, tensor in value.items()}
            if isinstance(value, dict)
            else value.to(device)
            if isinstance(value, Tensor)
            else value
            for name, value in plain.items()
        }
        return cls(**moved)

    @classmethod
    def of_best(
        cls, members: list[int], parameters: Stacked, buffers: Stacked, device: torch.device
    ) -> Population:
        """Make a population for evaluation only from best states, (M, ...)."""
        parameters, buffers = (
            {name: value.to(device) for name, value in stack.items()}
            for stack in (parameters, buffers)
        )
        return cls(
            members=list(members),
            parameters=parameters,
            buffers=buffers,
            square_average={},
            best_parameters=parameters,
            best_buffers=buffers,
            epoch=0,
            step=0,
            updates=0,
            clock=torch.zeros((), dtype=torch.int64, device=device),
            sums=torch.zeros(3, len(members), device=device),
            finite=torch.ones(len(members), dtype=torch.bool, device=device),
        )


_STACKS = ("parameters", "buffers", "square_average", "best_parameters", "best_buffers")


def initial_state(build: Callable[[], nn.Module], seed: int) -> dict[str, Tensor]:
    """Build one model with torch's generator seeded; the global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = build()
    return {name: value.detach().clone() for name, value in network.state_dict().items()}


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
    names = {name for name, _ in build().named_parameters()}
    first = states[seeds[0]]
    stacked = {
        name: torch.stack([states[seed][name] for seed in seeds]).to(device) for name in first
    }
    parameters = {name: value for name, value in stacked.items() if name in names}
    buffers = {name: value for name, value in stacked.items() if name not in names}
    return Population(
        members=[member.number for member in members],
        parameters=parameters,
        buffers=buffers,
        square_average={name: torch.zeros_like(value) for name, value in parameters.items()},
        # Copies: a step writes into the parameters.
        best_parameters={name: value.clone() for name, value in parameters.items()},
        best_buffers={name: value.clone() for name, value in buffers.items()},
        epoch=1,
        step=0,
        updates=0,
        clock=torch.zeros((), dtype=torch.int64, device=device),
        sums=torch.zeros(3, len(members), device=device),
        finite=torch.ones(len(members), dtype=torch.bool, device=device),
    )
