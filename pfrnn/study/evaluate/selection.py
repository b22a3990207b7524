"""Choosing on validation data: which of a cell's members is retrained and tested."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pfrnn.errors import RecordError
from pfrnn.study.evaluate.record import check_record, entry_of, read_rows
from pfrnn.study.files import digest_of, read_json, read_mapping, write_json
from pfrnn.study.jobfolder import again
from pfrnn.study.plan import Block, Cell, Plan, Setting, block_parameters
from pfrnn.study.records import MEMBER_COLUMNS


class Candidate(NamedTuple):
    """One trained member of the search, as far as the choice needs it.

    Attributes:
        block_id: its block.
        member: its number in the block.
        hidden_size: the block's hidden size.
        particles: the block's particles.
        batch_size: the block's batch size.
        learning_rate: its learning rate.
        clip: its bound on the gradient norm.
        l2: its L2 weight.
        status: as in members.csv.
        epochs: epochs it trained.
        best_epoch: epoch of its best validation score.
        val_score: best validation score, lower is better; NaN when it diverged at once.
        val_loss: validation loss at that epoch.
        dropout: its rate, where the grid has several.
    """

    block_id: str
    member: int
    hidden_size: int
    particles: int
    batch_size: int
    learning_rate: float
    clip: float
    l2: float
    status: str
    epochs: int
    best_epoch: int
    val_score: float
    val_loss: float
    dropout: float | None = None


def better(score: float, loss: float, best_score: float, best_loss: float) -> bool:
    """Whether (score, loss) beats the best so far; a tie in the score goes to the smaller loss."""
    if not math.isfinite(score):
        return False
    if score != best_score:
        return score < best_score
    return loss < best_loss


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate with the best validation score.

    Ties in score and loss go to the first in plan order, so the choice doesn't depend on the
    order in which jobs finished.

    Raises:
        RecordError: no candidate has a finite score.
    """
    best: Candidate | None = None
    for candidate in candidates:
        incumbent = (math.inf, math.inf) if best is None else (best.val_score, best.val_loss)
        if better(candidate.val_score, candidate.val_loss, *incumbent):
            best = candidate
    if best is None:
        raise RecordError(
            f"none of {len(candidates)} members has a finite validation score: all diverged; "
            "lower grid.learning_rate or look at the blocks' history.csv"
        )
    return best


def read_candidates(plan: Plan, block: Block, results: Path) -> list[Candidate]:
    """Read the members of a finished block.

    Raises:
        RecordError: the block isn't finished, was trained with other parameters, or its members
            are not those that it recorded.
    """
    folder = results / block.id
    record = check_record(folder, digest_of(block_parameters(plan, block)))
    rows = read_rows(folder, "members.csv", MEMBER_COLUMNS)
    members = entry_of(record, "members", folder)
    if len(rows) != members:
        raise RecordError(
            f"{folder / 'members.csv'}: expected {members} members, got {len(rows)}; "
            f"{again(folder)}"
        )
    try:
        return [_candidate(block, row) for row in rows]
    except ValueError as error:
        raise RecordError(
            f"{folder / 'members.csv'}: expected numbers, got others ({error}); {again(folder)}"
        ) from error


def _candidate(block: Block, row: Mapping[str, str]) -> Candidate:
    """Return a line of members.csv; ValueError where a number isn't one."""
    return Candidate(
        block_id=block.id,
        member=int(row["member"]),
        hidden_size=block.hidden_size,
        particles=block.particles,
        batch_size=block.batch_size,
        learning_rate=float(row["learning_rate"]),
        clip=float(row["clip"]),
        l2=float(row["l2"]),
        status=row["status"],
        epochs=int(row["epochs"]),
        best_epoch=int(row["best_epoch"]),
        val_score=_number(row["val_score"]),
        val_loss=_number(row["val_loss"]),
        dropout=float(row["dropout"]) if "dropout" in row else None,
    )


def _number(text: str) -> float:
    return float(text) if text else math.inf


def select_cell(plan: Plan, selection_id: str, results: Path) -> dict[str, Any]:
    """Choose a cell's setting on validation data and write the selection file.

    Args:
        plan: the tier's plan.
        selection_id: names the cell and the file below ``results``.
        results: the tier's folder.

    Returns:
        What was written: the chosen candidate, the budget that it was chosen with, its rivals'
        number, and the search's wall time.

    Raises:
        RecordError: a block is missing or belongs to other parameters; all members diverged.
    """
    cell = plan.cell(selection_id)
    candidates = [one for block in cell.blocks for one in read_candidates(plan, block, results)]
    chosen = choose(candidates)
    folders = [results / block.id for block in cell.blocks]
    seconds = [entry_of(read_json(one / "run.json"), "wall_seconds", one) for one in folders]
    selection = {
        "dataset": cell.dataset,
        "variant": cell.trained,
        "size_rule": cell.size_rule,
        "digest": cell.digest,
        "chosen": {name: value for name, value in chosen._asdict().items() if value is not None},
        "budget_configurations": len(candidates),
        "budget_epochs": sum(one.epochs for one in candidates),
        "diverged": sum(one.status == "diverged" for one in candidates),
        "search_seconds": round(sum(seconds), 3),
    }
    write_json(results / selection_id, selection)
    return selection


def read_selection(plan: Plan, cell: Cell, results: Path) -> dict[str, Any]:
    """Read a cell's selection file.

    Args:
        plan: the cell's, whose options the command in a message has.
        cell: whose setting was selected.
        results: the tier's folder.

    Raises:
        RecordError: it is missing, damaged, or was made for other parameters.
    """
    path = results / cell.selection_id
    command = f"`pfrnn select {cell.selection_id} {plan.options}`"
    if not path.is_file():
        raise RecordError(f"{path}: missing; run {command} first")
    cure = f"run {command} again"
    selection = read_mapping(path, cure)
    if selection.get("digest") != cell.digest:
        raise RecordError(
            f"{path}: made for parameters {selection.get('digest')}, expected {cell.digest}; {cure}"
        )
    found = selection.get("chosen")
    chosen = found if isinstance(found, dict) else {}
    needed = set(Candidate._fields) - set(Candidate._field_defaults)
    lacking = sorted(needed - chosen.keys())
    if lacking:
        raise RecordError(
            f"{path}: expected the chosen member's setting, {', '.join(lacking)} missing; {cure}"
        )
    _check_searched(cell, chosen, f"{path}: ", cure)
    return selection


def _check_searched(cell: Cell, chosen: Mapping[str, Any], where: str, cure: str) -> None:
    """Refuse a choice that no block of the search trained."""
    blocks = {block.id: block for block in cell.blocks}
    # As text: a damaged id may be anything, also what no mapping can look up.
    block = blocks.get(str(chosen["block_id"]))
    if block is None:
        raise RecordError(f"{where}{chosen['block_id']} is no block of its search; {cure}")
    expected = {"hidden_size": block.hidden_size, "particles": block.particles,
                "batch_size": block.batch_size}  # fmt: skip
    setting = Setting.of(chosen)
    other = [name for name, value in expected.items() if chosen[name] != value]
    if setting not in block.settings or other:
        found = setting._asdict() | {name: chosen[name] for name in expected}
        came = ", ".join(f"{name} {value}" for name, value in found.items() if value is not None)
        raise RecordError(f"{where}{block.id} trained no member with {came}; {cure}")
