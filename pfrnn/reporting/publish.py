"""Publish a tier's results into a folder that may hold the evidence of earlier slices."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path
from typing import NamedTuple

from pfrnn.errors import ConfigError, RecordError
from pfrnn.evaluation.aggregate import check_table
from pfrnn.plan import Plan
from pfrnn.recorded import read_part, tier_recorded
from pfrnn.reporting.collect import collect, read_prepared
from pfrnn.reporting.evidence import Study, read_results
from pfrnn.reporting.merge import merge


class Slices(NamedTuple):
    """What a publication goes on from.

    Attributes:
        plan: the tier's whole plan.
        recorded: folder whose evidence is merged with the results; None: no merge.
        drop: SET or SET/VARIANT whose recorded results are given up.
    """

    plan: Plan
    recorded: Path | None = None
    drop: tuple[str, ...] = ()


def gather(results: Path, prepared: Path, study: Study, out: Path, slices: Slices) -> list[str]:
    """Write the evidence folder ``out`` from the results and what is recorded.

    Evidence of the same tier is merged; another tier's is replaced.

    Returns:
        What was kept, dropped and replaced, in words.

    Raises:
        RecordError: there is nothing to replace another tier's evidence with; finished finals are
            not in ``results.csv``, or other rows than theirs; two versions of a data set, or none.
    """
    recorded, said = slices.recorded, []
    if (results / "results.csv").is_file():
        read_results(results / "results.csv")  # a damaged one is no table to compare
    check_table(slices.plan, results)
    tier = tier_recorded(recorded) if recorded else None
    if recorded:
        _check_aggregated(results, slices.plan)
    if tier not in (None, study.tier):
        if not _finals(results):
            raise RecordError(
                f"{results}: no results of tier {study.tier} to put in the place of tier {tier}'s "
                f"evidence in {recorded}; run the tier, or name another folder (--out)"
            )
        said.append(f"replaced: {recorded} held the evidence of tier {tier}")
    merged = recorded if tier == study.tier else None
    _check_cards(results, prepared, merged, slices.plan)
    if merged is None:
        if slices.drop:
            raise ConfigError(
                f"--drop {slices.drop[0]}: no evidence of tier {study.tier} that it could be "
                "dropped from; name its folder (--out or --recorded)"
            )
        collect(results, prepared, study, out, slices.plan)
        return said
    with tempfile.TemporaryDirectory() as temporary:
        collect(results, prepared, study, Path(temporary), slices.plan)
        return merge(merged, Path(temporary), slices.plan, out, slices.drop)


def _finals(results: Path) -> set[str]:
    return _column(results, "final_id")


def _column(results: Path, name: str) -> set[str]:
    path = results / "results.csv"
    if not path.is_file():
        return set()
    with path.open(encoding="utf-8", newline="") as source:
        return {row[name] for row in csv.DictReader(source)}


def _check_cards(results: Path, prepared: Path, recorded: Path | None, plan: Plan) -> None:
    """Refuse results of data that nothing here describes, as those of another machine."""
    cards = [read_prepared(path)["name"] for path in prepared.glob("*/card.json")]
    if recorded:
        cards += read_part(recorded, "cards.json")
    if unknown := sorted(_column(results, "dataset") - set(cards)):
        raise RecordError(
            f"{results / 'results.csv'}: results of {', '.join(unknown)}, but {prepared} has no "
            "card of this data (its state, controls and sizes); prepare it first: "
            + "; ".join(f"pfrnn prepare {name} {plan.options}" for name in unknown)
        )


def _check_aggregated(results: Path, plan: Plan) -> None:
    """Refuse to publish while finished finals would be passed over, as after an interrupted run."""
    listed = _finals(results)
    finals = dict.fromkeys(cell.final_id for cell in plan.cells)
    passed = [
        final
        for final in finals
        if final not in listed and (results / final / "run.json").is_file()
    ]
    if passed:
        raise RecordError(
            f"{results}: {len(passed)} finished finals are not in results.csv, {passed[0]} for "
            f"one; run `pfrnn aggregate {plan.options}` first"
        )
