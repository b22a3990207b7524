"""Launches that begin early: before their wait they touch nothing that their chain writes.

In the interpreter a launch ends before the next one begins, so that reading too early would go
unseen: here every address is watched instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

from triton.runtime.interpreter import InterpreterBuilder

from pfrnn.functional.types import FilterSwitches
from pfrnn.kernels import early, run_backward, run_forward
from pfrnn.kernels.noise import NoiseKey
from pfrnn.kernels.plan import CROWDED, Tuning
from pfrnn.kernels.sequence import run_pf_fused

from .filter_cases import Case, draw, read_out

ON_GPU = torch.cuda.is_available()


class Watch:
    """Addresses that a chain's launches have written, and what a launch does before its wait."""

    def __init__(self, waits: bool) -> None:
        self.waits = waits
        self.written: set[int] = set()
        self.early: set[int] = set()
        self.before_wait = False
        self.launches = 0
        self.seen = 0
        self.wrong: list[str] = []

    def begin(self) -> None:
        self.before_wait = True

    def wait(self) -> None:
        self.before_wait = not self.waits

    def load(self, at: np.ndarray) -> None:
        if self.before_wait:
            self.early.update(at.tolist())
            self.seen += len(at)

    def store(self, at: np.ndarray) -> None:
        if self.before_wait:
            self.wrong.append(f"launch {self.launches} writes before its wait")
        self.written.update(at.tolist())

    def launch(self, own: Any) -> Any:
        """Wrap a kernel's run: the first launch of a chain begins like any kernel."""

        def run(*arguments: Any, **options: Any) -> Any:
            if options.get("warmup"):
                return own(*arguments, **options)
            assert options["EARLY"] == options["launch_pdl"]
            if not options["EARLY"]:
                self.written, self.before_wait, self.launches = set(), False, 0
            self.launches += 1
            self.early = set()
            own(*arguments, **options)
            # Against the own writes too: programs of one launch run side by side.
            if self.early & self.written:
                self.wrong.append(f"launch {self.launches} reads too early")
            self.before_wait = False
            return None

        return run


