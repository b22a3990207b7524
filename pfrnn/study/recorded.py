"""What a report's evidence records as done, so that a fresh clone goes on from there.

A study may run in slices: some hours in one clone, the next ones in another. What each slice leaves
in git is the evidence of the published report (``reports/``), not ``results/``. Ids hold the digest
of the parameters, so a recorded id that stands in the plan is a result of that plan.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pfrnn.errors import RecordError
from pfrnn.study.config import load_config
from pfrnn.study.data.availability import with_sets
from pfrnn.study.data.registry import dataset
from pfrnn.study.files import digest_of, read_mapping, sha256_file
from pfrnn.study.plan import Plan, make_plan, prepare_again
from pfrnn.study.workload import Sizes, dataset_sizes, seconds, tasks


class Recorded(NamedTuple):
    """The part of the evidence that a plan still asks for.

    Attributes:
        folder: of the evidence.
        finals: recorded finals of the plan -> digest of their data.
        blocks: recorded search blocks of the plan -> digest of their data.
        cards: prepared card of each recorded data set.
        outside: recorded finals that the plan doesn't hold (any more).
    """

    folder: Path
    finals: Mapping[str, str]
    blocks: Mapping[str, str]
    cards: Mapping[str, Mapping[str, Any]]
    outside: tuple[str, ...]


class Progress(NamedTuple):
    """How much of a plan, or of a part of it, is done.

    Attributes:
        blocks: search blocks, and how many of them are done.
        finals: finals, and how many of them are done.
        hours: predicted for all, at most, and of that for what is done.
    """

    blocks: tuple[int, int]
    finals: tuple[int, int]
    hours: tuple[float, float]


def whole_plan(params: Path | str, tier: str | None = None) -> Plan:
    """Return the plan of all that a tier may run, substitutes included."""
    config = load_config(params, tier)
    return make_plan(with_sets(config, config.study.substitutes), params)


def tier_recorded(folder: Path) -> str | None:
    """Return the tier of the evidence in a folder; None where there is none."""
    is_there = (folder / "data" / "study.json").is_file()
    return str(read_part(folder, "study.json")["tier"]) if is_there else None


def published_for(tier: str, reports: Path = Path("reports")) -> Path | None:
    """Return the folder of a tier's published report; None where none is published.

    Args:
        tier: the tier's name.
        reports: the main study's report; another tier's lies in a folder of its name within.
    """
    folders = (reports, reports / tier)
    return next((folder for folder in folders if tier_recorded(folder) == tier), None)


def read_recorded(folder: Path, plan: Plan) -> Recorded:
    """Read what an evidence folder records of a plan.

    Args:
        folder: the report's folder, with ``results.csv`` and ``data/``.
        plan: the tier's whole plan; what it doesn't hold any more is left out.

    Raises:
        RecordError: there is no evidence, it is another tier's, or it is damaged.
    """
    tier = tier_recorded(folder)
    if tier != plan.config.tier:
        got = f"evidence of tier {tier}" if tier else "no data/study.json there"
        raise RecordError(
            f"{folder}: expected the evidence of a report of tier {plan.config.tier}, got {got}; "
            "name the folder that `pfrnn report --out` wrote, or leave the recorded results out"
        )
    finals, blocks = {cell.final_id for cell in plan.cells}, {block.id for block in plan.blocks}
    jobs = read_part(folder, "blocks.json")
    path = folder / "results.csv"
    try:
        with path.open(encoding="utf-8", newline="") as source:
            found = {row["final_id"]: row["data_digest"] for row in csv.DictReader(source)}
    except (OSError, ValueError, KeyError) as error:
        raise RecordError(f"{path}: cannot be read ({error}); {evidence_cure(path)}") from error
    return Recorded(
        folder,
        {name: digest for name, digest in found.items() if name in finals},
        {name: str(job["data_digest"]) for name, job in jobs.items() if name in blocks},
        read_part(folder, "cards.json"),
        tuple(name for name in found if name not in finals),
    )


def remaining(plan: Plan, recorded: Recorded) -> Plan:
    """Return the plan without the cells whose finals are recorded.

    A block that is recorded while a final that needs it isn't stays: its states are not in the
    evidence, so it has to be trained again where its folder isn't there.
    """
    cells = tuple(cell for cell in plan.cells if cell.final_id not in recorded.finals)
    kept = {cell.dataset for cell in cells}
    protocols = {name: own for name, own in plan.protocols.items() if name in kept}
    return plan._replace(cells=cells, protocols=protocols)


def rest_of(plan: Plan, folder: Path, prepared: Path | str = "data/prepared") -> Plan:
    """Return what a plan has left to run besides what an evidence folder records.

    Raises:
        RecordError: no evidence of this tier, or other data prepared here than it comes from.
    """
    recorded = read_recorded(folder, plan)
    rest = remaining(plan, recorded)
    check_data(rest, Path(prepared), recorded)
    return rest


def evidence_digest(folder: Path) -> str:
    """Digest of the files of an evidence folder; one that isn't there has the digest of none."""
    files = [folder / "results.csv", *sorted((folder / "data").glob("*.*"))]
    return digest_of([[path.name, sha256_file(path)] for path in files if path.is_file()])


