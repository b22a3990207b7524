"""``pfrnn aggregate``: gather all finals of a tier into results.csv."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from pfrnn.config import TIERS


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "aggregate",
        help="gather all finals of a tier into results.csv",
        description="Gather every finished final into one tidy table. A record whose parameters "
        "are not the configuration's is refused.",
        epilog="Example: pfrnn aggregate --tier quick",
    )
    parser.add_argument("--tier", choices=TIERS, help="default: the tier of params.yaml")
    parser.add_argument("--params", default="params.yaml", help="parameter file(s), by commas")
    parser.add_argument("--results", type=Path, help="default: results/TIER")
    parser.add_argument(
        "--missing",
        action="append",
        default=[],
        metavar="SET=REASON",
        help="a data set that can't be had: its finals are not expected",
    )
    parser.add_argument("--strict", action="store_true", help="an absent final is an error")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Aggregate; say what is absent."""
    from pfrnn.cli._plan import planned
    from pfrnn.evaluation.aggregate import aggregate
    from pfrnn.evaluation.compared import write_compared

    plan, places = planned(parsed)
    missing = [entry.partition("=")[0] for entry in parsed.missing]
    done = aggregate(plan, places.results, missing)
    write_compared(plan, places.results)
    for final_id in done.absent:
        print(f"absent: {final_id}", file=sys.stderr)
    print(f"{places.results / 'results.csv'}: {done.rows} rows from {done.finals} finals")
    return 1 if parsed.strict and done.absent else 0
