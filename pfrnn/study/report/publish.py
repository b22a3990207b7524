"""Publish a tier's results into a folder that may hold the evidence of earlier slices."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path
from typing import NamedTuple

from pfrnn.errors import ConfigError, RecordError
from pfrnn.study.evaluate.aggregate import check_table
from pfrnn.study.plan import Plan
from pfrnn.study.recorded import read_part, tier_recorded
from pfrnn.study.report.collect import collect, digests_of, read_prepared
from pfrnn.study.report.evidence import Study, read_results
from pfrnn.study.report.merge import merge


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
    return {final for (final,) in _pairs(results, "final_id")}


def _pairs(results: Path, *names: str) -> set[tuple[str, ...]]:
    """The different values that columns of the results have together."""
    path = results / "results.csv"
    if not path.is_file():
        return set()
    with path.open(encoding="utf-8", newline="") as source:
        return {tuple(row[name] for name in names) for row in csv.DictReader(source)}


def _check_cards(results: Path, prepared: Path, recorded: Path | None, plan: Plan) -> None:
    """Refuse results of data that nothing here describes, as those of another machine.

    A card of other data than the results' describes them as little as none.
    """
    described: dict[str, set[str]] = {}
    for path in sorted(prepared.glob("*/card.json")):
        card = read_prepared(path, plan)
        described.setdefault(card["name"], set()).update(digests_of(card))
    for name, card in read_part(recorded, "cards.json").items() if recorded else ():
        described.setdefault(name, set()).update(digests_of(card))
    used = _pairs(results, "dataset", "data_digest")
    if unknown := sorted({name for name, _ in used} - described.keys()):
        raise RecordError(
            f"{results / 'results.csv'}: results of {', '.join(unknown)}, but {prepared} has no "
            "card of this data (its state, controls and sizes); prepare it first: "
            + "; ".join(f"pfrnn prepare {name} {plan.options}" for name in unknown)
        )
    for name, digest in sorted(used):
        if digest not in described[name]:
            here = ", ".join(sorted(one[:12] for one in described[name]))
            raise RecordError(
                f"{results / 'results.csv'}: results of {name} are of data {digest[:12]}, prepared "
                f"or recorded are {here}; put the raw files of the results' version here and run "
                f"`pfrnn prepare {name} {plan.options}`, or run {name} again with the data here"
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
