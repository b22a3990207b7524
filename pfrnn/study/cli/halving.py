"""``pfrnn halving``: would successive halving have picked what the full search picked?"""

from __future__ import annotations

import argparse
import json
from typing import Any

from pfrnn.study.cli._options import add_study_options


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "halving",
        help="whether successive halving would have found the full search's winners",
        description="Replay successive halving (grid.halving) on the histories of a tier's blocks, "
        "which were searched in full: in how many it picks the same member, how much worse its "
        "validation score is (each data set's own score, lower is better), and its share of the "
        "epochs. Trains nothing.",
        epilog="Example: pfrnn halving --tier quick",
    )
    add_study_options(parser)
    parser.add_argument("--json", action="store_true", help="every block, as JSON")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> None:
    """Replay and print."""
    from pfrnn.study.cli._plan import planned
    from pfrnn.study.evaluate.halving_report import cells_agreeing, replay_tier, summary

    plan, places = planned(parsed)
    rows = replay_tier(plan, places.results)
    names = dict.fromkeys(row.dataset for row in rows)
    parts = {name: summary([row for row in rows if row.dataset == name]) for name in names}
    total = summary(rows)
    agreeing, whole = cells_agreeing(plan, rows)
    if parsed.json:
        blocks = {row.block_id: row.found._asdict() for row in rows}
        cells = {"agreeing": agreeing, "cells": whole}
        found = {"total": total, "datasets": parts, "selections": cells, "blocks": blocks}
        print(json.dumps(found, indent=2))
        return
    print(
        f"{'data set':10} {'same winner':>12} {'median regret':>14} {'largest':>10} {'epochs':>7}"
    )
    for name, part in parts.items():
        same = f"{part['winner_kept']} of {part['blocks']}"
        print(
            f"{name:10} {same:>12} {part['median_regret']:14.4g} {part['largest_regret']:10.4g} "
            f"{part['share_of_epochs']:7.0%}"
        )
    print(
        f"Halving picks the full search's winner in {total['winner_kept']} of {total['blocks']} "
        f"blocks and in {agreeing} of {whole} selections over blocks, with "
        f"{total['share_of_epochs']:.0%} of the epochs."
    )
