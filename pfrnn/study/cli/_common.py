"""What several commands share: options, and the plan that a command line names."""

from __future__ import annotations

import argparse
import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pfrnn.errors import ConfigError
from pfrnn.study.config import TIERS

if TYPE_CHECKING:
    from pfrnn.study.plan import Plan

PREPARED = Path("data/prepared")
_DEVICE = re.compile(r"auto|cpu|cuda(:[0-9]+)?")


def add_study_options(parser: argparse.ArgumentParser, results: bool = True) -> None:
    """Add what names a tier's plan, and where its results lie."""
    parser.add_argument("--tier", choices=TIERS, help="default: the tier that the parameters name")
    parser.add_argument("--params", default="params.yaml", help="parameter file(s), by commas")
    if results:
        parser.add_argument("--results", type=Path, help="default: results/TIER")


def add_missing_option(parser: argparse.ArgumentParser) -> None:
    """Add the data sets that are left out, each with its reason."""
    parser.add_argument(
        "--missing",
        action="append",
        default=[],
        type=_reason,
        metavar="SET=REASON",
        help="a data set that is left out, and why; may be given several times",
    )


def _reason(text: str) -> tuple[str, str]:
    name, equals, reason = text.partition("=")
    if not (equals and name and reason):
        raise argparse.ArgumentTypeError(f"expected SET=REASON, got {text!r}")
    return name, reason


def device_name(text: str) -> str:
    """Check a device's name; whether the machine has it is seen when torch opens it."""
    if not _DEVICE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"expected auto, cpu, cuda or cuda:NUMBER, got {text!r}")
    return text


def check_readme(readme: Path | None) -> None:
    """Raise if a README that was named is not there, before anything is read or written."""
    if readme and not readme.is_file():
        raise ConfigError(f"--readme {readme}: no such file")


def results_of(parsed: argparse.Namespace, tier: str) -> Path:
    """Return the folder of a tier's results; one that was named must exist for a reader."""
    results: Path | None = parsed.results
    if results and not results.is_dir():
        raise ConfigError(
            f"--results {results}: no such folder; name a tier's results or leave it out"
        )
    return results or Path("results") / tier


def check_id(plan: Plan, kind: str, asked: str) -> str:
    """Return the id of a block, selection or final of the plan.

    Raises:
        ConfigError: the plan has no such id; the message names the nearest one.
    """
    known = {
        "block": [block.id for block in plan.blocks],
        "selection": [cell.selection_id for cell in plan.cells],
        "final": [cell.final_id for cell in plan.cells],
    }[kind]
    name = asked.rstrip("/")
    if name in known:
        return name
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; the nearest is {near[0]}" if near else ""
    raise ConfigError(
        f"tier {plan.config.tier} has no {kind} {asked!r} (did a parameter change?){hint}"
    )


def with_stand_ins(plan: Plan, results: Path) -> tuple[Plan, tuple[str, ...]]:
    """Add the substitutes that have results here: their run knew that they stand in.

    Returns:
        The plan with them, and their names; a set that the plan lists anyway is none of them.
    """
    from pfrnn.study.data.availability import with_sets
    from pfrnn.study.plan import make_plan

    study = plan.config.study
    kinds = ("search", "final", "logs/search", "logs/final")
    found = tuple(
        name
        for name in study.substitutes
        if name not in study.datasets and any((results / kind / name).is_dir() for kind in kinds)
    )
    return (make_plan(with_sets(plan.config, found), plan.params) if found else plan), found
