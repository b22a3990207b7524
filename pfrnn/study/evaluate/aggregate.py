"""Gathering all finals of a tier into one tidy table, results.csv."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pfrnn.errors import RecordError
from pfrnn.study.evaluate.record import check_record, read_rows
from pfrnn.study.files import digest_of, write_text
from pfrnn.study.jobfolder import again
from pfrnn.study.plan import Cell, Plan, cell_parameters
from pfrnn.study.records import RESULT_COLUMNS, TEST_COLUMNS
from pfrnn.study.variants import variant


class Aggregated(NamedTuple):
    """What was gathered.

    Attributes:
        rows: rows written.
        finals: finals they come from.
        absent: ids of planned finals that have not finished, one that cells share once.
        outside: ids of finished finals that the plan doesn't hold.
    """

    rows: int
    finals: int
    absent: tuple[str, ...]
    outside: tuple[str, ...]


def aggregate(plan: Plan, results: Path, missing: Collection[str] = ()) -> Aggregated:
    """Write ``results.csv`` below ``results`` from every finished final of the plan.

    Args:
        plan: the tier's plan.
        results: the tier's folder.
        missing: data sets that can't be had: their finals are not expected.

    Raises:
        RecordError: a final's parameters aren't the plan's, its scores aren't whole, two finals of
            a data set have other data, or no final has finished.
    """
    rows: list[dict[str, Any]] = []
    absent: dict[str, None] = {}
    finals: set[str] = set()
    for cell in plan.cells:
        if cell.dataset in missing:
            continue
        if not (results / cell.final_id / "run.json").exists():
            absent[cell.final_id] = None
            continue
        rows += final_rows(plan, cell, results)
        finals.add(cell.final_id)
    _check_data(rows, results)
    outside = outside_of(plan, results)
    if not rows and not missing:
        raise RecordError(
            f"{results}: no finished final; run `pfrnn final` first{_others(outside)}"
        )
    write_text(results / "results.csv", _text(rows))
    return Aggregated(len(rows), len(finals), tuple(absent), outside)


def outside_of(plan: Plan, results: Path) -> tuple[str, ...]:
    """Return the finished finals that a plan doesn't hold: other parameters, or another study."""
    planned = {cell.final_id for cell in plan.cells}
    found = (path.parent.relative_to(results) for path in results.glob("final/*/*/run.json"))
    return tuple(sorted({path.as_posix() for path in found} - planned))


def _others(outside: Sequence[str]) -> str:
    if not outside:
        return ""
    return (
        f" ({len(outside)} are here that the plan doesn't hold, {outside[0]} for one: they have "
        "other parameters, or belong to a study with a file of its own, which --params names)"
    )


