"""``pfrnn train``: train one block of the search."""

from __future__ import annotations

import argparse
from typing import Any

from pfrnn.study.cli._options import add_job_options


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "train",
        help="train one block of the search",
        description="Train the members of a block side by side. An interrupted job goes on where "
        "it stopped when it is started again.",
        epilog="Example: pfrnn train search/air/pf_lstm/h64-k20-b32-0123456789 --tier quick "
        "(pfrnn grid --tier quick --json lists the ids)",
    )
    parser.add_argument("block", help="the block's id, its folder below the results")
    add_job_options(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> None:
    """Train the block."""
    from pfrnn.study.cli._job import run_job
    from pfrnn.study.cli._plan import planned
    from pfrnn.study.data.store import load_card
    from pfrnn.study.jobfolder import identity_of
    from pfrnn.study.plan import block_parameters

    plan, places = planned(parsed, "block")
    block = plan.block(parsed.block)
    data = load_card(places.prepared / plan.prepared_id(block.dataset)).arrays_digest
    identity = identity_of(block_parameters(plan, block), data, "pfrnn.study.train.block")

    def train() -> None:
        from pfrnn.study.train.block import train_block

        train_block(plan, parsed.block, places, parsed.device)

    run_job(parsed, plan, places, identity, train)
