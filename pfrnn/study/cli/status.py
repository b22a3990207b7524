"""``pfrnn status``: how far a tier is; reads files only."""

from __future__ import annotations

import argparse
import collections
from typing import TYPE_CHECKING, Any

from pfrnn.study.cli._common import add_study_options, results_of, with_stand_ins

if TYPE_CHECKING:
    from pfrnn.study.plan import Plan

_SHOWN = 20


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "status",
        help="show how far a tier is",
        description="Count the training jobs that are done, running, failed and waiting, with the "
        "last line of each failed job's log. Reads files only, so it works while Snakemake runs.",
        epilog="Example: pfrnn status --tier quick",
    )
    add_study_options(parser)
    parser.set_defaults(run=run)


def recorded_elsewhere(plan: Plan, done: set[str]) -> str | None:
    """Say how many finals that aren't here the published report records; None where none."""
    from pfrnn.study.cli.grid import recorded_in

    recorded = recorded_in(None, plan)
    absent = len(recorded.finals.keys() - done) if recorded else 0
    if not (recorded and absent):
        return None
    finals = len({cell.final_id for cell in plan.cells})
    return (
        f"{recorded.folder} records {absent} of {finals} finals that are not here: "
        f"`pfrnn grid {plan.options}` counts them as done"
    )


def run(parsed: argparse.Namespace) -> int:
    """Print the counts, what runs, and why what failed did."""
    from pfrnn.study.plan import load_plan
    from pfrnn.study.progress import job_states, seconds_left

    plan = load_plan(parsed.params, parsed.tier)
    results = results_of(parsed, plan.config.tier)
    plan, stand_ins = with_stand_ins(plan, results)
    states = job_states(plan, results)
    counts = collections.Counter(state.state for state in states)
    words = ", ".join(
        f"{counts[state]} {state}" for state in ("done", "running", "failed", "waiting")
    )
    print(f"tier {plan.config.tier}: {len(states)} jobs: {words}")
    if stand_ins:
        print(f"among them {', '.join(stand_ins)}, standing in where a set can't be had")
    elsewhere = recorded_elsewhere(plan, {one.id for one in states if one.state == "done"})
    if elsewhere:
        print(elsewhere)
    left = seconds_left(states, counts["running"])
    if left:
        print(f"about {left / 60:.0f} minutes left, by the mean of the finished jobs")
    devices = collections.Counter(
        state.device for state in states if state.state == "running" and state.device is not None
    )
    if any(devices):
        used = ", ".join(
            f"{device or 'CPU'}: {count} job{'s' if count > 1 else ''}"
            for device, count in sorted(devices.items())
        )
        print(f"GPUs in use: {used}")
    for name in ("running", "failed"):
        chosen = [state for state in states if state.state == name]
        for state in chosen[:_SHOWN]:
            print(f"{name}  {state.id}\n    {state.note}")
        if len(chosen) > _SHOWN:
            print(f"{name}  and {len(chosen) - _SHOWN} more")
    return 0
