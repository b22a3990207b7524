"""A final: the selected setting retrained with paired repetitions, then tested once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pfrnn.study.data.base import Prepared, PreparedCard
from pfrnn.study.data.registry import dataset
from pfrnn.study.evaluate.ensemble import combine
from pfrnn.study.evaluate.metrics import Contributions, average, contributions, metrics
from pfrnn.study.evaluate.sampling import overlapping_sequences, sampling_errors
from pfrnn.study.evaluate.selection import read_selection
from pfrnn.study.plan import Cell, Plan, Setting, cell_parameters, members_of_ensemble
from pfrnn.study.records import TEST_COLUMNS
from pfrnn.study.seeding import derive_seed
from pfrnn.study.train.batches import DeviceSplit, to_device
from pfrnn.study.train.evaluate import evaluate
from pfrnn.study.train.job import Job, Trained, train, write_record
from pfrnn.study.train.members import Member, ensemble_members, final_members, search_members
from pfrnn.study.train.path import PlainPath
from pfrnn.study.train.places import Places
from pfrnn.study.train.population import stacked
from pfrnn.study.train.samples import save_arrays, write_belief, write_predictions
from pfrnn.study.train.tables import read_best, write_table
from pfrnn.study.variants import variant

# Value of a repetition that diverged, in test.csv and results.csv.
NO_VALUE = "nan"
# The column of Contributions that a data set's metric is made of.
_ITEM = {
    "rmse": "squared",
    "mse": "squared",
    "mae": "absolute",
    "accuracy": "correct",
    "last_step_mse": "last",
    "all_steps_mse": "squared",
}


def run_final(plan: Plan, final_id: str, places: Places, device: str | None = None) -> None:
    """Retrain a cell's selected setting, test it, write the records; run.json comes last.

    Raises:
        KeyError: the plan has no such final.
        RecordError: the selection is missing, damaged or was made for other parameters, or the
            weights of the search that it chose from are missing or damaged.
        StoppedError: a signal asked to stop; the state is saved and the next call goes on.
    """
    cell = plan.cell(final_id)
    selection = read_selection(plan, cell, places.results)
    chosen = selection["chosen"]
    model = variant(cell.trained)
    if model.kind != "ensemble":
        # The test needs them: known before the training, not after.
        read_best(places.results / chosen["block_id"])
    job = Job(
        id=cell.final_id,
        dataset=cell.dataset,
        variant=model,
        hidden_size=chosen["hidden_size"],
        particles=chosen["particles"],
        batch_size=chosen["batch_size"],
        members=_members(plan, cell, Setting.of(chosen)),
        parameters=cell_parameters(plan, cell),
        source="pfrnn.study.train.final",
        selection=selection,
    )
    trained = train(plan, job, places, device)
    test_members(plan, job, places, trained)
    write_record(plan, job, places, trained)


def _members(plan: Plan, cell: Cell, setting: Setting) -> list[Member]:
    config = plan.config.for_dataset(cell.dataset)
    model = variant(cell.trained)
    repetitions = config.evaluation.repetitions_for(model)
    if model.kind != "ensemble":
        return final_members(setting, repetitions, config.seed, cell.dataset)
    size = members_of_ensemble(config, dataset(cell.dataset).card)
    return ensemble_members(setting, repetitions, size, config.seed, cell.dataset)


def test_members(plan: Plan, job: Job, places: Places, trained: Trained) -> None:
    """Test every repetition's best weights once; write test.csv, errors.npz and the samples.

    The metric of a stochastic model is averaged over passes with different noise; its predictions
    never are, which would be another model, a hidden ensemble. The search's chosen member is
    tested beside them, in a column of its own; an ensemble has none.

    A member that had no finite validation score has learned nothing: its best weights are the ones
    that it began with. It is left out of its ensemble, and a repetition of such members alone has
    no value (``nan``).
    """
    config, path = plan.config.for_dataset(job.dataset), trained.path
    card, split = trained.prepared.card, trained.prepared.splits["test"]
    device = trained.trainer.device
    weights = stacked([trained.state.best[member.number] for member in job.members]).to(device)
    device_split = to_device(split, device)
    count = config.evaluation.passes if path.stochastic else 1
    passes = [
        evaluate(path, weights, job.members, device_split, ("test", number)).prediction
        for number in range(count)
    ]
    # A repetition is one member, or the members of one ensemble.
    groups = repetition_groups(job.members)
    learned = [[one for one in stack if _learned(trained, one)] for stack in groups.values()]
    tested = [good or stack for good, stack in zip(learned, groups.values(), strict=True)]
    predictions = [
        np.stack([combine(one[chosen], card.task) for chosen in tested]) for one in passes
    ]
    beside: dict[str, float] = {}
    if job.variant.kind != "ensemble":
        beside = selected_member_metrics(
            plan, job.selection["chosen"], places, path, trained.prepared, device_split, count
        )
    rows: list[dict[str, Any]] = []
    averages: list[Contributions] = []
    clusters = overlapping_sequences(split, card.task)
    for number, (repetition, stack) in enumerate(groups.items()):
        tables = [contributions(card, one[number], split.y, split.mask) for one in predictions]
        averages.append(average(tables))
        seed = derive_seed(config.seed, job.dataset, "sampling", repetition)
        errors = sampling_errors(averages[-1], config.evaluation.bootstrap, seed, clusters)
        made = metric_rows(tables, errors, job.members[stack[0]], beside)
        rows += made if learned[number] else [without_value(row) for row in made]
    folder = places.results / job.id
    write_table(folder / "test.csv", TEST_COLUMNS, rows)
    write_errors(folder / "errors.npz", card, averages, list(groups), learned, clusters)
    write_predictions(folder / "predictions.npz", card, split, predictions[0], list(groups))
    if path.spec.kind == "particle":
        write_belief(folder / "belief.npz", card, split, path, weights, job.members)


def selected_member_metrics(
    plan: Plan,
    chosen: dict[str, Any],
    places: Places,
    path: PlainPath,
    prepared: Prepared,
    split: DeviceSplit,
    passes: int,
) -> dict[str, float]:
    """Test the chosen member's best weights of the search, its metric averaged over the passes.

    What a paper that prints one run may report. It stands beside our finals and never among them:
    the member won on validation, so its score is one draw from a selected run.

    Args:
        plan: the tier's plan.
        chosen: the selection's entry: block and member.
        places: where results lie.
        path: the final's; the member has the same network.
        prepared: the final's data.
        split: the test split on the device.
        passes: as for the final's own repetitions, with the same names of the noise.
    """
    numbers, weights = read_best(places.results / chosen["block_id"])
    block, number = plan.block(chosen["block_id"]), int(chosen["member"])
    member = search_members(block.settings, plan.config.seed, block.dataset)[number]
    # A block keeps its best member, which is the chosen one if the block won.
    one = weights.only(numbers.index(number)).to(split.device)
    card, test = prepared.card, prepared.splits["test"]
    found: list[dict[str, float]] = []
    for index in range(passes):
        seen = evaluate(path, one, [member], split, ("test", index))
        found.append(metrics(contributions(card, seen.prediction[0], test.y, test.mask)))
    return {name: float(np.mean([values[name] for values in found])) for name in found[0]}


def repetition_groups(members: Sequence[Member]) -> dict[int, list[int]]:
    """Repetition -> places of its members in the stack."""
    groups: dict[int, list[int]] = {}
    for place, member in enumerate(members):
        groups.setdefault(member.repetition, []).append(place)
    return groups


def _learned(trained: Trained, place: int) -> bool:
    """Whether a member had a finite validation score at least once."""
    return trained.state.progress[place].best_epoch > 0


def without_value(row: Mapping[str, Any]) -> dict[str, Any]:
    """A repetition's row of test.csv when nothing was learned: no value, and no errors of it."""
    return {**row, "value": NO_VALUE, "passes_sd": math.nan, "sampling_error": math.nan}


