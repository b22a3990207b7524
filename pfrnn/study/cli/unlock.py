"""``pfrnn unlock``: clear what a killed Snakemake left, never a live run's lock."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "unlock",
        help="remove the lock files of a run that was killed",
        description="Remove Snakemake's lock files after a kill or a power cut. Refuses while a "
        "run is alive in the folder.",
        epilog="Example: pfrnn unlock && snakemake --cores 2",
    )
    parser.add_argument("--folder", default=".", help="the repository's root (default: here)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Remove stale locks and say so."""
    from pfrnn.errors import ConfigError
    from pfrnn.study.runlock import unlock

    if not Path(arguments.folder).is_dir():
        raise ConfigError(f"--folder {arguments.folder}: no such folder")
    removed = unlock(arguments.folder)
    for path in removed:
        print(f"removed the stale lock {path}")
    if not removed:
        print("no lock files; nothing to do")
    return 0
