"""``pfrnn aggregate``: gather all finals of a tier into results.csv."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pfrnn.study.cli._common import add_missing_option, add_study_options, with_stand_ins

_SHOWN = 20


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "aggregate",
        help="gather all finals of a tier into results.csv",
        description="Gather every finished final into one tidy table. A record whose parameters "
        "are not the configuration's is refused.",
        epilog="Example: pfrnn aggregate --tier quick",
    )
    add_study_options(parser)
    add_missing_option(parser)
    parser.add_argument(
        "--recorded",
        type=Path,
        metavar="DIR",
        help="evidence of a report: the finals recorded there are not expected here",
    )
    parser.add_argument("--strict", action="store_true", help="an absent final is an error")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Aggregate; say what is absent."""
    from pfrnn.study.data.registry import dataset
    from pfrnn.study.evaluate.aggregate import aggregate
    from pfrnn.study.evaluate.compared import write_compared
    from pfrnn.study.plan import load_plan
    from pfrnn.study.recorded import read_recorded

    plan = load_plan(parsed.params, parsed.tier)
    results = parsed.results or Path("results") / plan.config.tier
    # Substitutes that ran here belong to the study; `pfrnn report` asks for their rows, too.
    plan, stand_ins = with_stand_ins(plan, results)
    missing = dict(parsed.missing)
    for name in missing:
        dataset(name)  # an unknown name would leave nothing out, silently
    done = aggregate(plan, results, list(missing))
    write_compared(plan, results)
    elsewhere = read_recorded(parsed.recorded, plan).finals if parsed.recorded else {}
    # Nothing says that a run still wants a substitute's rest.
    absent = [
        final_id
        for final_id in done.absent
        if final_id not in elsewhere and final_id.split("/")[1] not in stand_ins
    ]
    for final_id in absent:
        print(f"absent: {final_id}", file=sys.stderr)
    for line in left_out(done.outside):
        print(line, file=sys.stderr)
    for name in missing:
        if count := len(list(results.glob(f"final/{name}/*/run.json"))):
            print(f"left out: {count} finished finals of {name} (--missing)", file=sys.stderr)
    print(f"{results / 'results.csv'}: {done.rows} rows from {done.finals} finals")
    return 1 if parsed.strict and absent else 0


def left_out(finals: Sequence[str]) -> list[str]:
    """Name the finished finals that the plan doesn't hold, and say why it may not."""
    if not finals:
        return []
    more = len(finals) - _SHOWN
    return [
        *(f"left out: {final}" for final in finals[:_SHOWN]),
        *([f"left out: and {more} more"] if more > 0 else []),
        "the plan doesn't hold these: they have other parameters, or belong to a study with a file "
        "of its own, which --params names: --params params.yaml,FILE",
    ]
