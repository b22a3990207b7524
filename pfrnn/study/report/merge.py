"""Add a slice of a study to the evidence of earlier ones: whole finals, the newer wins."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pandas as pd

from pfrnn.study.plan import Plan
from pfrnn.study.report.collect import Jobs, check_cards, finals_of, pictured, predict
from pfrnn.study.report.evidence import Evidence


def merge(
    old: Evidence, new: Evidence, plan: Plan, drop: Collection[str] = ()
) -> tuple[Evidence, list[str]]:
    """Return the evidence of both, and what was kept and dropped, in words.

    Args:
        old: of earlier slices.
        new: of the results that are here: where both have a final, it is taken from here.
        plan: the tier's whole plan: a recorded job that it doesn't hold any more is dropped.
        drop: SET or SET/VARIANT whose recorded jobs are given up.

    Raises:
        RecordError: rows of one data set come from two versions of its data.
    """
    planned = {cell.final_id for cell in plan.cells} | {block.id for block in plan.blocks}
    old_jobs = finals_of(old.results) | old.blocks
    jobs = {job for job in old_jobs if job in planned and not _given_up(job, drop)}
    fresh = set(new.results["final_id"])
    finals = list(dict.fromkeys(old.results["final_id"]))
    kept = [final for final in finals if final in jobs and final not in fresh]
    rows = pd.concat([_only(old.results, kept), new.results], ignore_index=True)
    rows = in_plans_order(rows, plan)
    cards, sequences = _cards(old, new, rows)
    blocks = {job: old_jobs[job] for job in old_jobs if job in jobs}
    beliefs = _united(old.beliefs, new.beliefs, kept)
    shown = pictured(rows[rows["final_id"].isin(list(beliefs))])
    merged = Evidence(
        study=_study(old, new, rows, cards),
        results=rows,
        histories=pd.concat(
            [_only(old.histories, kept), new.histories], ignore_index=True
        ).sort_values("final_id", kind="stable"),
        cards=cards,
        runs=_united(old.runs, new.runs, kept),
        choices=_united(old.choices, new.choices, kept),
        series=_united(old.series, new.series, kept),
        beliefs={final: beliefs[final] for final in shown},
        sequences=sequences,
        blocks=predict(_jobs(blocks, new.blocks), plan, cards),
    )
    check_cards(merged, plan)
    said = [
        f"merged: {len(kept)} finals as recorded, {len(fresh)} from the results "
        f"({len(fresh.intersection(finals))} of them recorded before)"
    ]
    for final in finals:
        if final not in jobs and final not in fresh:
            why = "as asked" if final in planned else "no longer in the tier's plan"
            said.append(f"dropped, {why}: {final}")
    return merged, said


def _given_up(job: str, drop: Collection[str]) -> bool:
    kind, dataset, variant = job.split("/")[:3]
    variant = variant.rsplit("-", 2)[0] if kind == "final" else variant
    return dataset in drop or f"{dataset}/{variant}" in drop


def _only(frame: pd.DataFrame, finals: Collection[str]) -> pd.DataFrame:
    return frame[frame["final_id"].isin(list(finals))]


def _united(old: dict[str, Any], new: dict[str, Any], kept: Collection[str]) -> dict[str, Any]:
    return {final: old[final] for final in kept if final in old} | new


def in_plans_order(rows: pd.DataFrame, plan: Plan) -> pd.DataFrame:
    """Return rows in the plan's order; those of finals that it doesn't hold come last.

    Cells that train the same thing share a final, so a cell that was added to the plan may find
    its rows under another variant's name.
    """
    finals = {str(name): own for name, own in rows.groupby("final_id", sort=False)}
    parts = []
    for cell in plan.cells:
        if (own := finals.get(cell.final_id)) is not None:
            names = set(own["variant"])
            name = cell.variant if cell.variant in names else own["variant"].iloc[0]
            parts.append(own[own["variant"] == name].assign(variant=cell.variant))
    planned = {cell.final_id for cell in plan.cells}
    parts.append(rows[~rows["final_id"].isin(planned)])
    return pd.concat(parts, ignore_index=True)


def _cards(
    old: Evidence, new: Evidence, rows: pd.DataFrame
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Cards and sequences of each set: of the side whose data the rows have, the newer first."""
    digests = dict(zip(rows["dataset"], rows["data_digest"], strict=True))
    cards, sequences = {}, {}
    for name in sorted({*new.study.datasets, *digests}):
        sides = [side for side in (new, old) if name in side.cards]
        fitting = [
            side
            for side in sides
            if digests.get(name, side.cards[name]["arrays_digest"])
            in (side.cards[name]["arrays_digest"], side.cards[name]["protocol_digest"])
        ]
        for side in (fitting or sides)[:1]:
            cards[name] = side.cards[name]
            sequences[name] = side.sequences.get(name, {})
    return cards, sequences


def _study(old: Evidence, new: Evidence, rows: pd.DataFrame, cards: Collection[str]) -> Any:
    """The new study; a set is missing that was, unless it has results or was prepared since."""
    study, before = new.study, old.study
    ran = set(rows["dataset"])
    missing = {
        name: why
        for name, why in (before.missing | study.missing).items()
        if name in study.datasets
        and name not in ran
        and (name in study.missing or name not in cards)
    }
    files = before.missing_files | study.missing_files
    stand_ins = {*study.stand_ins, *before.stand_ins} & (ran | set(cards))
    return study._replace(
        missing=missing,
        missing_files={name: files[name] for name in missing if name in files},
        stand_ins=sorted(stand_ins),
    )


def _jobs(old: Jobs, new: Jobs) -> Jobs:
    """All jobs; one that is on both sides keeps the prediction that was recorded with it."""
    merged = old | new
    for name in old.keys() & new.keys():
        if old[name] | {"predicted_seconds": None} == new[name] | {"predicted_seconds": None}:
            merged[name] = old[name]
    return merged
