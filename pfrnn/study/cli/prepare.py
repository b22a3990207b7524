"""``pfrnn prepare``: turn raw files into arrays and a card."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pfrnn.errors import ConfigError

if TYPE_CHECKING:
    from pfrnn.study.data.base import Protocol


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "prepare",
        help="turn one data set's raw files into arrays",
        description="Prepare one data set by its protocol in params.yaml: splits, windows, "
        "scaling, controls. Writes arrays.npz and card.json.",
        epilog="Example: pfrnn prepare air --tier quick",
    )
    parser.add_argument("name", metavar="NAME", help="the data set")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="default: the plan's folder in data/prepared"
    )
    parser.add_argument("--tier", metavar="T", help="default: the tier that params.yaml names")
    parser.add_argument("--params", type=Path, default=Path("params.yaml"), metavar="FILE")
    parser.add_argument("--raw-dir", type=Path, default=Path("data/raw"), metavar="DIR")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prepare the set and print what came out."""
    from pfrnn.study.config import load_config
    from pfrnn.study.data.prepare import prepare
    from pfrnn.study.data.registry import protocol

    config = load_config(arguments.params, arguments.tier)
    values = protocol(arguments.name, config.datasets.get(arguments.name, {}))
    out = arguments.out or _planned_folder(arguments.name, values, config.seed)
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out}: expected a folder, got a file; name another")
    card = prepare(arguments.name, values, config.seed, arguments.raw_dir, out)
    counts = ", ".join(f"{split} {count}" for split, count in card.sequences.items())
    print(f"{card.name}: {card.state}; sequences: {counts}; steps {card.max_length}")
    for name, scores in card.controls.items():
        print(
            f"  {name}: " + ", ".join(f"{metric} {value:.4g}" for metric, value in scores.items())
        )
    for note in card.notes:
        print(f"  {note}")
    print(f"  {out} (digest {card.arrays_digest[:12]})")
    return 0


def _planned_folder(name: str, values: Protocol, seed: int) -> Path:
    """Return where the workflow looks for a set's arrays."""
    from pfrnn.study.data.base import protocol_digest

    return Path("data") / "prepared" / f"{name}-{protocol_digest(name, values, seed)}"
