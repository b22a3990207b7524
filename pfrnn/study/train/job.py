"""What a training job and a final share: opening the data, training, writing the record."""

from __future__ import annotations

import io
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import torch

from pfrnn.study.config import Config
from pfrnn.study.data.base import Prepared
from pfrnn.study.data.store import check_planned, load_prepared
from pfrnn.study.evaluate.selection import better
from pfrnn.study.files import atomic_path, digest_of, write_json
from pfrnn.study.jobfolder import break_seal, identity_of, seal
from pfrnn.study.plan import Plan
from pfrnn.study.provenance import commit, lock_digest, source_digest, versions
from pfrnn.study.records import outputs_of
from pfrnn.study.train import checkpoint
from pfrnn.study.train.choose import choose_path
from pfrnn.study.train.contract import ComputePath
from pfrnn.study.train.device import computed_on, open_device, peak_memory
from pfrnn.study.train.members import Member
from pfrnn.study.train.placement import Placement, place, step_bytes
from pfrnn.study.train.places import Places
from pfrnn.study.train.problem import Problem
from pfrnn.study.train.spec import network_spec
from pfrnn.study.train.state import BlockState, stacked_best
from pfrnn.study.train.trainer import BlockTrainer
from pfrnn.study.train.writers import write_history, write_members
from pfrnn.study.variants import Variant, variant

log = logging.getLogger(__name__)


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
        halving: whether successive halving may drop members.
        keep_all: whether best.pt holds every member, or the best one alone.
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
    halving: bool = False
    keep_all: bool = True


class Trained(NamedTuple):
    """A finished training.

    Attributes:
        trainer: holds members, problem and device.
        state: how every member ended.
        path: the compute path.
        prepared: the data.
        placement: where the data lie on the device, and why.
    """

    trainer: BlockTrainer
    state: BlockState
    path: ComputePath
    prepared: Prepared
    placement: Placement


def train(plan: Plan, job: Job, places: Places, device_name: str | None = None) -> Trained:
    """Train a job's members, or go on from its checkpoint, and write everything but run.json.

    Raises:
        StoppedError: a signal asked to stop; the state is saved.
    """
    config: Config = plan.config_of(job.dataset, job.variant)
    device = open_device(config.execution, device_name)
    prepared_folder = places.prepared / plan.prepared_id(job.dataset)
    prepared = load_prepared(prepared_folder)
    check_planned(prepared.card, prepared_folder)
    # An ensemble's members are its single model.
    model = variant(job.variant.single) if job.variant.single else job.variant
    spec = network_spec(
        config, prepared.card, model, job.hidden_size, job.particles, prepared.extra
    )
    lengths = prepared.splits["train"].length
    path = choose_path(spec, model, config, len(lengths), device)
    size = min(job.batch_size, len(lengths))
    member = step_bytes(path, size, int(max(lengths)), count_parameters(path))
    placement = place(prepared.splits, len(job.members), job.batch_size, member, device)
    problem = Problem(
        config=config,
        card=prepared.card,
        train=placement.open(prepared.splits["train"]),
        validation=placement.open(prepared.splits["validation"]),
        host_validation=prepared.splits["validation"],
        batch_size=job.batch_size,
        halving=job.halving,
    )
    folder = places.results / job.id
    # Its presence means finished.
    (folder / "run.json").unlink(missing_ok=True)
    identity = digest_of(
        {
            "job": job.parameters,
            "data": prepared.card.arrays_digest,
            "source": source_digest(job.source),
            # A final's members come from a selection, which its parameters don't name.
            "members": [[*member.setting, member.seed] for member in job.members],
            "sizes": [job.hidden_size, job.particles, job.batch_size],
        }
    )
    # Streaming is slower, so a job's log should show it without any setting.
    level = logging.INFO if placement.steps is None else logging.WARNING
    log.log(level, "%s: data %s", job.id, placement.reason)
    trainer = BlockTrainer(problem, path, job.members, folder, identity)
    state = trainer.run()
    write_history(folder / "history.csv", state.history)
    write_members(folder / "members.csv", job.members, state.progress, count_parameters(path))
    kept = job.members if job.keep_all else [best_member(job.members, state)]
    parameters, buffers = stacked_best(state, kept)
    # Through memory: torch reports a full disk as a fault of its own, Python by its name.
    buffer = io.BytesIO()
    numbers = {"number": torch.tensor([member.number for member in kept])}
    torch.save({"parameters": parameters, "buffers": buffers, "members": numbers}, buffer)
    with atomic_path(folder / "best.pt") as temporary:
        temporary.write_bytes(buffer.getvalue())
    return Trained(trainer, state, path, prepared, placement)


def best_member(members: Sequence[Member], state: BlockState) -> Member:
    """Return the member that a selection would choose among these; the first if all diverged."""
    best = members[0]
    for member in members[1:]:
        one, rival = state.progress[member.number], state.progress[best.number]
        if better(one.score, one.loss, rival.score, rival.loss):
            best = member
    return best


def count_parameters(path: ComputePath) -> int:
    """Trainable numbers of one member."""
    return sum(parameter.numel() for parameter in path.build().parameters())


def write_record(plan: Plan, job: Job, places: Places, trained: Trained, **more: Any) -> None:
    """Write run.json, last of all files, seal the records and remove the checkpoint."""
    folder = places.results / job.id
    card = trained.prepared.card
    head, dirty = commit()
    device = trained.trainer.device
    record = {
        "id": job.id,
        "tier": plan.config.tier,
        "dataset": job.dataset,
        "variant": job.variant.name,
        "hidden_size": job.hidden_size,
        "particles": job.particles,
        "batch_size": job.batch_size,
        "members": len(job.members),
        "seeds": [member.seed for member in job.members],
        "parameters": job.parameters,
        "digest": digest_of(job.parameters),
        "trainable_parameters": count_parameters(trained.path),
        "task": card.task,
        "metric": card.metric,
        "unit": card.unit,
        "data_state": card.state,
        "data_digest": card.arrays_digest,
        "source_digest": source_digest(job.source),
        "commit": head,
        "dirty": dirty,
        "lock_digest": lock_digest(),
        "versions": versions(),
        "machine": computed_on(device),
        "threads": torch.get_num_threads(),
        "kernel_path": trained.path.name,
        "kernel_reason": trained.path.reason,
        "graph": trained.path.graph,
        "data": trained.placement.reason,
        # The day, for readers: no digest and no number depends on it.
        "finished": datetime.now(UTC).date().isoformat(),
        "wall_seconds": round(trained.trainer.seconds(), 3),
        "peak_memory": peak_memory(device),
        "notes": trained.state.notes,
        **more,
    }
    # Of what stood here before; readers would hold the new records against it.
    break_seal(folder)
    write_json(folder / "run.json", record)
    # In this order: a kill between any two lines costs no training. Nor does an output that is lost
    # before it is sealed: the checkpoint stays, and the next job goes on from its end.
    identity = identity_of(job.parameters, card.arrays_digest, job.source, more.get("selection"))
    if seal(folder, identity, outputs_of(job.id)):
        checkpoint.remove(trained.trainer.checkpoint_path)