@contextmanager
def watched(waits: bool = True) -> Iterator[Watch]:
    watch = Watch(waits)
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def watched_load(self: Any, ptrs: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        # What a descriptor loads has an array for a mask.
        watch.load(ptrs.data[np.asarray(mask.data).astype(bool)])
        return load(self, ptrs, mask, *rest, **named)

    def watched_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        watch.store(ptrs.data[mask.data.astype(bool)])
        return store(self, ptrs, value, mask, *rest)

    forward, backward = run_forward.forward_kernel, run_backward.backward_kernel
    with (
        mock.patch.object(InterpreterBuilder, "create_masked_load", watched_load),
        mock.patch.object(InterpreterBuilder, "create_masked_store", watched_store),
        mock.patch.object(run_forward, "can_begin_early", return_value=True),
        mock.patch.object(run_backward, "can_begin_early", return_value=True),
        mock.patch.object(early, "gdc_launch_dependents", watch.begin),
        mock.patch.object(early, "gdc_wait", watch.wait),
        mock.patch.object(run_forward, "forward_kernel", mock.Mock(run=watch.launch(forward.run))),
        mock.patch.object(
            run_backward, "backward_kernel", mock.Mock(run=watch.launch(backward.run))
        ),
    ):
        yield watch


def train(gru: bool, case: Case, **options: Any) -> list[torch.Tensor]:
    """Outputs and gradients of one pass each way, with the kernels' own noise."""
    drawn = draw(case)
    device = drawn.projected.device
    key = NoiseKey(
        torch.arange(case.members, device=device) + 7,
        torch.ones(1, dtype=torch.int64, device=device),
    )
    projected = drawn.projected.clone().requires_grad_()
    leaves = [None if w is None else w.clone().requires_grad_() for w in drawn.weights]
    out = run_pf_fused(
        projected, drawn.state, key, key, type(drawn.weights)(*leaves), FilterSwitches(),
        readout=read_out(drawn, 1), **options,
    )  # fmt: skip
    (out.hidden.square().sum() + out.read.sum() + out.log_weights.sum()).backward()
    gradients = [leaf.grad for leaf in leaves if leaf is not None and leaf.grad is not None]
    return [out.hidden.detach(), out.log_weights.detach(), projected.grad, *gradients]


@pytest.mark.skipif(ON_GPU, reason="watches the interpreter's memory")
@pytest.mark.parametrize(
    "options", [{}, {"split": True}, CROWDED], ids=["whole", "split", "options"]
)
@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
def test_nothing_that_the_chain_uses_is_touched_before_the_wait(gru, options):
    case = Case(gru, 3, 2, 5, 3, 16)
    tuning = Tuning(forward_rows=16, backward_rows=16)._replace(**options)
    expected = train(gru, case, tuning=tuning)
    with watched() as watch:
        found = train(gru, case, tuning=tuning)
    assert watch.wrong == []
    # The backward launches do read before their wait, in both chains launches were watched.
    assert watch.launches > 1
    assert watch.seen > 0
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.skipif(ON_GPU, reason="watches the interpreter's memory")
@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
def test_a_wait_that_does_not_wait_is_seen(gru):
    with watched(waits=False) as watch:
        train(gru, Case(gru, 3, 2, 5, 3, 16), tuning=Tuning(forward_rows=16))
    assert any("writes before" in one for one in watch.wrong)
    assert any("reads too early" in one for one in watch.wrong)


# Programs of 1, 8 and 12 members (batch 64, 30 particles) on a card of 132 multiprocessors.
@pytest.mark.parametrize(("programs", "begins"), [(32, False), (256, False), (384, True)])
def test_a_forward_launch_begins_early_where_it_fills_the_card(programs, begins):
    assert early.fills(programs, 132, Tuning().forward_early_from) == begins
    assert early.fills(programs, 132, 0)
    assert not early.fills(programs, 132, None)


@pytest.mark.skipif(ON_GPU, reason="imitates a card of few multiprocessors")
@pytest.mark.parametrize(("card", "begins"), [(1, True), (2, False)])
def test_how_a_forward_launch_begins_goes_by_all_members_programs(card, begins):
    case, kernel, asked = Case(False, 2, 2, 5, 3, 16), run_forward.forward_kernel, []

    def run(*arguments: Any, **options: Any) -> Any:
        # The launches are the last three; what is compiled ahead comes before.
        asked.append((options["grid"], options["EARLY"], options["launch_pdl"]))
        return kernel.run(*arguments, **options)

    with (
        mock.patch.object(run_forward, "can_begin_early", return_value=True),
        mock.patch.object(run_forward, "multiprocessors", return_value=card),
        mock.patch.object(early, "gdc_launch_dependents"),
        mock.patch.object(early, "gdc_wait"),
        mock.patch.object(run_forward, "forward_kernel", mock.Mock(run=run)),
    ):
        train(False, case, tuning=Tuning(forward_rows=16))
    # Two programs a member; the first launch of a chain begins as any kernel does.
    grid = (2, 2)
    assert asked[-3:] == [(grid, False, False), (grid, begins, begins), (grid, begins, begins)]


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU whose launches overlap")
@pytest.mark.parametrize("members", [1, 12])
@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
def test_early_launches_have_the_bits_of_launches_that_wait(gru, members):
    if not early.can_begin_early(torch.device("cuda")):
        pytest.skip("needs compute capability 9.0")
    case = Case(gru, 40, members, 64, 30, 64, "cuda")
    expected = train(gru, case, tuning=Tuning(forward_early_from=None, backward_early=False))
    # Always, never, and by the size of the launch.
    for tuning in (Tuning(forward_early_from=0), Tuning(forward_early_from=None), None):
        found = train(gru, case, tuning=tuning)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
