"""``pfrnn select``: choose a cell's setting on validation data."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pfrnn.study.cli._common import add_study_options, check_id


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "select",
        help="choose a cell's setting on validation data",
        description="Choose the member with the best validation score among a cell's blocks.",
        epilog="Example: pfrnn select selection/air/pf_lstm-fixed-0123456789.json --tier quick",
    )
    parser.add_argument("selection", help="the selection's id, its file below the results")
    add_study_options(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> None:
    """Select and say what was chosen."""
    from pfrnn.study.evaluate.selection import select_cell
    from pfrnn.study.plan import load_plan

    plan = load_plan(parsed.params, parsed.tier)
    results = parsed.results or Path("results") / plan.config.tier
    chosen = select_cell(plan, check_id(plan, "selection", parsed.selection), results)["chosen"]
    print(
        f"{chosen['block_id']} member {chosen['member']}: learning rate {chosen['learning_rate']}, "
        f"clip {chosen['clip']}, L2 {chosen['l2']}, validation score {chosen['val_score']:.6g}"
    )
