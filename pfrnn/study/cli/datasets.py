"""``pfrnn datasets``: list the data sets and their state."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pfrnn.study.data.inventory import Entry


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "datasets",
        help="list the data sets and their state",
        description="List every data set: state (whole, excerpt, missing, ...) and why, rows, "
        "sequences per split, classes or target, digest, size on disk.",
        epilog="Example: pfrnn datasets --json",
    )
    parser.add_argument("--json", action="store_true", help="machine-readable")
    parser.add_argument("--tier", metavar="T", help="whose prepared arrays; default: params.yaml's")
    parser.add_argument("--params", type=Path, default=Path("params.yaml"), metavar="FILE")
    parser.add_argument("--raw-dir", type=Path, default=Path("data/raw"), metavar="DIR")
    parser.add_argument("--prepared-dir", type=Path, default=Path("data/prepared"), metavar="DIR")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the list."""
    from pfrnn.study.config import load_config
    from pfrnn.study.data.base import protocol_digest
    from pfrnn.study.data.inventory import entry
    from pfrnn.study.data.registry import dataset_names, protocol

    config = load_config(arguments.params, arguments.tier)
    entries = []
    for name in dataset_names():
        values = protocol(name, config.datasets.get(name, {}))
        digest = protocol_digest(name, values, config.seed)
        prepared = arguments.prepared_dir / f"{name}-{digest}"
        entries.append(entry(name, arguments.raw_dir, prepared))
    if arguments.json:
        print(json.dumps([found._asdict() for found in entries], indent=2, ensure_ascii=False))
    else:
        _print(entries)
    return 0


def _print(entries: list[Entry]) -> None:
    print(f"{'set':8} {'state':10} {'rows':>17} {'train/valid./test':>20} {'raw':>9}  target")
    for found in entries:
        rows = "" if found.rows is None else f"{found.rows:,}"
        if found.rows is not None and found.rows_whole not in (None, found.rows):
            rows += f" of {found.rows_whole:,}"
        counts = "/".join(map(str, found.sequences.values())) if found.sequences else "not prepared"
        size = f"{found.raw_bytes / 1e6:.1f} MB" if found.raw_bytes else "-"
        line = f"{found.name:8} {found.state:10} {rows:>17} {counts:>20} {size:>9}  {found.target}"
        print(line)
    kept = [found.name for found in entries if not found.redistributable]
    if kept:
        print(f"\nNot to be passed on (see each licence): {', '.join(kept)}")
    for found in entries:
        if found.state not in ("whole", "simulated"):
            print(f"\n{found.name}: {found.state}: {found.reason}")
