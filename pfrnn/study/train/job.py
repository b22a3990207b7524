"""What a block of the search and a final share: opening the data, training, writing the record."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import torch

from pfrnn.study.data.base import Prepared
from pfrnn.study.data.store import check_planned, load_prepared
from pfrnn.study.evaluate.selection import better
from pfrnn.study.files import digest_of, write_json
from pfrnn.study.jobfolder import identity_of, remove_records
from pfrnn.study.plan import Plan
from pfrnn.study.provenance import commit, lock_digest, versions
from pfrnn.study.train.batches import to_device
from pfrnn.study.train.checkpoint import BlockState
from pfrnn.study.train.choose import choose_path
from pfrnn.study.train.device import computed_on, open_device, peak_memory
from pfrnn.study.train.members import Member
from pfrnn.study.train.path import PlainPath
from pfrnn.study.train.places import Places
from pfrnn.study.train.population import stacked
from pfrnn.study.train.spec import network_spec
from pfrnn.study.train.tables import write_best, write_history, write_members
from pfrnn.study.train.trainer import BlockTrainer, Problem
from pfrnn.study.variants import Variant, variant


class Job(NamedTuple):
    """One population to train.

    Attributes:
        id: folder below the tier's results.
        dataset: data set.
        variant: what is trained.
        hidden_size: hidden size.
        particles: particles, 0 without.
        batch_size: sequences a step.
        members: the members.
        parameters: everything the numbers depend on, for the digest in run.json.
        source: module whose source digest the record carries.
        selection: a final's, which its parameters don't name; None in the search.
    """

    id: str
    dataset: str
    variant: Variant
    hidden_size: int
    particles: int
    batch_size: int
    members: Sequence[Member]
    parameters: dict[str, Any]
    source: str
    selection: Any = None


class Trained(NamedTuple):
    """A finished training.

    Attributes:
        trainer: holds members, problem and device.
        state: how every member ended.
        path: the compute path.
        prepared: the data.
    """

    trainer: BlockTrainer
    state: BlockState
    path: PlainPath
    prepared: Prepared


def train(plan: Plan, job: Job, places: Places, device_name: str | None = None) -> Trained:
    """Train a job's members, or go on from its checkpoint, and write everything but run.json.

    Raises:
        StoppedError: a signal asked to stop; the state is saved.
    """
    config = plan.config_of(job.dataset, job.variant)
    device = open_device(config.execution, device_name)
    prepared_folder = places.prepared / plan.prepared_id(job.dataset)
    prepared = load_prepared(prepared_folder)
    check_planned(prepared.card, prepared_folder)
    train, validation = prepared.splits["train"], prepared.splits["validation"]
    # An ensemble's members are its single model.
    model = variant(job.variant.single) if job.variant.single else job.variant
    spec = network_spec(
        config, prepared.card, model, job.hidden_size, job.particles, prepared.extra
    )
    path = choose_path(spec, model, config, len(train.length), device)
    problem = Problem(
        config=config,
        card=prepared.card,
        train=to_device(train, device),
        validation=to_device(validation, device),
        host_validation=validation,
        batch_size=job.batch_size,
    )
    folder = places.results / job.id
    remove_records(places.results, job.id)
    trainer = BlockTrainer(problem, path, job.members, folder, digest_of(_identity(job, prepared)))
    state = trainer.run()
    write_history(folder / "history.csv", state.history)
    write_members(folder / "members.csv", job.members, state.progress, count_parameters(path))
    # Nothing reads the others of a search: a tenth of the disk, and of what clones have to pull.
    kept = [best_member(job.members, state)] if job.selection is None else job.members
    write_best(folder / "best.pt", kept, stacked([state.best[member.number] for member in kept]))
    return Trained(trainer, state, path, prepared)


def _identity(job: Job, prepared: Prepared) -> dict[str, Any]:
    digest = prepared.card.arrays_digest
    return identity_of(job.parameters, digest, job.source, job.selection)


def best_member(members: Sequence[Member], state: BlockState) -> Member:
    """Return the member that a selection would choose among these; the first if all diverged."""
    best = members[0]
    for member in members[1:]:
        one, rival = state.progress[member.number], state.progress[best.number]
        if better(one.score, one.loss, rival.score, rival.loss):
            best = member
    return best


def count_parameters(path: PlainPath) -> int:
    """Trainable numbers of one member."""
    return sum(parameter.numel() for parameter in path.build().parameters())


def write_record(plan: Plan, job: Job, places: Places, trained: Trained) -> None:
    """Write run.json, last of all files, and remove the checkpoint."""
    folder = places.results / job.id
    card, path, device = trained.prepared.card, trained.path, trained.trainer.device
    head, dirty = commit()
    record = {
        "id": job.id,
        "kind": "block",
        "tier": plan.config.tier,
        "dataset": job.dataset,
        "variant": job.variant.name,
        "hidden_size": job.hidden_size,
        "particles": job.particles,
        "batch_size": job.batch_size,
        "members": len(job.members),
        "seeds": [member.seed for member in job.members],
        "parameters": job.parameters,
        "trainable_parameters": count_parameters(path),
        "task": card.task,
        "metric": card.metric,
        "unit": card.unit,
        "data_state": card.state,
        "commit": head,
        "dirty": dirty,
        "lock_digest": lock_digest(),
        "versions": versions(),
        "machine": computed_on(device),
        "threads": torch.get_num_threads(),
        "kernel_path": path.name,
        "kernel_reason": path.reason,
        "graph": path.graphs.summary if path.graphs else "off",
        # The day, for readers: no digest and no number depends on it.
        "finished": datetime.now(UTC).date().isoformat(),
        "wall_seconds": round(trained.trainer.seconds(), 3),
        "peak_memory": peak_memory(device),
        "notes": trained.state.notes,
        # By this a later job knows that there is nothing to do (jobfolder.py).
        **_identity(job, trained.prepared),
    }
    if job.selection is not None:
        record["kind"] = "final"
    write_json(folder / "run.json", record)
    # In this order: a kill between the two lines costs no training.
    trained.trainer.checkpoint_path.unlink(missing_ok=True)
