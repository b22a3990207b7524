"""The plan and folders that a command line names."""

from __future__ import annotations

import argparse
import difflib
from pathlib import Path

from pfrnn.errors import ConfigError
from pfrnn.study.data.substitutes import with_sets
from pfrnn.study.plan import Plan, load_plan, make_plan
from pfrnn.study.train.places import Places


def planned(parsed: argparse.Namespace, kind: str | None = None) -> tuple[Plan, Places]:
    """Load the plan and check the id in ``parsed.<kind>`` against it.

    Raises:
        ConfigError: the plan has no such id; the message names the nearest one.
    """
    plan = load_plan(parsed.params, parsed.tier)
    results = parsed.results or Path("results") / plan.config.tier
    places = Places(results, getattr(parsed, "prepared", Path("data/prepared")))
    if kind is not None:
        asked = getattr(parsed, kind)
        known = {
            "block": [block.id for block in plan.blocks],
            "selection": [cell.selection_id for cell in plan.cells],
            "final": [cell.final_id for cell in plan.cells],
        }[kind]
        if asked not in known:
            near = difflib.get_close_matches(asked, known, n=1)
            hint = f"; the nearest is {near[0]}" if near else ""
            raise ConfigError(
                f"tier {plan.config.tier} has no {kind} {asked!r} (did a parameter change?){hint}"
            )
    return plan, places


def with_stand_ins(plan: Plan, results: Path) -> tuple[Plan, tuple[str, ...]]:
    """Add the substitutes that have left anything here: a run that started them knows its own file.

    Returns:
        The plan with them, and their names; a set that the plan lists anyway is none of them.
    """
    study = plan.config.study
    kinds = ("search", "final", "logs/search", "logs/final")
    found = tuple(
        name
        for name in study.substitutes
        if name not in study.datasets and any((results / kind / name).is_dir() for kind in kinds)
    )
    wide = make_plan(with_sets(plan.config, found), plan.params)
    return (wide if found else plan), found
