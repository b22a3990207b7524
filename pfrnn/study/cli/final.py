"""``pfrnn final``: retrain a selected setting with repetitions and test it."""

from __future__ import annotations

import argparse
from typing import Any

from pfrnn.study.cli._options import add_job_options


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "final",
        help="retrain a selected setting with repetitions and test it",
        description="Retrain the setting that a selection chose, with paired repetitions, and "
        "test each once. An interrupted job goes on where it stopped.",
        epilog="Example: pfrnn final final/air/pf_lstm-fixed-0123456789 --tier quick "
        "(pfrnn grid --tier quick --json lists the ids)",
    )
    parser.add_argument("final", help="the final's id, its folder below the results")
    add_job_options(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> None:
    """Retrain and test."""
    from pfrnn.study.cli._job import run_job
    from pfrnn.study.cli._plan import planned
    from pfrnn.study.data.store import load_card
    from pfrnn.study.evaluate.selection import read_selection
    from pfrnn.study.jobfolder import identity_of
    from pfrnn.study.plan import cell_parameters

    plan, places = planned(parsed, "final")
    cell = plan.cell(parsed.final)
    selection = read_selection(plan, cell, places.results)
    data = load_card(places.prepared / plan.prepared_id(cell.dataset)).arrays_digest
    identity = identity_of(cell_parameters(plan, cell), data, "pfrnn.study.train.final", selection)

    def train() -> None:
        from pfrnn.study.train.final import run_final

        run_final(plan, parsed.final, places, parsed.device)

    run_job(parsed, plan, places, identity, train)
