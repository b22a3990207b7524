"""Counts what a training step launches, without a GPU and without computing anything.

Tensors of the meta device hold no numbers: the code takes the ways it takes on a GPU, and each
operation of torch that would launch something there is counted as one (some, as logsumexp, are
several). The kernels are counted by name and do nothing.

    python -m tests.study.train.launches
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from bench.step_models import Size, beside, filter_loss, trained, weights_of
from pfrnn.kernels import (
    backward,
    begin,
    forward,
    half_scale,
    in_order,
    linear_run,
    lookup,
    loss,
    philox,
    plan,
    rmsprop,
    sums,
    weight_gradient,
)
from pfrnn.kernels.dispatch import Choice
from pfrnn.kernels.graph import mapped
from pfrnn.kernels.noise import noise_key
from pfrnn.kernels.sequence import run_pf_fused
from pfrnn.study.train.batches import cut_of, epoch_batches, outline, take
from pfrnn.study.train.flat import Flat
from pfrnn.study.train.fused import FusedPath
from pfrnn.study.train.members import final_members, hyper
from pfrnn.study.train.optimiser import Hyper
from pfrnn.study.train.population import Population, new_population

from .test_population import SETTINGS, world

CPU, META = torch.device("cpu"), torch.device("meta")
# Memory without numbers, and other views of it.
FREE = {"empty", "new_empty", "empty_like", "empty_strided", "detach", "_unsafe_view"}


class Operations(TorchDispatchMode):
    """Counts operations on the meta device, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        name = str(function).split(".")[1]
        returns = function._schema.returns
        view = bool(returns) and all(
            one.alias_info is not None and not one.alias_info.is_write for one in returns
        )
        first = result if isinstance(result, Tensor) else arguments[0]
        there = not isinstance(first, Tensor) or first.device == META
        if name not in FREE and not view and there:
            self.found[name] += 1
        return result


@contextlib.contextmanager
def counted() -> Iterator[tuple[Counter[str], Counter[str]]]:
    """Operations of torch, and launches of the kernels."""
    kernels: Counter[str] = Counter()

    def launch(name: str, *arguments: Any, warmup: bool = False, **options: Any) -> None:
        kernels[name] += not warmup

    with contextlib.ExitStack() as stack:
        modules = (backward, begin, forward, half_scale, in_order, linear_run, lookup, loss, philox,
                   rmsprop, sums, weight_gradient)  # fmt: skip
        # Float16 factors, as on a GPU: the interpreter has none.
        stack.enter_context(mock.patch.object(plan, "narrows", return_value=True))
        for module in modules:
            for name, kernel in vars(module).items():
                if name.endswith("_kernel"):
                    run = functools.partial(launch, name)
                    stack.enter_context(mock.patch.object(kernel, "run", run))
        operations = stack.enter_context(Operations())
        yield operations.found, kernels


def benchmark_step(cell: str, members: int) -> tuple[Counter[str], Counter[str]]:
    """The step of ``bench/steps.py``."""
    size = Size(cell, members)
    population = trained(weights_of(size, members, "meta"))
    x = torch.empty(size.steps, members, size.batch, size.inputs, device=META)
    y = torch.empty(members, size.steps, size.batch, device=META)
    key = noise_key(list(range(members)), 0, META)
    run = functools.partial(run_pf_fused, precision=size.precision)
    population.optimiser.places()  # made in the first step
    with counted() as found, beside(size):
        key.step.add_(1)
        population.update(lambda p: filter_loss(size, p, x, y, run, key, key))
    return found


def training_step(folder: Path, cell: str, members: int) -> tuple[Counter[str], Counter[str]]:
    """The step of a training, as it is captured: nothing padded, a mask of outputs, an ELBO."""
    problem, plain = world(folder, "toy_regression", cell)
    choice = Choice("fused", "counted", functools.partial(run_pf_fused, precision="ieee"))
    path = FusedPath(plain.spec, plain.weights, plain.training, choice)
    chosen = final_members(SETTINGS[0], members, 1, "toy_regression")
    population = new_population(path.build, chosen, CPU)
    population = Population.from_plain(population.to_plain(), META)
    if not isinstance(population.parameters, Flat):
        raise TypeError("on a GPU a population is flat")
    settings = Hyper(*(value.to(META) for value in hyper(chosen, CPU)))
    rows = epoch_batches(chosen, 1, problem.train.sequences, 16, CPU)[0]
    cut = cut_of(problem.train, rows)
    batch = outline(problem.train, rows, cut)
    random = path._training_randomness(chosen, ("train", 1, 0), batch)
    random, index = mapped((random, rows.device), lambda x: x.to(META))
    moved = [value.to(META) for value in problem.train[:4]]
    split = type(problem.train)(*moved, *problem.train[4:])
    # Made in a training's first step.
    path._flat_update(population, settings).places()
    with counted() as found:
        path.step(population, settings, take(split, index, cut), random, asks=False)
    return found


def main() -> None:
    """Print a table."""
    print("| step | cell | members | operations of torch | small kernels | kernels of the loop |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("benchmark", "training"):
            for cell in ("pf_lstm", "pf_gru"):
                for members in (1, 12):
                    if kind == "benchmark":
                        found = benchmark_step(cell, members)
                    else:
                        found = training_step(Path(folder) / f"{cell}{members}", cell, members)
                    rest = {name: n for name, n in found[1].items() if name not in LOOP}
                    loop = sum(found[1].values()) - sum(rest.values())
                    print(f"| {kind} | {cell} | {members} | {sum(found[0].values())} "
                          f"| {sum(rest.values())} | {loop} |")  # fmt: skip


LOOP = ("forward_kernel", "backward_kernel", "weight_gradient_kernel")


if __name__ == "__main__":
    main()
