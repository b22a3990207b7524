"""Every finished training job of a tier: its data, commit, device, and seconds against predicted.

``data/blocks.json`` maps the id of each finished search block and final (the id holds the digest of
its parameters) to ``data_digest``, ``commit``, ``device``, ``wall_seconds`` and
``predicted_seconds`` (null: not known); a block's ``dirty`` is true where its source had changes
that the commit doesn't hold, else absent (a final's stands in ``data/runs.json``). `pfrnn grid`
counts what stands there as done.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pfrnn.errors import RecordError
from pfrnn.study.files import read_mapping
from pfrnn.study.jobfolder import again
from pfrnn.study.plan import Plan
from pfrnn.study.recorded import sizes_of
from pfrnn.study.workload import seconds, tasks

Jobs = dict[str, dict[str, Any]]


def finished_blocks(results: Path) -> Jobs:
    """Return the finished search blocks below ``results/<tier>``.

    Raises:
        RecordError: a block's record is damaged, or has changed since it finished.
    """
    found = {}
    for path in sorted(results.glob("search/*/*/*/run.json")):
        run = read_mapping(path, again(path.parent))
        try:
            job = {
                "data_digest": str(run["data_digest"]),
                "commit": str(run["commit"]),
                "device": str(run["machine"]["device_name"]),
                "wall_seconds": float(run["wall_seconds"]),
                "predicted_seconds": None,
            }
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(f"{path}: damaged ({error}); remove the folder and run again") from (
                error
            )
        if run.get("dirty"):
            job["dirty"] = True
        found[path.parent.relative_to(results).as_posix()] = job
    return found


def recorded_finals(rows: Iterable[Mapping[str, str]]) -> Jobs:
    """Return the finals in the rows of a results file."""
    found: Jobs = {}
    for row in rows:
        found.setdefault(
            row["final_id"],
            {
                "data_digest": row["data_digest"],
                "commit": row["commit"],
                "device": row["device"],
                "wall_seconds": _seconds(row["final_seconds"]),
                "predicted_seconds": None,
            },
        )
    return found


def _seconds(text: str) -> float | None:
    """Read a duration; None where a results file has none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def predict(jobs: Jobs, plan: Plan, cards: Mapping[str, Mapping[str, Any]]) -> Jobs:
    """Return the jobs with the predicted seconds of those that have none yet.

    Predicted from the sizes of the prepared data, so a set without a card has no prediction; nor
    has a job that isn't in the plan.
    """
    cells = tuple(cell for cell in plan.cells if cell.dataset in cards)
    sizes = {cell.dataset: sizes_of(cards[cell.dataset]) for cell in cells}
    found = dict(jobs)
    for task in tasks(plan._replace(cells=cells), sizes):
        job = jobs.get(task.id)
        if job is not None and job["predicted_seconds"] is None:
            config = plan.config_of(task.dataset, task.model)
            expected = round(seconds(config, task, sizes[task.dataset]), 1)
            found[task.id] = job | {"predicted_seconds": expected}
    return found


def names_of(job: str) -> tuple[str, str, str]:
    """Split a job's id into kind (search or final), data set and variant.

    Example:
        >>> names_of("final/air/pf_lstm-fixed-0123456789")
        ('final', 'air', 'pf_lstm')
        >>> names_of("search/air/lstm/h80-k0-b64-0123456789")
        ('search', 'air', 'lstm')
    """
    kind, dataset, variant = job.split("/")[:3]
    return kind, dataset, variant.rsplit("-", 2)[0] if kind == "final" else variant
