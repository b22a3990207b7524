"""The device's part of a step never waits for the host: shown on the CPU and on the meta device.

On the CPU every operation is watched. Tensors of the meta device hold no numbers, so whatever
would ask for one raises; and code that asks for the device sees one that is no CPU.
"""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pfrnn.kernels.graph import EagerCapture, mapped
from pfrnn.study.train.batches import cut_of, epoch_batches, outline, take
from pfrnn.study.train.choose import choose_path
from pfrnn.study.train.graphed import GraphedPath
from pfrnn.study.train.interrupt import StopRequest
from pfrnn.study.train.members import final_members, hyper
from pfrnn.study.train.optimiser import Hyper
from pfrnn.study.train.population import Population, new_population
from pfrnn.study.train.progress import Progress
from pfrnn.study.train.scores import scores
from pfrnn.study.train.trainer import BlockTrainer
from pfrnn.study.variants import variant

from .test_population import SETTINGS, world

CPU, META = torch.device("cpu"), torch.device("meta")
# Operations whose result the host reads or whose shape depends on numbers.
WAITS = {"_local_scalar_dense", "item", "is_nonzero", "nonzero", "masked_select", "unique",
         "_unique2", "equal", "repeat_interleave.Tensor"}  # fmt: skip


class Watch(TorchDispatchMode):
    """Collects operations that would wait on a GPU, or that no capture allows."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        options = options or {}
        packet, overload = str(function).split(".")[1:]
        result = function(*arguments, **options)
        waits = packet in WAITS or f"{packet}.{overload}" in WAITS
        if packet == "index" and any(
            index is not None and index.dtype == torch.bool for index in arguments[1]
        ):
            waits = True
        # A tensor made from the host's numbers: a copy that waits.
        if packet in ("lift", "lift_fresh"):
            waits = True
        if packet in ("copy_", "_to_copy"):
            before = arguments[1] if packet == "copy_" else arguments[0]
            waits = result.device != before.device
        if waits:
            self.found.append(str(function))
        return result


CASES = [
    (name, model, fidelity)
    for name, model, fidelity in [
        ("toy_regression", "lstm", "paper"),
        ("toy_regression", "gru", "paper"),
        ("toy_regression", "lstm_bnrelu", "paper"),
        ("toy_regression", "pf_lstm", "paper"),
        ("toy_regression", "pf_gru", "paper"),
        ("toy_regression", "bayes_lstm", "paper"),
        # Unequal lengths, tokens.
        ("toy_classes", "lstm", "paper"),
        ("toy_classes", "pf_lstm", "paper"),
        ("toy_classes", "pf_gru", "paper"),
        ("toy_classes", "bayes_gru", "paper"),
        ("toy_classes", "lstm_bnrelu", "paper"),
        # The map, and the release's losses.
        ("maze10", "pf_lstm", "paper"),
        ("maze10", "pf_lstm", "authors_code"),
        ("maze10", "pf_gru", "authors_code"),
        ("toy_regression", "pf_lstm_noresample", "paper"),
        ("toy_regression", "pf_lstm_nobnrelu", "paper"),
    ]
]


def steps_of(tmp_path, name, model, fidelity, device):
    """The captured functions of training and evaluation, and their arguments on ``device``."""
    problem, plain = world(
        tmp_path, name, model, filter={"fidelity": fidelity}, bayesian={"sharpening": True}
    )
    count = problem.train.sequences
    path = choose_path(plain.spec, variant(model), problem.config, count, CPU)
    members = final_members(SETTINGS[0], 2, 1, name)
    population = new_population(path.build, members, CPU)
    rows = epoch_batches(members, 1, count, 16, CPU)[0]
    cut = cut_of(problem.train, rows)
    assert cut.padded == (name == "toy_classes")
    batch = outline(problem.train, rows, cut)
    random = path._training_randomness(members, ("train", 1, 0), batch)
    other = path._evaluation_randomness(members, ("validation", 0, 0), batch)
    settings = hyper(members, CPU)
    split, index = problem.train, rows.device
    if device != CPU:
        population = Population.from_plain(population.to_plain(), device)
        settings = Hyper(*(value.to(device) for value in settings))
        random, other, index = mapped((random, other, index), lambda x: x.to(device))
        moved = [value.to(device) for value in split[:4]]
        split = type(split)(*moved, *split[4:])
        path.network.to(device)

    def train() -> None:
        path.step(population, settings, take(split, index, cut), random, asks=False)

    def score() -> None:
        batch = take(split, index, cut)
        scores(path.evaluate(population, batch, other, False), batch, split)

    return path, train, score


@pytest.mark.parametrize(("name", "model", "fidelity"), CASES)
def test_nothing_in_a_step_waits_for_the_host(tmp_path, name, model, fidelity):
    _, train, score = steps_of(tmp_path, name, model, fidelity, CPU)
    with Watch() as watch:
        train()
        score()
    assert watch.found == []


@pytest.mark.parametrize(("name", "model", "fidelity"), CASES)
def test_a_step_needs_no_number(tmp_path, name, model, fidelity):
    _, train, score = steps_of(tmp_path, name, model, fidelity, META)
    with Watch() as watch:
        train()
        score()
    assert watch.found == []


MUTANTS = {
    "asks": lambda x: bool((x > 0).all()),
    "float": lambda x: float(x.sum()),
    "mask": lambda x: x[x > 0],
    "made": lambda x: x * x.new_tensor([1.0]),
    "scalar": lambda x: x + torch.tensor(1.0),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_what_waits_is_seen(tmp_path, monkeypatch, mutant):
    """The watch can fail: each way to wait, hidden in the forward pass."""
    path, train, _ = steps_of(tmp_path, "toy_regression", "gru", "paper", CPU)
    forward = path.forward

    def waiting(parameters, *rest):
        MUTANTS[mutant](next(iter(parameters.values())).detach())
        return forward(parameters, *rest)

    monkeypatch.setattr(path, "forward", waiting)
    with Watch() as watch:
        train()
    assert watch.found != []


def test_the_hosts_question_of_the_plain_loop_is_seen(tmp_path):
    problem, path = world(tmp_path, "toy_regression", "gru")
    members = final_members(SETTINGS[0], 2, 1, "toy_regression")
    population = new_population(path.build, members, CPU)
    rows = epoch_batches(members, 1, 40, 16, CPU)[0]
    batch = take(problem.train, rows.device, cut_of(problem.train, rows))
    settings = hyper(members, CPU)
    with Watch() as watch:
        path.train_step(population, members, settings, batch)
    assert watch.found == ["aten._local_scalar_dense.default"]


@pytest.mark.parametrize("model", ["gru", "pf_lstm", "bayes_lstm"])
def test_an_epoch_waits_as_often_whatever_the_number_of_its_steps(tmp_path, model):
    """Orders go to the device once an epoch, and nobody asks for a number in between."""
    problem, plain = world(tmp_path, "toy_regression", model, training={"max_epochs": 9})
    count, found = problem.train.sequences, []
    for size in (20, 5):
        path = choose_path(plain.spec, variant(model), problem.config, count, CPU)
        trainer = BlockTrainer(
            problem._replace(batch_size=size),
            GraphedPath(path, EagerCapture),
            final_members(SETTINGS[0], 2, 1, "toy_regression"),
            tmp_path / str(size),
            "test",
        )
        request, bar = StopRequest(), Progress("test", 100)
        # Every size is captured by then.
        for _ in range(2):
            trainer._epoch(request, bar)
        with Watch() as watch:
            trainer._epoch(request, bar)
        found.append(watch.found)
    assert found[0] == found[1]
    # The orders of training and validation, and who improved.
    assert found[0] == ["aten.lift_fresh.default"] * 3
