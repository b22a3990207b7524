"""What jobs ask a scheduler for."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfrnn.study.plan import load_plan
from pfrnn.study.variants import FIDELITY, VARIANTS, variant
from pfrnn.study.workload import (
    Sizes,
    dataset_sizes,
    job_resources,
    prepared_megabytes,
    seconds,
    tasks,
    workload,
)


def test_every_training_job_has_an_estimate() -> None:
    plan = load_plan("params.yaml", "paper")
    needs = job_resources(plan, dataset_sizes(plan), {})
    jobs = {block.id for block in plan.blocks} | {cell.final_id for cell in plan.cells}
    assert set(needs) == jobs
    assert len(jobs) == 1599
    assert all(3000 <= need.mem_mb <= 32_000 for need in needs.values())
    assert all(10 <= need.minutes <= 2880 for need in needs.values())


def test_time_follows_from_steps_and_rate() -> None:
    plan = load_plan("params.yaml", "smoke")
    block = plan.blocks[0]
    # 16 sequences a step, 2 epochs, four times what 20 steps a second take, 10 minutes to start.
    sizes = {"maze10": Sizes(16 * 60 * 60, 32, 32, 6)}
    needs = job_resources(plan, sizes, {})
    assert needs[block.id].minutes == 10 + 4 * (2 * 3600) / 20 / 60
    slower = load_plan("params.yaml", "smoke", {"execution": {"steps_per_second": 10}})
    assert job_resources(slower, sizes, {})[block.id].minutes == 10 + 48


def test_memory_follows_from_the_data() -> None:
    plan = load_plan("params.yaml", "smoke")
    block = plan.blocks[0].id
    small, large = (
        job_resources(plan, {"maze10": Sizes(1000, 32, 32, 6)}, {"maze10": size})[block].mem_mb
        for size in (10, 110)
    )
    assert large - small == 500


def test_the_size_of_prepared_arrays_is_their_files(tmp_path: Path) -> None:
    plan = load_plan("params.yaml", "smoke")
    assert prepared_megabytes(plan, tmp_path) == {}
    folder = tmp_path / plan.prepared_id("maze10")
    folder.mkdir()
    (folder / "arrays.npz").write_bytes(bytes(2_500_000))
    assert prepared_megabytes(plan, tmp_path) == {"maze10": 2.5}


def test_the_gpu_tier_covers_every_table_in_hours() -> None:
    plan = load_plan("params.yaml", "gpu")
    sizes = dataset_sizes(plan)
    load = workload(plan, sizes)
    assert {cell.dataset for cell in plan.cells} == set(plan.protocols)
    assert len(plan.protocols) == 13
    assert {cell.variant for cell in plan.cells} == set(VARIANTS) | set(FIDELITY)
    # Equal effort: every variant searches as many settings over as many epochs.
    assert len({len(block.settings) for block in plan.blocks}) == 1
    for name in plan.protocols:
        config = plan.config.for_dataset(name)
        assert config.training.patience == -(-config.training.max_epochs // 5)
    assert load.blocks + load.finals == sum(1 for _ in tasks(plan, sizes)) == 442


def test_predicted_seconds_count_validation_and_test() -> None:
    """By hand, from the fitted line: a step of 6 members, 64 sequences and 20 particles."""
    plan = load_plan("params.yaml", "gpu")
    config = plan.config.for_dataset("air")
    sizes = Sizes(train=464, validation=38, test=38, steps=48)
    jobs = list(tasks(plan, dict.fromkeys(plan.protocols, sizes)))
    final = next(job for job in jobs if job.id.startswith("final/air/pf_lstm-"))
    assert final.tests
    assert final.work == (6, 64, 48, 64, 20)
    step = 48 * max(38.6e-6, 4.4e-6 + 6 * 64 * 20 * 3.930e-9)
    training = 600 * 8
    expected = 13 + step * (training + 0.25 * (600 * 1 + 10 * 1))
    assert seconds(config, final, sizes) == pytest.approx(expected)
    search = next(job for job in jobs if job.id.startswith("search/air/lstm/"))
    assert search.model == variant("lstm")
    assert search.work == (3, 64, 48, 80, 1)