def done_ids(plan: Plan, recorded: Recorded) -> frozenset[str]:
    """Return the blocks and finals that count as done.

    A block does when it is recorded itself, or when every final that needs it is.
    """
    needed = {block.id for block in remaining(plan, recorded).blocks}
    unneeded = {block.id for block in plan.blocks} - needed
    return frozenset(unneeded | recorded.blocks.keys() | recorded.finals.keys())


def again_ids(plan: Plan, recorded: Recorded) -> list[str]:
    """Return recorded blocks that a clone without their folders trains again for their finals."""
    left = remaining(plan, recorded).blocks
    return [block.id for block in left if block.id in recorded.blocks]


def progress(plan: Plan, sizes: Mapping[str, Sizes], done: frozenset[str]) -> Progress:
    """Count what of a plan is done.

    Args:
        plan: a whole plan or a part of it.
        sizes: of each data set.
        done: ids that count as done.
    """
    counts = {True: [0, 0], False: [0, 0]}
    hours = [0.0, 0.0]
    for task in tasks(plan, sizes):
        config = plan.config_of(task.dataset, task.model)
        predicted = seconds(config, task, sizes[task.dataset]) / 3600
        for place in range(2 if task.id in done else 1):
            counts[task.tests][place] += 1
            hours[place] += predicted
    blocks, finals = counts[False], counts[True]
    return Progress((blocks[0], blocks[1]), (finals[0], finals[1]), (hours[0], hours[1]))


def known_sizes(plan: Plan, prepared: Path, recorded: Recorded | None) -> dict[str, Sizes]:
    """Return the size of each data set: as prepared here, as recorded, or bounded."""
    sizes = dataset_sizes(plan, prepared)
    for name in unprepared(plan, prepared, None):
        if recorded and _is_planned(plan, name, recorded.cards):
            sizes[name] = sizes_of(recorded.cards[name])
    return sizes


def unprepared(plan: Plan, prepared: Path, recorded: Recorded | None) -> list[str]:
    """Return the sets whose sizes are bounds: not prepared here, and in no recorded card.

    A simulated set's sizes are its protocol's.
    """
    return [
        name
        for name in plan.protocols
        if dataset(name).card.files
        and not (prepared / plan.prepared_id(name) / "card.json").is_file()
        and not (recorded and _is_planned(plan, name, recorded.cards))
    ]


def _is_planned(plan: Plan, name: str, cards: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a set's card is of the protocol and seed that the plan asks for."""
    return name in cards and plan.prepared_id(name) == f"{name}-{cards[name]['protocol_digest']}"


def sizes_of(card: Mapping[str, Any]) -> Sizes:
    """Return the sizes that a prepared card states."""
    counts = card["sequences"]
    return Sizes(
        counts["train"], counts["validation"], counts["test"], card.get("max_length") or 100
    )


def other_data(plan: Plan, prepared: Path, recorded: Recorded) -> dict[str, tuple[str, str]]:
    """Return a plan's sets prepared here with other data than recorded results: both digests.

    Results of the two must not share a table, so this is worth knowing before training.
    """
    found = {}
    for job, digest in [*recorded.finals.items(), *recorded.blocks.items()]:
        name = job.split("/")[1]
        if name not in plan.protocols:
            continue
        card = prepared / plan.prepared_id(name) / "card.json"
        if card.is_file() and name not in found:
            found_here = read_mapping(card, prepare_again(card.parent, plan))
            here = str(found_here.get("arrays_digest"))
            if here != digest:
                found[name] = (digest, here)
    return found


def check_data(plan: Plan, prepared: Path, recorded: Recorded) -> None:
    """Refuse to go on with other data than the recorded results have.

    Raises:
        RecordError: a data set is prepared here with another digest.
    """
    for name, (digest, here) in other_data(plan, prepared, recorded).items():
        raise RecordError(
            f"{recorded.folder}: recorded results of data set {name} come from data "
            f"{digest[:12]}, prepared here are {here[:12]}; "
            f"{what_to_do(name, recorded.folder, plan)}"
        )


def what_to_do(name: str, folder: Path, plan: Plan) -> str:
    """Say how to get a data set's results onto one version of its data."""
    return (
        f"put the raw files (or data/prepared/{name}-...) of the recorded version here and run "
        f"{name} again, or give up its recorded results: "
        f"pfrnn report {plan.options} --out {folder} --drop {name}"
    )


def read_part(folder: Path, name: str) -> dict[str, Any]:
    """Read a JSON file of the evidence, ``data/<name>``.

    Raises:
        RecordError: it is missing, empty, cut, or holds no mapping.
    """
    path = folder / "data" / name
    return read_mapping(path, evidence_cure(path))


def evidence_cure(path: Path) -> str:
    """Say how to get a lost or damaged file of a report back, for the end of a message."""
    return (
        f"take the committed one back (`git checkout -- {path}`), or write the report again from "
        "its results into an empty folder (`pfrnn report --out DIR`)"
    )
