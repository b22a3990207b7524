"""A search block: all points of the training grid for one model, side by side."""

from __future__ import annotations

from pfrnn.study.plan import Plan, block_parameters
from pfrnn.study.train.job import Job, train, write_record
from pfrnn.study.train.members import search_members
from pfrnn.study.train.places import Places
from pfrnn.study.variants import variant


def train_block(plan: Plan, block_id: str, places: Places, device: str | None = None) -> None:
    """Train a block of the plan and write its records; run.json comes last.

    Args:
        plan: the tier's plan.
        block_id: the block's id, also its folder below ``places.results``.
        places: folders.
        device: overrides the configuration's device.

    Raises:
        KeyError: the plan has no such block.
        StoppedError: a signal asked to stop; the state is saved and the next call goes on.
    """
    block = plan.block(block_id)
    job = Job(
        id=block.id,
        dataset=block.dataset,
        variant=variant(block.variant),
        hidden_size=block.hidden_size,
        particles=block.particles,
        batch_size=block.batch_size,
        members=search_members(block.settings, plan.config.seed, block.dataset),
        parameters=block_parameters(plan, block),
        source="pfrnn.study.train.block",
    )
    write_record(plan, job, places, train(plan, job, places, device))
