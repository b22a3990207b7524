"""How successive halving would have done on the blocks of a tier that was searched in full."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pfrnn.errors import ConfigError, RecordError
from pfrnn.study.evaluate.halving import Replay, replay
from pfrnn.study.evaluate.record import check_record, read_rows
from pfrnn.study.files import digest_of
from pfrnn.study.jobfolder import again
from pfrnn.study.plan import Plan, block_parameters

_READ = ("member", "epoch", "val_score")


class Replayed(NamedTuple):
    """One block's replay."""

    dataset: str
    block_id: str
    members: int
    found: Replay


def replay_tier(plan: Plan, results: Path) -> list[Replayed]:
    """Replay halving on every finished block of more than one member.

    Raises:
        ConfigError: the tier was searched with halving.
        RecordError: no block is finished, or one belongs to other parameters.
    """
    rows = []
    for block in plan.blocks:
        config = plan.config.for_dataset(block.dataset)
        if config.grid.halving:
            raise ConfigError(
                "grid.halving is on: these blocks were not searched in full, so there is nothing "
                "to compare with; run a tier with `grid: {halving: false}`"
            )
        folder = results / block.id
        if len(block.settings) < 2 or not (folder / "run.json").is_file():
            continue
        check_record(folder, digest_of(block_parameters(plan, block)))
        found = replay(read_history(folder), config.training.max_epochs)
        if math.isfinite(found.score):  # else all members diverged: there is no winner to find
            rows.append(Replayed(block.dataset, block.id, len(block.settings), found))
    if not rows:
        raise RecordError(f"{results}: no finished block of more than one member; run the tier")
    return rows


def read_history(folder: Path) -> list[dict[str, float]]:
    """Read the scores of a block's members, one mapping a member and epoch.

    Raises:
        RecordError: the file is damaged: also where a line names no member or epoch.
    """
    rows = read_rows(folder, "history.csv", _READ)
    try:
        # A score that isn't finite is written as an empty field; the others are never empty.
        return [
            {
                "member": int(row["member"]),
                "epoch": int(row["epoch"]),
                "val_score": float(row["val_score"] or "inf"),
            }
            for row in rows
        ]
    except ValueError as error:
        raise RecordError(
            f"{folder / 'history.csv'}: expected whole numbers for member and epoch and a number "
            f"or nothing for val_score, got others ({error}); {again(folder)}"
        ) from error


def cells_agreeing(plan: Plan, rows: Sequence[Replayed]) -> tuple[int, int]:
    """Count cells whose selection over all their blocks would have been the same member.

    Returns:
        Cells that agree, and cells whose blocks are all there.
    """
    by_block = {row.block_id: row.found for row in rows}
    cells = {cell.selection_id: cell for cell in plan.cells}.values()
    agreeing = whole = 0
    for cell in cells:
        found = [by_block[block.id] for block in cell.blocks if block.id in by_block]
        if len(found) != len(cell.blocks):
            continue
        full = min(found, key=lambda one: one.score)
        halved = min(found, key=lambda one: one.score + one.regret)
        whole += 1
        agreeing += full is halved and full.full == full.halved
    return agreeing, whole


def summary(rows: Sequence[Replayed]) -> dict[str, Any]:
    """Summarise blocks: how many agree, the regrets, the share of the epochs."""
    regrets = [row.found.regret for row in rows]
    return {
        "blocks": len(rows),
        "winner_kept": sum(row.found.full == row.found.halved for row in rows),
        "median_regret": statistics.median(regrets),
        "largest_regret": max(regrets),
        # Blocks weigh by their members.
        "share_of_epochs": sum(row.found.share * row.members for row in rows)
        / sum(row.members for row in rows),
    }