def check_table(plan: Plan, results: Path) -> None:
    """Refuse a ``results.csv`` that says other than the finals' own records, which have seals.

    Rows of finals that the plan hasn't, or whose records aren't here, are passed over.

    Args:
        plan: the tier's plan.
        results: the tier's folder.

    Raises:
        RecordError: a cell's rows are not those of its final; a final's records are damaged.
    """
    path = results / "results.csv"
    listed = _by_cell(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for cell in plan.cells:
        found = listed.get((cell.final_id, cell.variant, cell.size_rule))
        if found is None or not (results / cell.final_id / "test.csv").is_file():
            continue
        (expected,) = _by_cell(_text(final_rows(plan, cell, results))).values()
        if found != expected:
            raise RecordError(
                f"{path}: {_difference(expected, found)}; those are the records of "
                f"{cell.final_id}; `pfrnn aggregate {plan.options}` writes it anew"
            )


def _by_cell(text: str) -> dict[tuple[str, str, str], list[tuple[str, ...]]]:
    """Rows of a results file by final, variant and size rule, in the order of what was scored."""
    scored = [RESULT_COLUMNS.index(name) for name in ("metric", "repetition")]
    found: dict[tuple[str, str, str], list[tuple[str, ...]]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        key = (row.get("final_id") or "", row.get("variant") or "", row.get("size_rule") or "")
        found.setdefault(key, []).append(tuple(row.get(name) or "" for name in RESULT_COLUMNS))
    return {
        key: sorted(rows, key=lambda row: [row[place] for place in scored])
        for key, rows in found.items()
    }


def _difference(expected: list[tuple[str, ...]], found: list[tuple[str, ...]]) -> str:
    """Say the first value that differs."""
    if len(expected) != len(found):
        return f"expected {len(expected)} rows, got {len(found)}"
    one, other = next(pair for pair in zip(expected, found, strict=True) if pair[0] != pair[1])
    return ", ".join(
        f"{name}: expected {right}, got {wrong}"
        for name, right, wrong in zip(RESULT_COLUMNS, one, other, strict=True)
        if right != wrong
    )


def _text(rows: Sequence[Mapping[str, Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, RESULT_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def final_rows(plan: Plan, cell: Cell, results: Path) -> list[dict[str, Any]]:
    """Return a cell's rows of ``results.csv``, from its finished final.

    Raises:
        RecordError: the final has other parameters, its record lacks something, was changed or
            damaged, or its scores aren't whole.
    """
    folder = results / cell.final_id
    record = check_record(folder, digest_of(cell_parameters(plan, cell)))
    try:
        common = _common(plan, cell, record)
    except (KeyError, TypeError) as error:
        raise RecordError(
            f"{folder / 'run.json'}: expected a final's record, got one that lacks or damages an "
            f"entry ({error}); {again(folder)}"
        ) from error
    return [common | row for row in _scores(plan, cell, folder)]


def _common(plan: Plan, cell: Cell, record: Mapping[str, Any]) -> dict[str, Any]:
    """What all rows of a cell share."""
    selection, chosen = record["selection"], record["selection"]["chosen"]
    return {
        "tier": plan.config.tier,
        "dataset": cell.dataset,
        "variant": cell.variant,
        "size_rule": cell.size_rule,
        "hidden_size": chosen["hidden_size"],
        "particles": chosen["particles"],
        "batch_size": chosen["batch_size"],
        "learning_rate": chosen["learning_rate"],
        "clip": chosen["clip"],
        "l2": chosen["l2"],
        "fidelity": plan.config_of(cell.dataset, variant(cell.variant)).fidelity_label,
        "unit": record["unit"],
        "data_state": record["data_state"],
        "data_digest": record["data_digest"],
        "parameters": record["trainable_parameters"],
        "budget_configurations": selection["budget_configurations"],
        "budget_epochs": selection["budget_epochs"],
        "search_seconds": selection["search_seconds"],
        "final_seconds": record["wall_seconds"],
        "device": record["machine"]["device_name"],
        "commit": record["commit"],
        "final_id": cell.final_id,
    }


def _scores(plan: Plan, cell: Cell, folder: Path) -> list[dict[str, str]]:
    """Read a finished final's ``test.csv``."""
    rows = read_rows(folder, "test.csv", TEST_COLUMNS)
    evaluation = plan.config.for_dataset(cell.dataset).evaluation
    check_scores(folder / "test.csv", rows, evaluation.repetitions_for(variant(cell.trained)))
    return rows


def check_scores(path: Path, rows: Sequence[Mapping[str, Any]], repetitions: int) -> None:
    """Refuse scores with a repetition missing or twice: the interval would be another.

    Args:
        path: the file, for the message.
        rows: one a repetition and metric.
        repetitions: that were trained.

    Raises:
        RecordError: a column or row is missing, stands twice, or has no number for its value.
    """
    cure = "delete the final's folder (with .finished in it) and run it again"
    found: dict[str, list[str]] = {}
    for row in rows:
        if any(row.get(name) is None for name in ("repetition", "metric", "value")):
            raise RecordError(f"{path}: expected repetition, metric and value, got {row}; {cure}")
        found.setdefault(row["metric"], []).append(row["repetition"])
        try:
            float(row["value"])
        except ValueError:
            raise RecordError(
                f"{path}: expected a number for {row['metric']} of repetition "
                f"{row['repetition']}, got {row['value']!r}; {cure}"
            ) from None
    if not found:
        raise RecordError(f"{path}: expected scores of {repetitions} repetitions, got none; {cure}")
    for metric, given in found.items():
        if len(given) != repetitions or len(set(given)) != repetitions:
            raise RecordError(
                f"{path}: expected {metric} of {repetitions} repetitions, each once, got "
                f"{', '.join(given)}; {cure}"
            )


def _check_data(rows: Sequence[Mapping[str, Any]], results: Path) -> None:
    """Refuse finals of one data set that saw other data: they must not share a table."""
    first: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        other = first.setdefault(row["dataset"], row)
        if other["data_digest"] != row["data_digest"]:
            raise RecordError(
                f"{results}: {row['dataset']} was prepared differently for {other['final_id']} "
                f"({other['data_digest']}) and {row['final_id']} ({row['data_digest']}); prepare "
                "it once more and run the finals of one of them again"
            )
