"""How much a plan has to compute, and how long that takes at the measured rate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pfrnn.data.registry import dataset
from pfrnn.files import read_json
from pfrnn.plan import Cell, Plan, members_of_ensemble
from pfrnn.variants import variant


class Workload(NamedTuple):
    """Counts of a plan.

    Attributes:
        blocks: training jobs of the search.
        finals: training jobs of the selected settings.
        runs: trained models, of search and finals together.
        steps: training steps of all jobs at the largest number of epochs; a job's step moves all
            its members at once.
        hours: ``steps`` at ``execution.steps_per_second`` on one device, jobs one after another.
    """

    blocks: int
    finals: int
    runs: int
    steps: int
    hours: float


def workload(plan: Plan, sequences: Mapping[str, int]) -> Workload:
    """Count a plan's jobs, models and steps.

    Args:
        plan: what is run.
        sequences: training sequences of each data set.
    """
    steps = runs = 0
    for block in plan.blocks:
        epochs = plan.config.for_dataset(block.dataset).training.max_epochs
        steps += epochs * _batches(sequences[block.dataset], block.batch_size)
        runs += len(block.settings)
    # Cells that train the same thing share their final.
    finals = {cell.final_id: cell for cell in plan.cells}
    for cell in finals.values():
        config = plan.config.for_dataset(cell.dataset)
        # The batch size is selected later; the smallest gives the largest number of steps.
        smallest = min(config.grid.batch_size)
        steps += config.training.max_epochs * _batches(sequences[cell.dataset], smallest)
        runs += _final_runs(plan, cell)
    hours = steps / plan.config.execution.steps_per_second / 3600
    return Workload(len(plan.blocks), len(finals), runs, steps, hours)


def _batches(sequences: int, batch_size: int) -> int:
    return -(-sequences // batch_size)


def _final_runs(plan: Plan, cell: Cell) -> int:
    config = plan.config.for_dataset(cell.dataset)
    if variant(cell.variant).kind != "ensemble":
        return config.evaluation.repetitions
    members = members_of_ensemble(config, dataset(cell.dataset).card)
    return members * config.evaluation.ensemble_repetitions


def training_sequences(plan: Plan, prepared: Path | str = "data/prepared") -> dict[str, int]:
    """Return the number of training sequences of each data set.

    Taken from its prepared card; before that exists from the protocol's cap, or else from the
    number of rows that the publisher states (a window starts at nearly every row).
    """
    counts = {}
    for name, protocol in plan.protocols.items():
        card = Path(prepared) / plan.prepared_id(name) / "card.json"
        if card.is_file():
            counts[name] = int(read_json(card)["sequences"]["train"])
        else:
            stated = getattr(protocol, "train", None) or dataset(name).card.rows
            counts[name] = protocol.max_train or stated or 10_000
    return counts


def describe(plan: Plan) -> str:
    """Return one line: the tier, its jobs, and the hours predicted."""
    load = workload(plan, training_sequences(plan))
    rate = plan.config.execution.steps_per_second
    return (
        f"tier {plan.config.tier}: {load.blocks} blocks, {load.finals} finals, {load.runs} runs, "
        f"at most {load.steps:,} steps; at {rate:g} steps a second at most {load.hours:.1f} hours "
        "on one device"
    )


class Resources(NamedTuple):
    """What one training job asks a scheduler for, at its first attempt.

    Attributes:
        gpu: devices.
        mem_mb: main memory in MB.
        minutes: run time at the largest number of epochs, with a margin.
    """

    gpu: int
    mem_mb: int
    minutes: int


# Interpreter, torch and a CUDA context in main memory.
_BASE_MB = 3000
# Start, reading data, validation, test, checkpoints.
_BASE_MINUTES = 10
# Validation and a slower machine than the one whose rate params.yaml states.
_MARGIN = 2.0
# Two days, a common limit of partitions. A longer job ends there, and goes on at its next attempt.
_LONGEST_MINUTES = 2880
# Main memory holds the prepared arrays a few times over while they are read and checked.
_COPIES = 5
# MB of arrays where nothing is prepared yet: the largest set has less.
_UNKNOWN_MB = 1000


def job_resources(
    plan: Plan, sequences: Mapping[str, int], megabytes: Mapping[str, float]
) -> dict[str, Resources]:
    """Estimate what every block and final of a plan needs, by its id.

    Memory on the device isn't counted: a job that runs out of it splits its population. A job
    that a scheduler killed for memory or time gets more at its next attempt
    (workflow/rules/common.smk).

    Args:
        plan: what is run.
        sequences: training sequences of each data set.
        megabytes: size of each data set's prepared arrays; sets that aren't prepared are left out.
    """

    def resources(name: str, batch: int) -> Resources:
        config = plan.config.for_dataset(name)
        steps = config.training.max_epochs * _batches(sequences[name], batch)
        minutes = _BASE_MINUTES + _MARGIN * steps / config.execution.steps_per_second / 60
        memory = _BASE_MB + _COPIES * megabytes.get(name, _UNKNOWN_MB)
        return Resources(1, math.ceil(memory), math.ceil(min(minutes, _LONGEST_MINUTES)))

    needs = {block.id: resources(block.dataset, block.batch_size) for block in plan.blocks}
    for cell in plan.cells:
        # The batch size is selected later; the smallest takes longest.
        smallest = min(plan.config.for_dataset(cell.dataset).grid.batch_size)
        needs[cell.final_id] = resources(cell.dataset, smallest)
    return needs


def prepared_megabytes(plan: Plan, prepared: Path | str = "data/prepared") -> dict[str, float]:
    """Return the size of each data set's prepared arrays in MB; those not prepared are left out."""
    sizes = {}
    for name in plan.protocols:
        arrays = Path(prepared) / plan.prepared_id(name) / "arrays.npz"
        if arrays.is_file():
            sizes[name] = arrays.stat().st_size / 1e6
    return sizes
