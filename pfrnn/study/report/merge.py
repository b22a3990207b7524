"""Lay the evidence of one slice of a study over what earlier slices recorded.

Finals stand for themselves, so a merge takes each from the one side or the other: from the new
results where they have it, else from the record. What doesn't depend on the sides' order: rows are
sorted as the plan has them, all else by id.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pfrnn.errors import RecordError
from pfrnn.study.files import canonical_json, write_json, write_text
from pfrnn.study.plan import Plan
from pfrnn.study.recorded import read_jobs, read_part, read_table, what_to_do
from pfrnn.study.records import RESULT_COLUMNS
from pfrnn.study.report.blocks import Jobs, names_of, predict, recorded_finals
from pfrnn.study.report.collect import pictured
from pfrnn.study.report.evidence import BEST_SO_FAR, HISTORY
from pfrnn.study.report.licensing import allowed, licensed
from pfrnn.study.report.numbers import steady

Row = dict[str, str]
# Files that map a final's id to what is known of it, and how they are written.
BY_FINAL = ("runs.json", "choices.json", "series.json")


class Side(NamedTuple):
    """One side of a merge: an evidence folder as text and plain data."""

    folder: Path
    rows: list[Row]
    jobs: Jobs

    @property
    def finals(self) -> dict[str, None]:
        """Ids of its finals, in the order of its rows."""
        return dict.fromkeys(row["final_id"] for row in self.rows)

    def read(self, name: str) -> dict[str, Any]:
        """Read one of its files below ``data/``."""
        return read_part(self.folder, name)


def merge(
    recorded: Path, fresh: Path, plan: Plan, out: Path, drop: Collection[str] = ()
) -> list[str]:
    """Write the merged evidence into ``out``; return what was kept and dropped, in words.

    Args:
        recorded: evidence of earlier slices; may be ``out``.
        fresh: evidence of the results that are here (``pfrnn.study.report.collect``).
        plan: the tier's whole plan: a recorded job that it doesn't hold any more is dropped.
        out: the report's folder.
        drop: SET or SET/VARIANT whose recorded jobs are given up.

    Raises:
        RecordError: rows of one data set come from two versions of its data.
    """
    old, new = _side(recorded), _side(fresh)
    planned = {cell.final_id for cell in plan.cells} | {block.id for block in plan.blocks}
    kept_jobs = {
        name: job
        for name, job in (recorded_finals(old.rows) | old.jobs).items()
        if name in planned and not _given_up(name, drop)
    }
    kept = [name for name in old.finals if name in kept_jobs and name not in new.finals]
    _check_data(kept_jobs, new, recorded, plan)
    rows = _rows(old, new, kept, plan)
    merged = _merged_files(old, new, kept, rows)
    merged["blocks.json"] = predict(_jobs(kept_jobs, new.jobs), plan, merged["cards.json"])
    histories = _histories(old, kept) + _histories(new, new.finals)
    write_text(out / "results.csv", _csv_text(RESULT_COLUMNS, rows))
    for name, value in merged.items():
        if name in ("beliefs.json", "sequences.json"):  # large: on one line
            write_text(out / "data" / name, canonical_json(value) + "\n")
        else:
            write_json(out / "data" / name, value)
    histories.sort(key=lambda row: row["final_id"])
    write_text(out / "data" / "histories.csv", _csv_text((*HISTORY, BEST_SO_FAR), histories))
    return _said(old, new, kept, planned, drop)


def _side(folder: Path) -> Side:
    return Side(folder, read_table(folder / "results.csv", RESULT_COLUMNS), read_jobs(folder))


def _given_up(job: str, drop: Collection[str]) -> bool:
    _, dataset, variant = names_of(job)
    return dataset in drop or f"{dataset}/{variant}" in drop


def _check_data(kept: Jobs, new: Side, recorded: Path, plan: Plan) -> None:
    """Refuse to lay results of one version of a data set beside results of another."""
    here: dict[str, str] = {}
    for row in new.rows:
        here.setdefault(row["dataset"], row["data_digest"])
    for name, job in new.jobs.items():
        here.setdefault(names_of(name)[1], job["data_digest"])
    for name, job in kept.items():
        dataset, fresh = names_of(name)[1], new.jobs.get(name)
        if fresh is None and here.get(dataset, job["data_digest"]) != job["data_digest"]:
            raise RecordError(
                f"{recorded}: recorded results of data set {dataset} come from data "
                f"{job['data_digest'][:12]}, the new ones from {here[dataset][:12]}; rows of two "
                "versions of a data set must not share a table: "
                f"{what_to_do(dataset, recorded, plan)}"
            )


def _rows(old: Side, new: Side, kept: Collection[str], plan: Plan) -> list[Row]:
    """Return all rows in the plan's order.

    Cells that train the same thing share their final, so a cell added to the plan may find its
    rows under another variant's name. New rows that the plan doesn't hold come last.
    """
    by_final: dict[str, dict[str, list[Row]]] = {}
    for side, chosen in ((old, set(kept)), (new, set(new.finals))):
        for row in side.rows:
            if row["final_id"] in chosen:
                own = by_final.setdefault(row["final_id"], {})
                own.setdefault(row["variant"], []).append(row)
    rows: list[Row] = []
    planned: set[tuple[str, str]] = set()
    for cell in plan.cells:
        ran = by_final.get(cell.final_id)
        if ran:
            named = ran.get(cell.variant) or next(iter(ran.values()))
            rows += [row | {"variant": cell.variant} for row in named]
            planned.add((cell.final_id, cell.variant))
    return rows + [row for row in new.rows if (row["final_id"], row["variant"]) not in planned]


def _merged_files(
    old: Side, new: Side, kept: Collection[str], rows: Iterable[Row]
) -> dict[str, Any]:
    rows = list(rows)
    digests = {row["dataset"]: row["data_digest"] for row in rows}
    merged: dict[str, Any] = {
        name: {final: value for final, value in old.read(name).items() if final in kept}
        | new.read(name)
        for name in BY_FINAL
    }
    study = new.read("study.json")
    cards, sequences = {}, {}
    for name in sorted({*study["datasets"], *digests}):
        side = _card_side(old, new, name, digests.get(name))
        if side:
            cards[name] = side.read("cards.json")[name]
            sequences[name] = side.read("sequences.json")[name]
    merged["cards.json"] = licensed(cards)
    merged["sequences.json"] = allowed(sequences, merged["cards.json"])
    merged["study.json"] = _study(study, old.read("study.json"), set(digests), set(cards))
    beliefs = {k: v for k, v in old.read("beliefs.json").items() if k in kept} | new.read(
        "beliefs.json"
    )
    known = ((r["dataset"], r["variant"], r["final_id"]) for r in rows if r["final_id"] in beliefs)
    merged["beliefs.json"] = {final: beliefs[final] for final in pictured(known)}
    return merged


def _card_side(old: Side, new: Side, name: str, digest: str | None) -> Side | None:
    """The side whose card of a data set is the rows'; where there are no rows, the new one.

    Where both are and say the same, the record's stays: another machine rounds the last digits of
    a card's numbers otherwise, and that is no change of the evidence.
    """
    pairs = [(side, side.read("cards.json").get(name)) for side in (new, old)]
    having = [(side, card) for side, card in pairs if card is not None]
    fitting = [
        (side, card)
        for side, card in having
        if digest in (None, card["arrays_digest"], card["protocol_digest"])
    ]
    said = [steady(card) for _, card in fitting]
    if len(said) == 2 and said[0] == said[1]:
        return old
    return next((side for side, _ in fitting or having), None)


def _study(
    study: dict[str, Any], old: Mapping[str, Any], ran: set[str], prepared: set[str]
) -> dict[str, Any]:
    """The new study; a set is missing that was, unless it has results or was prepared since."""
    said = {
        name: reason
        for name, reason in (old["missing"] | study["missing"]).items()
        if name not in ran and (name in study["missing"] or name not in prepared)
    }
    files = old["missing_files"] | study["missing_files"]
    stand_ins = dict.fromkeys((*study["stand_ins"], *old.get("stand_ins", ())))
    return study | {
        "missing": {name: reason for name, reason in said.items() if name in study["datasets"]},
        "missing_files": {name: files[name] for name in said if name in files},
        "stand_ins": sorted(name for name in stand_ins if name in ran or name in prepared),
    }


def _jobs(kept: Jobs, new: Jobs) -> Jobs:
    """All jobs; one that is on both sides keeps the prediction that was recorded with it."""
    merged = kept | new
    for name in kept.keys() & new.keys():
        same = kept[name] | {"predicted_seconds": None} == new[name] | {"predicted_seconds": None}
        merged[name] = kept[name] if same else new[name]
    return merged


def _histories(side: Side, finals: Collection[str]) -> list[Row]:
    path, wanted = side.folder / "data" / "histories.csv", set(finals)
    return [row for row in read_table(path, HISTORY) if row["final_id"] in wanted]


def _said(
    old: Side, new: Side, kept: Collection[str], planned: set[str], drop: Collection[str]
) -> list[str]:
    again = sum(name in new.finals for name in old.finals)
    said = [
        f"merged: {len(kept)} finals as recorded in {old.folder}, {len(new.finals)} from the "
        f"results ({again} of them recorded before)"
    ]
    for name in old.finals:
        if name not in new.finals and name not in planned:
            said.append(f"dropped, no longer in the tier's plan: {name}")
        elif name not in new.finals and _given_up(name, drop):
            said.append(f"dropped, as asked: {name}")
    blocks = [name for name in old.jobs if names_of(name)[0] == "search" and name not in new.jobs]
    gone = sum(name not in planned or _given_up(name, drop) for name in blocks)
    foreign = sum(name not in planned for name in new.finals)
    if foreign:
        said.append(
            f"kept: {foreign} finals from the results that the plan doesn't hold, so other "
            "parameters than the present ones; a merge into this evidence will drop them"
        )
    return said + ([f"dropped with them: {gone} search blocks"] if gone else [])


def _csv_text(columns: Iterable[str], rows: Iterable[Row]) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()
