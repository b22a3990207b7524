"""The RMSprop step of a population whose tensors lie one after another in one piece of memory.

On a GPU a small tensor's update costs its kernels' launches, not its arithmetic, and every
parameter needs a dozen of them. Here all parameters are views into one buffer, RMSprop's running
means into a second one, and each operation runs once over all of them; what every member has of
its own (clip factor, learning rate, L2 weight) is spread to elements by index. The operations and
their order are :func:`pfrnn.study.train.optimiser.rmsprop`'s, so the bits are. Where the loop over
time is in kernels, so is this (:mod:`pfrnn.kernels.rmsprop`), equal to rounding.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pfrnn.kernels.ground import device_refusal
from pfrnn.study.train.optimiser import CLIP_EPSILON, Hyper, Stacked, clip_factor, gradient_norm

# Elements between which a parameter may begin: 512 bytes, as torch's allocator places tensors, so
# that products and kernels which ask for a pointer's alignment choose as they do for single ones.
ALIGNMENT = 128
# A list operation takes three lists of about this many tensors in one kernel, and gives a block
# of threads at most 65,536 elements.
_PIECES = 40


def updates_by_kernel(parameters: Tensor) -> bool:
    """Whether kernels update these parameters."""
    return (
        parameters.dtype == torch.float32
        and device_refusal(parameters.device) is None
        and importlib.util.find_spec("triton") is not None
        and os.environ.get("PFRNN_KERNELS") != "plain"
    )


class Flat(dict[str, Tensor]):
    """name -> (M, ...): contiguous views, one after another, into ``whole``.

    Attributes:
        whole: (E,), all elements, zeros between two parameters where a gap is.
    """

    def __init__(self, stack: Stacked) -> None:
        """Copy ``stack``, whose tensors have one type and device, into one piece of memory.

        Raises:
            ValueError: it is empty.
        """
        if not stack:
            raise ValueError("a flat population needs parameters, got none")
        first = next(iter(stack.values()))
        sizes = [-(-value.numel() // ALIGNMENT) * ALIGNMENT for value in stack.values()]
        self.whole = first.new_zeros(sum(sizes))
        super().__init__()
        starts = itertools.accumulate(sizes, initial=0)
        for (name, value), start in zip(stack.items(), starts, strict=False):
            self[name] = self.whole[start : start + value.numel()].view(value.shape)
            self[name].copy_(value)

    def __reduce__(self) -> tuple[type[Flat], tuple[Stacked]]:
        """Copies and pickles are put together anew: views alone would come apart from ``whole``."""
        return Flat, (dict(self),)


class FlatUpdate(NamedTuple):
    """Result of one update, not yet written.

    Attributes:
        values: (E,), new parameters, and
        squares: (E,), new running means, of members that move.
        mask: bool, (E,) or (1,): elements of members that move.
        gradient_norm: (M,), before clipping.
        moves: bool (M,): alive, and the gradient's norm is finite.
    """

    values: Tensor
    squares: Tensor
    mask: Tensor
    gradient_norm: Tensor
    moves: Tensor


class KernelUpdate(NamedTuple):
    """One update whose elements a kernel computes when it is written.

    Attributes:
        gradient: (E,), before clipping.
        found: norms, factors and who moves, :class:`pfrnn.kernels.rmsprop.Clipped`.
        decay: rho.
        epsilon: added to the root.
    """

    gradient: Tensor
    found: Any
    decay: float
    epsilon: float

    @property
    def gradient_norm(self) -> Tensor:
        """(M,), before clipping."""
        norm: Tensor = self.found.norm
        return norm

    @property
    def moves(self) -> Tensor:
        """Bool (M,): alive, and the gradient's norm is finite."""
        moves: Tensor = self.found.moves
        return moves


