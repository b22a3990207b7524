"""What the study cost: seconds spent, each job and in all, against the prediction."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pfrnn.study.files import write_text
from pfrnn.study.report.blocks import Jobs, names_of
from pfrnn.study.report.cells import Lookup
from pfrnn.study.report.evidence import DIRTY
from pfrnn.study.report.matrices import tier_note
from pfrnn.study.report.numbers import DASH, plain, seconds_text, significant
from pfrnn.study.report.views import PlainRow, PlainTable

COLUMNS = (
    "id",
    "kind",
    "dataset",
    "variant",
    "data_digest",
    "commit",
    "device",
    "wall_seconds",
    "predicted_seconds",
)
HEADER = (
    "data set",
    "device",
    "search blocks",
    "their time",
    "finals",
    "their time",
    "spent",
    "predicted, at most",
    "spent / predicted",
)
EXPLAINED = (
    "Wall time of every finished job, one after another: jobs that shared a device count each. "
    "Predicted when the job was published, for all epochs, at the rate that `pfrnn grid` names (as "
    "a rule one NVIDIA H200's, docs/performance.md); early stopping makes it less. Jobs without a "
    "prediction, or without a time, are left out of the last two columns."
)


class Sum(NamedTuple):
    """The jobs of one data set on one device, or of all data sets."""

    dataset: str
    device: str
    blocks: int
    block_seconds: float
    finals: int
    final_seconds: float
    predicted: float
    spent_of_predicted: float

    @property
    def texts(self) -> tuple[str, ...]:
        """Its cells, as ``HEADER`` names them."""
        known = self.predicted > 0
        return (
            self.dataset,
            self.device,
            str(self.blocks),
            seconds_text(self.block_seconds),
            str(self.finals),
            seconds_text(self.final_seconds),
            seconds_text(self.block_seconds + self.final_seconds),
            seconds_text(self.predicted) if known else DASH,
            significant(self.spent_of_predicted / self.predicted, 2) if known else DASH,
        )


def sums(jobs: Jobs) -> list[Sum]:
    """Sum up by data set and device, then over the data sets of each device."""
    groups: dict[tuple[str, str], list[tuple[str, Mapping[str, Any]]]] = {}
    totals: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for name, job in sorted(jobs.items()):
        device = job["device"]
        groups.setdefault((names_of(name)[1], device), []).append((name, job))
        totals.setdefault(device, []).append((name, job))
    lines = [_sum(dataset, device, own) for (dataset, device), own in sorted(groups.items())]
    return lines + [_sum("all", device, own) for device, own in sorted(totals.items())]


def _sum(dataset: str, device: str, jobs: Iterable[tuple[str, Mapping[str, Any]]]) -> Sum:
    count, spent = {"search": 0, "final": 0}, {"search": 0.0, "final": 0.0}
    predicted = of_predicted = 0.0
    for name, job in jobs:
        kind = names_of(name)[0]
        count[kind] += 1
        spent[kind] += job["wall_seconds"] or 0.0
        if None not in (job["predicted_seconds"], job["wall_seconds"]):
            predicted += job["predicted_seconds"]
            of_predicted += job["wall_seconds"]
    return Sum(
        dataset,
        device,
        count["search"],
        spent["search"],
        count["final"],
        spent["final"],
        predicted,
        of_predicted,
    )


def cost_tables(lookup: Lookup) -> tuple[PlainTable, ...]:
    """Return the page's table; none where the evidence records no jobs."""
    lines = sums(lookup.evidence.blocks)
    rows = (PlainRow(one.texts, "" if one.dataset == "all" else one.dataset) for one in lines)
    caption = "Time spent against the prediction (each job: tables/cost.csv)."
    return (PlainTable(caption, HEADER, tuple(rows)),) if lines else ()


def cost_csv(jobs: Jobs, dirty: Collection[str] = ()) -> str:
    """Return one line a job; of those in ``dirty`` the commit is marked, too."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name, job in sorted(jobs.items()):
        commit = job["commit"] + (DIRTY if job.get("dirty") or name in dirty else "")
        known = (job["data_digest"], commit, job["device"])
        numbers = (plain(job["wall_seconds"]), plain(job["predicted_seconds"]))
        writer.writerow((name, *names_of(name), *known, *numbers))
    return buffer.getvalue()


def cost_markdown(jobs: Jobs, tier: str) -> str:
    """Return the sums as Markdown."""
    lines = ["# Time spent against the prediction", "", f"{tier_note(tier)} {EXPLAINED}", ""]
    lines += [f"| {' | '.join(HEADER)} |", "|---" * len(HEADER) + "|"]
    for one in sums(jobs):
        lines.append(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in one.texts)} |")
    return "\n".join(lines) + "\n"


def write_cost(lookup: Lookup, folder: Path) -> None:
    """Write ``cost.csv`` and ``cost.md``; neither where the evidence records no jobs."""
    jobs = lookup.evidence.blocks
    dirty = {final for final, run in lookup.evidence.runs.items() if run.get("dirty")}
    for name, text in (
        ("cost.csv", cost_csv(jobs, dirty)),
        ("cost.md", cost_markdown(jobs, lookup.evidence.study.tier)),
    ):
        if jobs:
            write_text(folder / name, text)
        else:
            (folder / name).unlink(missing_ok=True)
