"""``pfrnn check``: do the committed tables, figures and claims follow from the evidence?"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "check",
        help="check that the committed report follows from its evidence",
        description="Render reports/results.csv and reports/data/ again and compare: exit code 1 "
        "when a table, a figure or a claim no longer follows.",
        epilog="Example: pfrnn check --reports reports --readme README.md",
    )
    parser.add_argument("--reports", type=Path, default=Path("reports"), help="default: reports")
    parser.add_argument(
        "--readme", type=Path, help="the README whose summary must be the report's (default: none)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check; print what differs."""
    from pfrnn.study.cli._common import check_readme
    from pfrnn.study.report.check import check_report
    from pfrnn.study.report.readme import readme_difference

    check_readme(arguments.readme)
    differences = [f"{arguments.reports}/{one}" for one in check_report(arguments.reports)]
    if arguments.readme:
        differences += filter(None, [readme_difference(arguments.readme, arguments.reports)])
    for difference in differences:
        print(difference, file=sys.stderr)
    if differences:
        print(
            f"pfrnn check: {len(differences)} of the report's files don't follow from its "
            "evidence; run `make report` and commit the result",
            file=sys.stderr,
        )
        return 1
    print(f"{arguments.reports}: everything follows from results.csv and data/")
    return 0
