"""A toy block ready to train, and one step of it by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from pfrnn.study.data.prepare import load_prepared
from pfrnn.study.plan import Setting
from pfrnn.study.train.batches import DeviceSplit, cut_of, gather, rows_on, to_device
from pfrnn.study.train.checkpoint import BlockState
from pfrnn.study.train.choose import choose_path
from pfrnn.study.train.members import Member, hyper
from pfrnn.study.train.path import PlainPath
from pfrnn.study.train.population import Weights, new_population
from pfrnn.study.train.spec import network_spec
from pfrnn.study.train.trainer import BlockTrainer, Problem
from pfrnn.study.variants import variant

from . import toys

CPU = torch.device("cpu")
SETTINGS = [Setting(0.003, 5.0, 1e-4), Setting(0.01, 0.5, 1e-2), Setting(0.03, 3.0, 0.0)]
DIVERGES = Setting(1e30, 5.0, 0.0)


def world(
    tmp_path: Path, name: str, model: str, device: torch.device = CPU, **patch: object
) -> tuple[Problem, PlainPath]:
    """Problem and path of one variant on one toy set, in torch's default dtype."""
    plan = toys.study({"study": {"datasets": [name], "variants": [model]}}, dict(patch))
    places = toys.prepared_places(plan, tmp_path)
    prepared = load_prepared(places.prepared / plan.prepared_id(name))
    block, config = plan.blocks[0], plan.config_of(name, variant(plan.blocks[0].variant))
    kind, extra = variant(block.variant), prepared.extra
    spec = network_spec(config, prepared.card, kind, block.hidden_size, block.particles, extra)
    train, validation = (
        _in_dtype(to_device(prepared.splits[part], device)) for part in ("train", "validation")
    )
    problem = Problem(
        config, prepared.card, train, validation, prepared.splits["validation"], batch_size=16
    )
    return problem, choose_path(spec, kind, config, train.sequences, device)


def _in_dtype(split: DeviceSplit) -> DeviceSplit:
    x, y = (
        tensor.to(torch.get_default_dtype()) if tensor.is_floating_point() else tensor
        for tensor in (split.x, split.y)
    )
    return split._replace(x=x, y=y)


def run(problem: Problem, path: PlainPath, members: list[Member], folder: Path) -> BlockState:
    """Train some members, numbered as they come."""
    numbered = [member._replace(number=place) for place, member in enumerate(members)]
    return BlockTrainer(problem, path, numbered, folder, "test").run()


class OneStep:
    """A new population and a batch, the training split's first sequences for every member."""

    axes = ("train", 1, 0)

    def __init__(self, problem: Problem, path: PlainPath, members: list[Member], count: int = 12):
        self.path, self.members, self.split = path, members, problem.train
        self.device = problem.train.device
        self.population = new_population(path.build, members, self.device)
        self.rows = rows_on(np.tile(np.arange(count), (len(members), 1)), self.device)
        self.cut = cut_of(self.split, self.rows)
        self.batch = gather(self.split, self.rows.device, self.cut)
        self.hyper = hyper(members, self.device)

    def randomness(self, *axes: Any) -> Any:
        """A training step's random numbers."""
        return self.path.training_randomness(self.members, axes or self.axes, self.cut, self.device)

    def losses(self) -> tuple[Any, dict[str, torch.Tensor]]:
        """What a training step predicts, and its gradients."""
        named = self.population.parameters.items()
        leaves = {name: value.clone().requires_grad_() for name, value in named}
        weights = Weights(leaves, self.population.buffers)
        predicted = self.path.losses(weights, self.batch, self.randomness())
        gradients = torch.autograd.grad(
            predicted.loss.sum(), list(leaves.values()), allow_unused=True, materialize_grads=True
        )
        return predicted, dict(zip(leaves, gradients, strict=True))

    def train(self) -> None:
        """Do the step."""
        self.path.train_on(self.population, self.members, self.hyper, self.split, self.rows)

    def predict(self, *axes: Any) -> Any:
        """Evaluate the batch."""
        return self.path.predict(
            self.population.current, self.members, self.split, self.rows, axes or ("test", 0, 0)
        )
