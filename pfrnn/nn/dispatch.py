"""Which loop over time a cell runs: fused kernels on a GPU where they can, else the plain steps."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from pfrnn.errors import ConfigError
from pfrnn.functional.autocast import autocasting, transforming
from pfrnn.functional.sequence import run_pf
from pfrnn.functional.types import FilterOutput, FilterSwitches, PFState
from pfrnn.kernels.dispatch import VARIABLE, Problem, asked_for, refusal

if TYPE_CHECKING:
    from pfrnn.nn.cells import ParticleCell


class Path(NamedTuple):
    """How a call computes its loop over time.

    Attributes:
        name: ``fused`` (kernels, one launch a time step) or ``plain`` (torch, step by step).
        reason: why, in words.
    """

    name: str
    reason: str


class Loop(NamedTuple):
    """A loop over time and its random numbers.

    Attributes:
        run: called as :func:`pfrnn.functional.run_pf`, without its first argument.
        noise: standard normal numbers, or the key of those that the kernels draw.
        uniforms: likewise; None without resampling.
    """

    run: Callable[..., FilterOutput]
    noise: Any
    uniforms: Any


def choose(cell: ParticleCell, x: Tensor, count: int) -> Path:
    """Choose the path of a call with input ``x`` (T, ..., N, D) and ``count`` particles.

    Products in the kernels follow ``torch.get_float32_matmul_precision()``: float32 for "highest",
    torch's default, else TF32. The environment variable ``PFRNN_KERNELS`` overrides the choice.

    Raises:
        ConfigError: ``PFRNN_KERNELS`` is ``fused`` where the kernels can't run, or unknown.
    """
    why = _call_refusal(cell, x)
    if why is None:
        why = _refusal(
            type(cell).step, tuple(cell.switches), count, cell.hidden_size, x.device.type,
            x.device.index, cell.weight_observation.dtype,
        )  # fmt: skip
    asked = _asked()
    if asked in ("plain", "compiled"):
        return Path("plain", f"{VARIABLE}={asked}")
    if why is None:
        return Path("fused", f"Triton kernels, {_precision()} products")
    if asked == "fused":
        raise ConfigError(f"{VARIABLE}=fused, but the kernels can't run: {why}; unset {VARIABLE}")
    return Path("plain", why)


def loop(
    cell: ParticleCell,
    step: Callable[..., Any],
    x: Tensor,
    count: int,
    noise: Tensor | None,
    uniforms: Tensor | None,
    generator: torch.Generator | None = None,
) -> Loop:
    """Return the loop that :func:`choose` chooses, and random numbers where none are given.

    Args:
        cell: whose loop it is.
        step: of the plain loop, the cell's own or compiled.
        x: (T, ..., N, D).
        count: K.
        noise: (T, ..., N, K, H), or None.
        uniforms: (T, ..., N, K), or None.
        generator: that draws what isn't given; torch's default one when None.
    """
    resampled = cell.options.resampling != "none"
    drawn = noise is None or (resampled and uniforms is None)
    if choose(cell, x, count).name == "plain":
        if drawn:
            pair = cell.draw(x.shape[0], x.shape[-2], count, generator)
            noise = pair[0] if noise is None else noise
            uniforms = pair[1] if uniforms is None else uniforms
        return Loop(functools.partial(run_pf, step), noise, uniforms)
    key: Any = _key(cell, x, generator) if drawn else None
    return Loop(
        _run_fused,
        key if noise is None else noise,
        (key if uniforms is None else uniforms) if resampled else None,
    )


def _run_fused(
    projected: Tensor, state: PFState, noise: Any, uniforms: Any, weights: Any,
    switches: FilterSwitches, **options: Any,
) -> FilterOutput:  # fmt: skip
    """Run the kernels in float32, also inside autocast; the belief has the input's type."""
    # Here, because it imports Triton, which torch brings on CUDA machines only.
    from pfrnn.kernels.sequence import run_pf_fused

    device = projected.device
    inside = torch.autocast(device.type, enabled=False) if autocasting(device) else nullcontext()
    with inside:
        output = run_pf_fused(
            projected.float(),
            PFState(*(None if x is None else x.float() for x in state)),
            noise.float() if isinstance(noise, Tensor) else noise,
            uniforms.float() if isinstance(uniforms, Tensor) else uniforms,
            weights,
            switches,
            precision=_precision(),
            **options,
        )
    if output.belief is None or projected.dtype == torch.float32:
        return output
    return output._replace(belief=output.belief.to(projected.dtype))


def _key(cell: ParticleCell, x: Tensor, generator: torch.Generator | None) -> Any:
    """Draw a seed for each model on the device: a CUDA graph draws new ones at every replay."""
    from pfrnn.kernels.noise import NoiseKey

    members = cell.weight_observation.shape[:-1].numel()
    seeds = torch.randint(2**63 - 1, (members,), device=x.device, generator=generator)
    return NoiseKey(seeds, torch.zeros(1, dtype=torch.int64, device=x.device))


def _call_refusal(cell: ParticleCell, x: Tensor) -> str | None:
    """Say what of this call the kernels can't do."""
    if cell.compile_backend is not None:
        return "the step is compiled (compile_step)"
    if x.dim() > 4:
        return "more than one leading axis"
    if x.shape[0] == 0 or x.shape[-2] == 0:
        return "an empty input"
    if torch.compiler.is_compiling():
        return None
    if transforming() or getattr(forward_ad, "_current_level", -1) >= 0:
        return "inside a transform of torch.func, or forward-mode differentiation"
    if torch.onnx.is_in_onnx_export():
        return "inside an ONNX export"
    if torch.jit.is_tracing():  # type: ignore[no-untyped-call]
        return "inside torch.jit.trace"
    return None


@torch.compiler.assume_constant_result
def _asked() -> str:
    return asked_for()


@torch.compiler.assume_constant_result
def _precision() -> str:
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


@torch.compiler.assume_constant_result
def _refusal(
    step: Callable[..., Any], switches: tuple[Any, ...], count: int, units: int, kind: str,
    index: int | None, dtype: torch.dtype,
) -> str | None:  # fmt: skip
    """Say what of this cell the kernels can't do on a device."""
    device = torch.device(kind, index) if index is not None else torch.device(kind)
    problem = Problem(step, FilterSwitches(*switches), count, units, device, dtype)
    # Triton's interpreter is for tests: nobody gets it without asking for the kernels.
    return refusal(problem, interpreter=asked_for() == "fused")
