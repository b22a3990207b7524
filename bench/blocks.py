"""Opens a block of a real set for a benchmark as a training job does: data, network, members."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pfrnn.errors import ConfigError
from pfrnn.study.config import merge
from pfrnn.study.data.prepare import prepare
from pfrnn.study.data.store import load_prepared
from pfrnn.study.plan import Block, Plan, load_plan
from pfrnn.study.train.batches import to_device
from pfrnn.study.train.choose import choose_path
from pfrnn.study.train.members import Member, search_members
from pfrnn.study.train.path import PlainPath
from pfrnn.study.train.spec import network_spec
from pfrnn.study.train.trainer import Problem
from pfrnn.study.variants import variant

ROOT = Path(__file__).resolve().parents[1]


def sizes_of(data: str, train: int | None, validation: int | None) -> dict[str, Any]:
    """Overrides that cap a set's splits; None keeps the protocol's."""
    maze = data.startswith("maze")
    asked = {"train" if maze else "max_train": train}
    if validation is not None and not maze:
        raise ValueError(f"{data}: its validation split can't be capped, only a maze's")
    asked["validation"] = validation
    return {"datasets": {data: {name: n for name, n in asked.items() if n is not None}}}


class Opened(NamedTuple):
    """A block ready to train.

    Attributes:
        variant: what trains. An ensemble's block is its single model's, and a variant that only
            names the particles in force shares the main variant's.
        problem: data and sizes.
        path: how steps are computed.
        members: the population.
    """

    variant: str
    problem: Problem
    path: PlainPath
    members: list[Member]


class Ask(NamedTuple):
    """What a benchmark trains.

    Attributes:
        data: a data set of the registry; the mazes need no raw files.
        model: a variant.
        batch: sequences a step.
        members: in one population, points of the grid.
        tier: whose sizes and protocol.
        overrides: of params.yaml.
    """

    data: str
    model: str
    batch: int
    members: int
    tier: str = "paper"
    overrides: Mapping[str, Any] = {}


def planned(ask: Ask) -> Plan:
    """Plan what was asked for and nothing else, whatever the tier says of the set."""
    fixed: dict[str, Any] = {
        "study": {"variants": [ask.model], "size_rules": ["fixed"]},
        "grid": {"batch_size": [ask.batch]},
    }
    # What a tier says of one set is laid over what it says of all: what was asked for must stand
    # there too, or the set would train other variants, or for more epochs.
    own = {k: v for k, v in ask.overrides.items() if k not in ("datasets", "overrides")}
    own = merge(own, fixed)
    whole = merge(own, {"study": {"datasets": [ask.data]}, "overrides": {ask.data: own}})
    if ask.data.startswith("maze"):
        # Neither the exact posterior nor the test is looked at.
        whole["datasets"] = {ask.data: {"posterior_trajectories": 0, "test": 50}}
    return load_plan(ROOT / "params.yaml", ask.tier, merge(ask.overrides, whole))


def block_of(plan: Plan, ask: Ask) -> Block:
    """Return the block that was asked for.

    Raises:
        ConfigError: the plan has no such block.
    """
    for cell in plan.cells:
        if (cell.dataset, cell.variant, cell.size_rule) == (ask.data, ask.model, "fixed"):
            for block in cell.blocks:
                if block.batch_size == ask.batch:
                    return block
    there = sorted(f"{cell.variant} on {cell.dataset}" for cell in plan.cells)
    raise ConfigError(
        f"expected a block of {ask.model} on {ask.data} with batch {ask.batch} in the plan, which "
        f"has {', '.join(there) or 'nothing'}; ask for a variant and batch that it has"
    )


def open_block(ask: Ask, folder: Path, device: torch.device) -> Opened:
    """Prepare the data below ``folder``, unless they lie there, and choose the compute path."""
    plan = planned(ask)
    block = block_of(plan, ask)
    model = variant(block.variant)
    # As a training job has it: the set's overrides, and what the variant switches.
    config = plan.config_of(ask.data, model)
    prepared_folder = folder / plan.prepared_id(ask.data)
    if not (prepared_folder / "arrays.npz").exists():
        prepare(ask.data, plan.protocols[ask.data], config.seed, folder / "raw", prepared_folder)
    prepared = load_prepared(prepared_folder)
    spec = network_spec(
        config, prepared.card, model, block.hidden_size, block.particles, prepared.extra
    )
    splits = {name: to_device(prepared.splits[name], device) for name in ("train", "validation")}
    path = choose_path(spec, model, config, splits["train"].sequences, device)
    problem = Problem(
        config, prepared.card, splits["train"], splits["validation"],
        prepared.splits["validation"], ask.batch,
    )  # fmt: skip
    settings = list(itertools.islice(itertools.cycle(block.settings), ask.members))
    members = search_members(settings, config.seed, ask.data)
    return Opened(block.variant, problem, path, members)


@contextmanager
def environment(**values: str | None) -> Iterator[None]:
    """Set variables of the environment for a while; None unsets one."""
    before = {name: os.environ.get(name) for name in values}

    def put(wanted: Mapping[str, str | None]) -> None:
        for name, value in wanted.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value

    put(values)
    try:
        yield
    finally:
        put(before)


def wait(device: torch.device) -> None:
    """Let the device finish what it was told to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def machine(device: torch.device) -> dict[str, str]:
    """What stands beside every figure."""
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return {"card": card, "torch": torch.__version__}
