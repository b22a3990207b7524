"""What jobs ask a scheduler for."""

from __future__ import annotations

from pathlib import Path

from pfrnn.plan import load_plan
from pfrnn.workload import job_resources, prepared_megabytes, training_sequences


def test_every_training_job_has_an_estimate() -> None:
    plan = load_plan("params.yaml", "paper")
    needs = job_resources(plan, training_sequences(plan), {})
    jobs = {block.id for block in plan.blocks} | {cell.final_id for cell in plan.cells}
    assert set(needs) == jobs
    assert len(jobs) == 1599
    assert {need.gpu for need in needs.values()} == {1}
    assert all(3000 <= need.mem_mb <= 32_000 for need in needs.values())
    assert all(10 <= need.minutes <= 2880 for need in needs.values())


def test_time_follows_from_steps_and_rate() -> None:
    plan = load_plan("params.yaml", "smoke")
    block = plan.blocks[0]
    # 16 sequences a step, 2 epochs, twice as long as 20 steps a second take, 10 minutes to start.
    needs = job_resources(plan, {"maze10": 16 * 60 * 60}, {})
    assert needs[block.id].minutes == 10 + 2 * (2 * 3600) / 20 / 60
    slower = load_plan("params.yaml", "smoke", {"execution": {"steps_per_second": 10}})
    assert job_resources(slower, {"maze10": 57_600}, {})[block.id].minutes == 10 + 24


def test_memory_follows_from_the_data() -> None:
    plan = load_plan("params.yaml", "smoke")
    block = plan.blocks[0].id
    small, large = (
        job_resources(plan, {"maze10": 1000}, {"maze10": size})[block].mem_mb for size in (10, 110)
    )
    assert large - small == 500


def test_the_size_of_prepared_arrays_is_their_files(tmp_path: Path) -> None:
    plan = load_plan("params.yaml", "smoke")
    assert prepared_megabytes(plan, tmp_path) == {}
    folder = tmp_path / plan.prepared_id("maze10")
    folder.mkdir()
    (folder / "arrays.npz").write_bytes(bytes(2_500_000))
    assert prepared_megabytes(plan, tmp_path) == {"maze10": 2.5}
