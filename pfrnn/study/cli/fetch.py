"""``pfrnn fetch``: bring raw files here and verify them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pfrnn.errors import ConfigError, DataError, MissingDataError


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "fetch",
        help="fetch and verify raw data",
        description="Fetch raw files: from the mirror that PFRNN_DATA_MIRROR names (a folder or "
        "a base URL) first, then from the publishers' addresses; verify them by digest.",
        epilog="Example: PFRNN_DATA_MIRROR=/mnt/mirror pfrnn fetch air arem",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="data sets")
    parser.add_argument("--all", action="store_true", help="every data set")
    parser.add_argument("--tier", metavar="T", help="the data sets of this tier")
    parser.add_argument("--params", type=Path, default=Path("params.yaml"), metavar="FILE")
    parser.add_argument(
        "--check",
        action="store_true",
        help="verify what is on disk, fetch nothing; without names every set that has files there",
    )
    parser.add_argument(
        "--allow-missing",
        action="store_true",
        help="a set that can't be had is no failure; with --tier, the tier's substitutes "
        "(study.substitutes) are then fetched too",
    )
    parser.add_argument(
        "--allow-unverified",
        action="append",
        default=[],
        metavar="NAME",
        help="accept this set's files although no digest knows them; they stay marked unverified",
    )
    parser.add_argument("--raw-dir", type=Path, default=Path("data/raw"), metavar="DIR")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Fetch or check each set; return 1 when one failed."""
    names = _names(arguments)
    missing, failed = _fetch(names, arguments)
    if arguments.allow_missing:
        substitutes = _substitutes(arguments, missing)
        if substitutes:
            print(f"missing: {', '.join(missing)}; trying {', '.join(substitutes)} instead")
        failed += _fetch(substitutes, arguments)[1]
    else:
        failed += missing
    # Of a single set the reason stays the last line.
    if failed and len(names) > 1:
        print(f"pfrnn fetch: {len(failed)} data sets failed, see above", file=sys.stderr)
    return 1 if failed else 0


def _fetch(names: Iterable[str], arguments: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Fetch or check each set; return those that are missing and those that failed."""
    missing, failed = [], []
    for name in names:
        try:
            print(f"{name}: {_one(name, arguments)}", flush=True)
        except MissingDataError as error:
            missing.append(name)
            print(f"{name}: missing: {error}", file=sys.stderr)
        except (DataError, ConfigError) as error:
            failed.append(name)
            print(f"{name}: failed: {error}", file=sys.stderr)
    return missing, failed


def _substitutes(arguments: argparse.Namespace, missing: list[str]) -> list[str]:
    """The tier's substitutes for its missing sets; none when checking what is on disk."""
    from pfrnn.study.config import load_config
    from pfrnn.study.data.availability import substitutes_for
    from pfrnn.study.data.registry import dataset

    if not arguments.tier or arguments.check:
        return []
    study = load_config(arguments.params, arguments.tier).study
    found = [name for name in substitutes_for(study, missing) if name not in arguments.names]
    for name in found:
        dataset(name)
    return found


def _names(arguments: argparse.Namespace) -> list[str]:
    from pfrnn.study.config import load_config
    from pfrnn.study.data.registry import dataset, dataset_names

    names = [*arguments.names, *arguments.allow_unverified]
    if arguments.all:
        names += dataset_names()
    if arguments.tier:
        names += load_config(arguments.params, arguments.tier).study.datasets
    if arguments.check and not names:
        names = [name for name in dataset_names() if (arguments.raw_dir / name).is_dir()]
        if not names:
            raise MissingDataError(f"nothing to check: {arguments.raw_dir} holds no data set")
    if not names:
        raise ConfigError("no data set named; give names, --tier T or --all")
    for name in arguments.names:
        dataset(name)
    return list(dict.fromkeys(names))


def _one(name: str, arguments: argparse.Namespace) -> str:
    from pfrnn.study.data.fetch import fetch
    from pfrnn.study.data.registry import dataset
    from pfrnn.study.data.state import inspect_raw

    found = dataset(name)
    allowed = name in arguments.allow_unverified
    if arguments.check:
        state = inspect_raw(found, arguments.raw_dir / name)
    else:
        state = fetch(found, arguments.raw_dir, allowed)
    files = f", {len(state.sha256)} files in {arguments.raw_dir / name}" if state.sha256 else ""
    return state.state + files + (f" ({state.note})" if state.note else "")
