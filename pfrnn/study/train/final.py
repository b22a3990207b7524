"""A final: the selected setting retrained with paired repetitions, then tested once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pfrnn.study.data.registry import dataset
from pfrnn.study.evaluate.ensemble import combine
from pfrnn.study.evaluate.metrics import Contributions, average, contributions, metrics
from pfrnn.study.evaluate.sampling import overlapping_sequences, sampling_errors
from pfrnn.study.evaluate.selection import read_selection
from pfrnn.study.plan import Cell, Plan, Setting, cell_parameters, members_of_ensemble
from pfrnn.study.records import TEST_COLUMNS
from pfrnn.study.seeding import derive_seed
from pfrnn.study.train.evaluate import Evaluated, evaluate
from pfrnn.study.train.job import Job, Trained, train, write_record
from pfrnn.study.train.members import Member, ensemble_members, final_members
from pfrnn.study.train.places import Places
from pfrnn.study.train.population import Population
from pfrnn.study.train.samples import write_belief, write_predictions
from pfrnn.study.train.selected import selected_member_metrics, selected_states
from pfrnn.study.train.state import stacked_best
from pfrnn.study.train.writers import write_table
from pfrnn.study.variants import variant

# Value of a repetition that diverged, in test.csv and results.csv.
NO_VALUE = "nan"


def run_final(plan: Plan, final_id: str, places: Places, device: str | None = None) -> None:
    """Retrain a cell's selected setting, test it, write the records; run.json comes last.

    Raises:
        KeyError: the plan has no such final.
        RecordError: the selection is missing, damaged or was made for other parameters, or the
            states of the search that it chose from are missing or damaged.
        StoppedError: a signal asked to stop; the state is saved and the next call goes on.
    """
    cell = plan.cell(final_id)
    selection = read_selection(plan, cell, places.results)
    chosen = selection["chosen"]
    setting = Setting(chosen["learning_rate"], chosen["clip"], chosen["l2"])
    model = variant(cell.trained)
    if model.kind != "ensemble":
        selected_states(chosen, places)  # the test needs them: known before the training, not after
    job = Job(
        id=cell.final_id,
        dataset=cell.dataset,
        variant=model,
        hidden_size=chosen["hidden_size"],
        particles=chosen["particles"],
        batch_size=chosen["batch_size"],
        members=_members(plan, cell, setting),
        parameters=cell_parameters(plan, cell),
        source="pfrnn.study.train.final",
    )
    trained = train(plan, job, places, device)
    test_members(plan, job, places, trained, chosen)
    write_record(plan, job, places, trained, kind="final", selection=selection)


def _members(plan: Plan, cell: Cell, setting: Setting) -> list[Member]:
    config = plan.config.for_dataset(cell.dataset)
    if variant(cell.trained).kind != "ensemble":
        repetitions = config.evaluation.repetitions
        return final_members(setting, repetitions, config.seed, cell.dataset)
    size = members_of_ensemble(config, dataset(cell.dataset).card)
    repetitions = config.evaluation.ensemble_repetitions
    return ensemble_members(setting, repetitions, size, config.seed, cell.dataset)


def test_members(
    plan: Plan, job: Job, places: Places, trained: Trained, chosen: dict[str, Any]
) -> None:
    """Test every repetition's best state once and write test.csv and the samples.

    The metric of a stochastic model is averaged over passes with different noise; its predictions
    never are, which would be another model, a hidden ensemble. The search's chosen member is
    tested beside them, in a column of its own; an ensemble has none.

    A member that had no finite validation score has learned nothing: its best state is the one
    that it began with. It is left out of its ensemble, and a repetition of such members alone has
    no value (``nan``).
    """
    config = plan.config.for_dataset(job.dataset)
    card = trained.prepared.card
    split = trained.prepared.splits["test"]
    population = best_population(trained)
    count = config.evaluation.passes if trained.path.stochastic else 1
    device_split = trained.placement.open(split)
    passes: list[Evaluated] = []
    for number in range(count):
        axes = ("test", number)
        passes.append(evaluate(trained.path, population, job.members, device_split, axes, True))
    # A repetition is one member, or the members of one ensemble.
    groups = repetition_groups(job.members)
    learned = {repetition: _learned(trained, stacked) for repetition, stacked in groups.items()}
    predictions = [
        np.stack(
            [
                combine(one.prediction[learned[repetition] or stacked], card.task)
                for repetition, stacked in groups.items()
            ]
        )
        for one in passes
    ]
    beside: dict[str, float] = {}
    if job.variant.kind != "ensemble":
        beside = selected_member_metrics(plan, chosen, places, trained, device_split, count)
    rows: list[dict[str, Any]] = []
    clusters = overlapping_sequences(split, card.task)
    for number, (repetition, stacked) in enumerate(groups.items()):
        tables = [contributions(card, one[number], split.y, split.mask) for one in predictions]
        seed = derive_seed(config.seed, job.dataset, "sampling", repetition)
        first = job.members[stacked[0]]
        made = metric_rows(tables, config.evaluation.bootstrap, seed, first, clusters, beside)
        rows += made if learned[repetition] else [without_value(row) for row in made]
    folder = places.results / job.id
    write_table(folder / "test.csv", TEST_COLUMNS, rows)
    write_predictions(folder / "predictions.npz", card, split, predictions[0], list(groups))
    if trained.path.spec.kind == "particle":
        write_belief(folder / "belief.npz", split, trained, population)


def repetition_groups(members: Sequence[Member]) -> dict[int, list[int]]:
    """Repetition -> places of its members in the stack."""
    groups: dict[int, list[int]] = {}
    for place, member in enumerate(members):
        groups.setdefault(member.repetition, []).append(place)
    return groups


def _learned(trained: Trained, stacked: Sequence[int]) -> list[int]:
    """Those of some members that had a finite validation score at least once."""
    return [place for place in stacked if trained.state.progress[place].best_epoch > 0]


def without_value(row: Mapping[str, Any]) -> dict[str, Any]:
    """A repetition's row of test.csv when nothing was learned: no value, and no errors of it."""
    return {**row, "value": NO_VALUE, "passes_sd": math.nan, "sampling_error": math.nan}


def metric_rows(
    tables: list[Contributions],
    bootstrap: int,
    seed: int,
    member: Member,
    clusters: npt.NDArray[np.int64] | None = None,
    selected: Mapping[str, float] | None = None,
) -> list[dict[str, Any]]:
    """One row a metric for one repetition, from its passes; no finite value is ``nan``."""
    each = [metrics(table) for table in tables]
    errors = sampling_errors(average(tables), bootstrap, seed, clusters)
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
                "passes_sd": float(values.std(ddof=1)) if len(values) > 1 else float("nan"),
                "sampling_error": errors[name],
                "n_test": tables[0].sequences,
                "selected_member_value": (selected or {}).get(name, ""),
            }
        )
    return rows


def best_population(trained: Trained) -> Population:
    """Stack every member's best state again, on the training device."""
    trainer = trained.trainer
    parameters, buffers = stacked_best(trained.state, trainer.members)
    return Population.of_best(
        [member.number for member in trainer.members], parameters, buffers, trainer.device
    )