def metric_rows(
    tables: list[Contributions],
    errors: Mapping[str, float],
    member: Member,
    selected: Mapping[str, float],
) -> list[dict[str, Any]]:
    """One row a metric for one repetition, from its passes; no finite value is ``nan``."""
    each = [metrics(table) for table in tables]
    rows = []
    for name in each[0]:
        values = np.array([one[name] for one in each])
        mean = float(values.mean())
        rows.append(
            {
                "repetition": member.repetition,
                "seed": member.seed,
                "metric": name,
                # Spelled out: an empty field is a damaged one.
                "value": mean if math.isfinite(mean) else NO_VALUE,
                "passes": len(values),
                "passes_sd": float(values.std(ddof=1)) if len(values) > 1 else math.nan,
                "sampling_error": errors[name],
                "n_test": tables[0].sequences,
                "selected_member_value": selected.get(name, ""),
            }
        )
    return rows


def write_errors(
    path: Path,
    card: PreparedCard,
    averages: Sequence[Contributions],
    repetitions: Sequence[int],
    learned: Sequence[object],
    clusters: npt.NDArray[np.int64],
) -> None:
    """Write errors.npz (pfrnn/study/records.py says what it holds).

    Args:
        path: the file.
        card: the data set's card.
        averages: each repetition's contributions, averaged over passes.
        repetitions: their numbers.
        learned: false for a repetition that has no value.
        clusters: (N,), which test items share source rows.
    """
    column = _ITEM[card.metric]
    error = np.stack([one.columns[column] for one in averages]).astype(np.float32)
    error[[not one for one in learned]] = np.nan
    ones = np.ones(error.shape[1])
    count = averages[0].columns["count"] if column in ("squared", "absolute") else ones
    arrays = {
        "repetition": np.asarray(repetitions, np.int32),
        "error": error,
        "count": count.astype(np.int32),
        "cluster": clusters.astype(np.int32),
    }
    save_arrays(path, arrays)
