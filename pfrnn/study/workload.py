"""How much a plan has to compute, and how long that takes at measured rates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pfrnn.errors import DataError
from pfrnn.study.config import Config
from pfrnn.study.data.base import Protocol
from pfrnn.study.data.registry import dataset
from pfrnn.study.files import read_json
from pfrnn.study.plan import Cell, Plan, members_of_ensemble, prepare_again
from pfrnn.study.rates import FORWARD, START_SECONDS, Work, step_seconds
from pfrnn.study.variants import Variant, variant


class Sizes(NamedTuple):
    """Sequences of a data set's splits, and their longest number of time steps."""

    train: int
    validation: int
    test: int
    steps: int


class Task(NamedTuple):
    """One training job: a block of the search, or a final.

    Attributes:
        id: of the block or final.
        dataset: the data set's name.
        model: what is trained.
        work: one training step of all its members.
        tests: whether it evaluates the test split at the end.
    """

    id: str
    dataset: str
    model: Variant
    work: Work
    tests: bool


class Workload(NamedTuple):
    """Counts of a plan.

    Attributes:
        blocks: training jobs of the search.
        finals: training jobs of the selected settings.
        runs: trained models, of search and finals together.
        steps: training steps of all jobs at the largest number of epochs; a job's step moves all
            its members at once.
        hours: of all jobs on one device, one after another, if none stops early.
    """

    blocks: int
    finals: int
    runs: int
    steps: int
    hours: float


def tasks(plan: Plan, sizes: Mapping[str, Sizes]) -> Iterator[Task]:
    """Yield every training job of a plan once."""
    for block in plan.blocks:
        steps = sizes[block.dataset].steps
        particles = max(1, block.particles)
        members = len(block.settings)
        work = Work(members, block.batch_size, steps, block.hidden_size, particles)
        yield Task(block.id, block.dataset, variant(block.variant), work, tests=False)
    # Cells that train the same thing share their final.
    for cell in {cell.final_id: cell for cell in plan.cells}.values():
        config = plan.config.for_dataset(cell.dataset)
        # Size and batch size are selected later; the largest model and the smallest batch take
        # longest.
        largest = max(cell.blocks, key=lambda block: (block.hidden_size, block.particles))
        work = Work(
            _final_runs(plan, cell),
            min(config.grid.batch_size),
            sizes[cell.dataset].steps,
            largest.hidden_size,
            max(1, largest.particles),
        )
        yield Task(cell.final_id, cell.dataset, variant(cell.variant), work, tests=True)


def training_steps(config: Config, task: Task, sizes: Sizes) -> int:
    """Steps of a job at the largest number of epochs."""
    return config.training.max_epochs * _batches(sizes.train, task.work.sequences)


def seconds(config: Config, task: Task, sizes: Sizes) -> float:
    """Predict a job's seconds at the largest number of epochs; ``config`` is the variant's own.

    At ``execution.steps_per_second`` where that is given, else as on the GPU of
    :mod:`pfrnn.study.rates`, validation and test included.
    """
    steps = training_steps(config, task, sizes)
    if config.execution.steps_per_second is not None:
        return steps / config.execution.steps_per_second
    passes = config.training.validation_passes if task.model.stochastic else 1
    batch = task.work.sequences
    evaluated = config.training.max_epochs * passes * _batches(sizes.validation, batch)
    if task.tests:
        tested = config.evaluation.passes if task.model.stochastic else 1
        evaluated += tested * _batches(sizes.test, batch)
    if task.model.kind == "bayesian":
        evaluated *= config.bayesian.prediction_samples
    step = step_seconds(task.model, task.work, kernels_run(config, task.model))
    return START_SECONDS + step * (steps + FORWARD * evaluated)


def kernels_run(config: Config, model: Variant) -> bool:
    """Whether the fused kernels have this filter's switches (``pfrnn/kernels/dispatch.py``).

    Batch norm per particle slot and PF-GRU's noise from the reset state run compiled.

    Args:
        config: the variant's on a data set (:meth:`pfrnn.study.plan.Plan.config_of`).
        model: what is trained.
    """
    release = config.filter.fidelity == "authors_code"
    switches = config.filter.switches
    slot = (switches.batch_norm or ("particle_slot" if release else "")) == "particle_slot"
    reset = (switches.gru_noise or ("reset" if release else "")) == "reset"
    return not (slot and model.batch_norm_relu) and not (reset and model.cell == "gru")


def workload(plan: Plan, sizes: Mapping[str, Sizes]) -> Workload:
    """Count a plan's jobs, models, steps and hours.

    Args:
        plan: what is run.
        sizes: of each data set.
    """
    steps = runs = 0
    total = 0.0
    finals = 0
    for task in tasks(plan, sizes):
        config = plan.config_of(task.dataset, task.model)
        steps += training_steps(config, task, sizes[task.dataset])
        total += seconds(config, task, sizes[task.dataset])
        runs += task.work.members
        finals += task.tests
    return Workload(len(plan.blocks), finals, runs, steps, total / 3600)


