"""Choosing how a loop over time is computed: fused, compiled or plain, with the reason.

``PFRNN_KERNELS`` overrides the choice, for debugging: ``auto`` (the default), ``fused`` (an error
where the kernels can't), ``compiled`` or ``plain``.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from pfrnn.errors import ConfigError
from pfrnn.functional.pf_gru import pf_gru_step
from pfrnn.functional.pf_lstm import pf_lstm_step
from pfrnn.functional.rnn import RNNStep, run_rnn
from pfrnn.functional.sequence import run_pf
from pfrnn.functional.types import FilterSwitches, RNNSwitches
from pfrnn.kernels.ground import (
    MAX_PARTICLES,
    MAX_UNITS,
    basic_refusal,
    device_refusal,
    interpreted,
    rnn_refusal,
)

VARIABLE = "PFRNN_KERNELS"
WAYS = ("auto", "fused", "compiled", "plain")

Run = Callable[..., Any]


class Problem(NamedTuple):
    """What decides whether the kernels can run a filter.

    Attributes:
        step: ``pf_lstm_step`` or ``pf_gru_step``.
        switches: the filter's static choices.
        particles: K.
        units: H.
        device: where the tensors live.
        dtype: of the tensors.
    """

    step: Callable[..., Any]
    switches: FilterSwitches
    particles: int
    units: int
    device: torch.device
    dtype: torch.dtype = torch.float32


class Choice(NamedTuple):
    """A way to run the loop over time.

    Attributes:
        name: ``fused``, ``compiled`` or ``plain``.
        reason: why, in words, for the run's record.
        run: called as :func:`pfrnn.functional.sequence.run_pf`, or
            :func:`pfrnn.functional.rnn.run_rnn`, without its first argument.
    """

    name: str
    reason: str
    run: Run


def refusal(problem: Problem, interpreter: bool = True) -> str | None:
    """Say why the fused kernels can't run this filter; None when they can.

    Args:
        problem: the filter.
        interpreter: whether Triton's interpreter, where it is on, counts as a device.
    """
    if (why := basic_refusal(problem.dtype)) is not None:
        return why
    if not (interpreter and interpreted()):
        if (why := device_refusal(problem.device)) is not None:
            return why
    if problem.step not in (pf_lstm_step, pf_gru_step):
        return "the kernels know the PF-LSTM's and the PF-GRU's step only"
    if problem.particles > MAX_PARTICLES:
        return f"{problem.particles} particles are more than {MAX_PARTICLES}"
    if problem.units > MAX_UNITS:
        return f"{problem.units} hidden units are more than {MAX_UNITS}"
    return _switch_refusal(problem.switches, problem.step is pf_gru_step)


def _switch_refusal(switches: FilterSwitches, gru: bool) -> str | None:
    if switches.batch_norm == "particle_slot":
        return "batch norm per particle slot"
    if switches.ess_threshold is not None:
        return "resampling below an effective sample size"
    if gru and switches.gru_noise != "hidden":
        return "PF-GRU noise from the reset hidden state"
    if gru and switches.reset_after:
        return "PF-GRU with its reset gate after the product"
    return None


def choose(problem: Problem, precision: str = "tf32") -> Choice:
    """Choose the fastest way that can run the filter, and say why.

    Args:
        problem: the filter.
        precision: of the fused kernels' products, ``tf32`` or ``ieee``.

    Raises:
        ConfigError: PFRNN_KERNELS has an unknown value, or asks for what can't be; a precision that
            doesn't exist.
    """
    asked = asked_for()
    if asked == "plain":
        return _plain(problem, f"{VARIABLE}=plain")
    # The interpreter is for tests: nobody gets it without asking for the kernels.
    why = refusal(problem, interpreter=asked == "fused")
    if asked == "fused" and why is not None:
        raise ConfigError(f"{VARIABLE}=fused, but the kernels refuse: {why}; unset {VARIABLE}")
    if asked == "compiled":
        return _compiled(problem, f"{VARIABLE}=compiled")
    if why is None:
        return _fused(precision)
    return (_compiled if _compiles(problem) else _plain)(problem, why)


def asked_for() -> str:
    """Read ``PFRNN_KERNELS``.

    Raises:
        ConfigError: it has an unknown value.
    """
    asked = os.environ.get(VARIABLE, "auto")
    if asked not in WAYS:
        raise ConfigError(f"{VARIABLE}: expected one of {', '.join(WAYS)}, got {asked!r}")
    return asked


def choose_rnn(
    step: RNNStep, switches: RNNSwitches, device: torch.device, dtype: torch.dtype = torch.float32
) -> Choice:
    """Choose the fastest way that can run a plain RNN, and say why.

    Args:
        step: ``lstm_step`` or ``gru_step``.
        switches: its static choices.
        device: where the tensors live.
        dtype: of the tensors.

    Raises:
        ConfigError: PFRNN_KERNELS has an unknown value, or asks for what can't be.
    """
    asked = asked_for()
    if asked == "plain":
        return Choice("plain", f"{VARIABLE}=plain", functools.partial(run_rnn, step))
    if asked == "compiled":
        compiled = torch.compile(step, dynamic=False)
        return Choice("compiled", f"{VARIABLE}=compiled", functools.partial(run_rnn, compiled))
    interpreter = asked == "fused" and interpreted()
    why = rnn_refusal(step, switches, dtype)
    if why is None and not interpreter:
        why = device_refusal(device)
    if why is None:
        from pfrnn.kernels.rnn import run_rnn_fused

        reason = "one Triton kernel after each of a time step's products, which are float32"
        return Choice("fused", reason, functools.partial(run_rnn_fused, step))
    if asked == "fused":
        raise ConfigError(f"{VARIABLE}=fused, but the kernels refuse: {why}; unset {VARIABLE}")
    return Choice("plain", why, functools.partial(run_rnn, step))


def _compiles(problem: Problem) -> bool:
    """Compiling pays on a GPU; on a CPU it needs the user's own C++ compiler."""
    return problem.device.type == "cuda" and importlib.util.find_spec("triton") is not None


def _fused(precision: str) -> Choice:
    from pfrnn.kernels.form import check_precision
    from pfrnn.kernels.sequence import run_pf_fused

    # Now, and not at the first step of a job that has prepared everything else.
    check_precision(precision)
    reason = f"one Triton kernel a time step, {precision} products, float32 sums"
    return Choice("fused", reason, functools.partial(run_pf_fused, precision=precision))


def _compiled(problem: Problem, why: str) -> Choice:
    step = torch.compile(problem.step, dynamic=False)
    return Choice("compiled", why, functools.partial(run_pf, step))


def _plain(problem: Problem, why: str) -> Choice:
    return Choice("plain", why, functools.partial(run_pf, problem.step))