class FlatRMSprop:
    """RMSprop for one population and its settings; what stays the same is made once.

    Args:
        parameters: trained tensors.
        square_average: RMSprop's running means, of the same names and shapes.
        hyper: learning rate, clip and L2 weight of each member.
        decays: whether L2 acts on a parameter, by its name.
    """

    def __init__(
        self,
        parameters: Flat,
        square_average: Flat,
        hyper: Hyper,
        decays: Callable[[str], bool] = lambda name: True,
    ) -> None:
        self.parameters, self.square_average, self.hyper = parameters, square_average, hyper
        whole = parameters.whole
        self._gaps = whole.new_zeros(ALIGNMENT)
        self._piece = -(-len(whole) // (_PIECES * ALIGNMENT)) * ALIGNMENT
        # As the kernels read them: settings may be columns of a table.
        self._settings = Hyper(*(value.contiguous() for value in hyper))
        self._places: Any = None
        members = len(hyper.clip)
        # Nothing here is made from the host's numbers: the first step is watched like any other.
        number = torch.arange(members, dtype=torch.int32, device=whole.device)
        self._member = None
        if members > 1:
            self._member = self._in_one(
                {
                    name: number[:, None].expand(members, value[0].numel())
                    for name, value in parameters.items()
                }
            )
        self._rate, self._l2 = self._spread(hyper.learning_rate), self._spread(hyper.l2)
        told = {name: decays(name) for name in parameters}
        self._decays, self._partly = any(told.values()), None
        if not all(told.values()):
            self._partly = self._in_one(
                {
                    name: torch.full_like(value, told[name], dtype=torch.bool)
                    for name, value in parameters.items()
                }
            )

    def belongs_to(self, parameters: Stacked, square_average: Stacked, hyper: Hyper) -> bool:
        """Whether this is the update of these very tensors with these very settings."""
        return (
            parameters is self.parameters
            and square_average is self.square_average
            and hyper is self.hyper
        )

    def _in_one(self, stack: Stacked) -> Tensor:
        """Return the tensors (M, ...) one after another, as the parameters lie: (E,)."""
        parts: list[Tensor] = []
        for name in self.parameters:
            part = stack[name].reshape(-1)
            parts.append(part)
            if gap := -len(part) % ALIGNMENT:
                parts.append(self._gaps[:gap].to(part.dtype))
        return torch.cat(parts)

    def _spread(self, value: Tensor) -> Tensor:
        """Return each element's own of (M,): (E,), or (1,) where there is one member."""
        return value if self._member is None else value.index_select(0, self._member)

    def places(self) -> Any:
        """Where members and tensors lie, for the kernels; made in the first step."""
        if self._places is None:
            from pfrnn.kernels.rmsprop import Places

            whole, members = self.parameters.whole, len(self.hyper.clip)
            member = self._member
            if member is None:
                member = torch.zeros_like(whole, dtype=torch.int32)
            sizes = [value.numel() // members for value in self.parameters.values()]
            padded = [-(-members * size // ALIGNMENT) * ALIGNMENT for size in sizes]
            starts = list(itertools.accumulate(padded, initial=0))[:-1]
            self._places = Places(member, *map(self._on_device, (starts, sizes)), sum(sizes))
        return self._places

    def _on_device(self, numbers: Sequence[int]) -> Tensor:
        """Return int64 numbers, filled in on the device: no copy waits for the host."""
        whole = self.parameters.whole
        return torch.cat([whole.new_full((1,), n, dtype=torch.int64) for n in numbers])

    def update(
        self, gradients: Stacked, decay: float, epsilon: float, alive: Tensor
    ) -> FlatUpdate | KernelUpdate:
        """Compute one step; nothing that lies in the population is written.

        On a GPU kernels do it, where the parameters are float32.

        Args:
            gradients: name -> (M, ...).
            decay: rho in (0, 1).
            epsilon: added to the root.
            alive: bool (M,); a member that is not alive, or whose gradient is not finite, keeps
                its values.
        """
        before = self.parameters.whole
        if updates_by_kernel(before):
            from pfrnn.kernels.rmsprop import clipped as clipped_by

            gradient, clip = self._in_one(gradients), self._settings.clip
            found = clipped_by(gradient, self.places(), clip, alive, CLIP_EPSILON)
            return KernelUpdate(gradient, found, decay, epsilon)
        norm = gradient_norm(gradients)
        moves = alive & (norm < math.inf)
        clipped = self._in_one(gradients).mul_(self._spread(clip_factor(self.hyper.clip, norm)))
        if self._decays:
            decayed = torch.addcmul(clipped, self._l2, before)
            # Chosen, not weighed by zero: 0 times infinity, and the sign of a zero.
            partly = self._partly
            clipped = decayed if partly is None else torch.where(partly, decayed, clipped)
        squares = self.square_average.whole * decay
        # A list operation as in `rmsprop`: on a GPU its kernel may round otherwise than addcmul's.
        pieces = clipped.split(self._piece)
        torch._foreach_addcmul_(squares.split(self._piece), pieces, pieces, 1 - decay)
        steps = squares.sqrt().add_(epsilon)
        torch.div(clipped, steps, out=steps)
        steps.mul_(self._rate)
        return FlatUpdate(
            torch.sub(before, steps, out=steps), squares, self._spread(moves), norm, moves
        )

    def write(self, update: FlatUpdate | KernelUpdate) -> None:
        """Write an update's numbers in place; no memory is asked for."""
        if isinstance(update, KernelUpdate):
            from pfrnn.kernels.rmsprop import rmsprop as rmsprop_by

            own = self._settings
            rmsprop_by(
                self.parameters.whole, self.square_average.whole, update.gradient,
                self.places(), update.found, own.learning_rate, own.l2, self._partly,
                update.decay, update.epsilon,
            )  # fmt: skip
            return
        for old, new in (
            (self.parameters.whole, update.values),
            (self.square_average.whole, update.squares),
        ):
            torch.where(update.mask, new, old, out=old)