def _batches(sequences: int, batch_size: int) -> int:
    return -(-sequences // batch_size)


def _final_runs(plan: Plan, cell: Cell) -> int:
    config = plan.config.for_dataset(cell.dataset)
    model = variant(cell.trained)
    repetitions = config.evaluation.repetitions_for(model)
    if model.kind != "ensemble":
        return repetitions
    return repetitions * members_of_ensemble(config, dataset(cell.dataset).card)


def dataset_sizes(plan: Plan, prepared: Path | str = "data/prepared") -> dict[str, Sizes]:
    """Return the size of each data set.

    Taken from its prepared card; before that exists an upper bound from the protocol and the
    number of rows that the publisher states.
    """
    sizes = {}
    for name, protocol in plan.protocols.items():
        card = Path(prepared) / plan.prepared_id(name) / "card.json"
        if card.is_file():
            sizes[name] = _prepared_sizes(card, plan)
        else:
            sizes[name] = _bound(protocol, dataset(name).card.rows)
    return sizes


def _prepared_sizes(card: Path, plan: Plan) -> Sizes:
    """Read the sizes that a prepared card states."""
    try:
        found = read_json(card)
        counts = found["sequences"]
        return Sizes(counts["train"], counts["validation"], counts["test"], found["max_length"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{card}: expected a card with the numbers of sequences, got a damaged file ({error}); "
            f"{prepare_again(card.parent, plan)}"
        ) from error


# Time steps of a sequence where neither card nor protocol says: longer than any set of the paper.
_UNKNOWN_STEPS = 100


def _bound(protocol: Protocol, rows: int | None) -> Sizes:
    """Bound a set that isn't prepared: a window starts at every ``stride``-th row."""

    def number(*names: str) -> int | None:
        """The first of the protocol's fields that is a count (a share is no count)."""
        values = (getattr(protocol, name, None) for name in names)
        return next((value for value in values if isinstance(value, int) and value > 0), None)

    stated = -(-rows // (number("stride") or 1)) if rows else None
    train = protocol.max_train or number("train") or stated or 10_000
    validation = protocol.max_validation or number("validation") or -(-train // 4)
    test = protocol.max_test or number("test") or -(-train // 4)
    steps = number("window", "steps", "max_length") or _UNKNOWN_STEPS
    return Sizes(train, validation, test, steps)


def rate_in_words(config: Config) -> str:
    """Say what predicted hours are predicted from."""
    rate = config.execution.steps_per_second
    if rate is None:
        return "on one NVIDIA H200 (docs/performance.md)"
    return f"at {rate:g} steps a second on one device"


def describe(plan: Plan) -> str:
    """Return one line: the tier, its jobs, and the hours predicted."""
    load = workload(plan, dataset_sizes(plan))
    return (
        f"tier {plan.config.tier}: {load.blocks} blocks, {load.finals} finals, {load.runs} runs, "
        f"at most {load.steps:,} steps; {rate_in_words(plan.config)} at most {load.hours:.1f} hours"
    )


class Resources(NamedTuple):
    """What one training job asks a scheduler for, at its first attempt.

    Attributes:
        mem_mb: main memory in MB.
        minutes: run time at the largest number of epochs, with a margin.
    """

    mem_mb: int
    minutes: int

    def doubled(self, times: int) -> Resources:
        """Return what a later attempt asks for."""
        return Resources(self.mem_mb * 2**times, self.minutes * 2**times)


# Interpreter, torch and a CUDA context in main memory.
_BASE_MB = 3000
# Start, reading data, validation, test, checkpoints.
_BASE_MINUTES = 10
# A slower device than the one whose rate is known, and a shared file system.
_MARGIN = 4.0
# Two days, a common limit of partitions. A longer job ends there, and goes on at its next attempt.
_LONGEST_MINUTES = 2880
# Main memory holds the prepared arrays a few times over while they are read and checked.
_COPIES = 5
# MB of arrays where nothing is prepared yet: the largest set has less.
_UNKNOWN_MB = 1000


def job_resources(
    plan: Plan, sizes: Mapping[str, Sizes], megabytes: Mapping[str, float]
) -> dict[str, Resources]:
    """Estimate what every block and final of a plan needs, by its id.

    Memory on the device isn't counted: a job that runs out of it splits its population. A job
    that a scheduler killed for memory or time gets more at its next attempt
    (workflow/rules/common.smk).

    Args:
        plan: what is run.
        sizes: of each data set.
        megabytes: size of each data set's prepared arrays; sets that aren't prepared are left out.
    """
    needs = {}
    for task in tasks(plan, sizes):
        config = plan.config_of(task.dataset, task.model)
        time = _MARGIN * seconds(config, task, sizes[task.dataset]) / 60
        minutes = min(_BASE_MINUTES + time, _LONGEST_MINUTES)
        memory = _BASE_MB + _COPIES * megabytes.get(task.dataset, _UNKNOWN_MB)
        needs[task.id] = Resources(math.ceil(memory), math.ceil(minutes))
    return needs


def prepared_megabytes(plan: Plan, prepared: Path | str = "data/prepared") -> dict[str, float]:
    """Return the size of each data set's prepared arrays in MB; those not prepared are left out."""
    sizes = {}
    for name in plan.protocols:
        arrays = Path(prepared) / plan.prepared_id(name) / "arrays.npz"
        if arrays.is_file():
            sizes[name] = arrays.stat().st_size / 1e6
    return sizes
