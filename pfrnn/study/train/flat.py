"""A population's tensors one after another in one piece of memory, and their update by a kernel.

On a GPU a small tensor's update costs its kernels' launches, not its arithmetic, and every
parameter needs a dozen of them. Here all parameters are views into one buffer and RMSprop's running
means into a second one, so that :mod:`pfrnn.kernels.rmsprop` updates all members in three launches.
It equals :func:`pfrnn.study.train.optimiser.rmsprop` to rounding.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pfrnn.kernels import dispatch
from pfrnn.kernels.ground import basic_refusal, device_refusal
from pfrnn.study.train.optimiser import CLIP_EPSILON, Hyper, Stacked, Update

# Elements between which a parameter may begin: 512 bytes, as torch's allocator places tensors, so
# that products and kernels which ask for a pointer's alignment choose as they do for single ones.
ALIGNMENT = 128


def updates_by_kernel(parameters: Stacked, device: torch.device) -> bool:
    """Whether the kernel updates these parameters, which lie on this device."""
    refusals = [basic_refusal(value.dtype) for value in parameters.values()]
    return not any([device_refusal(device), *refusals]) and dispatch.asked_for() != "plain"


class Flat(dict[str, Tensor]):
    """name -> (M, ...): contiguous views, one after another, into ``whole``.

    Attributes:
        whole: (E,), all elements, zeros between two parameters where a gap is.
    """

    def __init__(self, stack: Stacked) -> None:
        """Copy ``stack``, whose tensors have one type and device, into one piece of memory."""
        first = next(iter(stack.values()))
        sizes = [_padded(value.numel()) for value in stack.values()]
        self.whole = first.new_zeros(sum(sizes))
        super().__init__()
        starts = itertools.accumulate(sizes, initial=0)
        for (name, value), start in zip(stack.items(), starts, strict=False):
            self[name] = self.whole[start : start + value.numel()].view(value.shape)
            self[name].copy_(value)


class FlatRMSprop:
    """RMSprop by a kernel, for one population and its settings; what stays the same is made once.

    Args:
        parameters: trained tensors, float32.
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
        # Here, because it imports Triton, which torch brings on CUDA machines only.
        from pfrnn.kernels.rmsprop import Places

        self.parameters, self.square_average, self.hyper = parameters, square_average, hyper
        # As the kernels read them: settings may be columns of a table.
        self._settings = Hyper(*(value.contiguous() for value in hyper))
        whole, members = parameters.whole, len(hyper.clip)
        self._gap = whole.new_zeros(ALIGNMENT)
        number = torch.arange(members, dtype=torch.int32, device=whole.device)
        member = {
            name: number[:, None].expand(members, value[0].numel())
            for name, value in parameters.items()
        }
        sizes = [value[0].numel() for value in parameters.values()]
        starts = list(itertools.accumulate((_padded(members * n) for n in sizes), initial=0))[:-1]
        self._places = Places(
            self._in_one(member), self._filled(starts), self._filled(sizes), sum(sizes)
        )
        told = {name: decays(name) for name in parameters}
        self._partly: Tensor | None = None
        if not all(told.values()):
            self._partly = self._in_one(
                {
                    name: torch.full_like(value, told[name], dtype=torch.bool)
                    for name, value in parameters.items()
                }
            )

    def belongs_to(self, parameters: Stacked, hyper: Hyper) -> bool:
        """Whether this is the update of these very tensors with these very settings."""
        return parameters is self.parameters and hyper is self.hyper

    def update(self, gradients: Stacked, decay: float, epsilon: float, alive: Tensor) -> Update:
        """Compute one step; the kernel computes its elements when it is written.

        Args:
            gradients: name -> (M, ...).
            decay: rho in (0, 1).
            epsilon: added to the root.
            alive: bool (M,); a member that is not alive, or whose gradient is not finite, keeps
                its values.
        """
        from pfrnn.kernels.rmsprop import clipped, rmsprop

        gradient, own = self._in_one(gradients), self._settings
        found = clipped(gradient, self._places, own.clip, alive, CLIP_EPSILON)

        def write() -> None:
            rmsprop(
                self.parameters.whole, self.square_average.whole, gradient, self._places, found,
                own.learning_rate, own.l2, self._partly, decay, epsilon,
            )  # fmt: skip

        return Update(found.norm, found.moves, write)

    def _in_one(self, stack: Stacked) -> Tensor:
        """Return the tensors (M, ...) one after another, as the parameters lie: (E,)."""
        parts: list[Tensor] = []
        for name in self.parameters:
            part = stack[name].reshape(-1)
            parts.append(part)
            if gap := -len(part) % ALIGNMENT:
                parts.append(self._gap[:gap].to(part.dtype))
        return torch.cat(parts)

    def _filled(self, numbers: Sequence[int]) -> Tensor:
        """Return int64 numbers, filled in on the device: no copy waits for the host."""
        whole = self.parameters.whole
        return torch.cat([whole.new_full((1,), n, dtype=torch.int64) for n in numbers])


def _padded(elements: int) -> int:
    return -(-elements // ALIGNMENT) * ALIGNMENT
