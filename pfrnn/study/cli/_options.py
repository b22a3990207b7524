"""Options that several commands share."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from pfrnn.errors import ConfigError
from pfrnn.study.config import TIERS

_DEVICE = re.compile(r"auto|cpu|cuda(:[0-9]+)?")


def add_study_options(parser: argparse.ArgumentParser, results: bool = True) -> None:
    """Add what names a tier's plan, and where its results lie."""
    parser.add_argument("--tier", choices=TIERS, help="default: the tier that the parameters name")
    parser.add_argument("--params", default="params.yaml", help="parameter file(s), by commas")
    if results:
        parser.add_argument("--results", type=Path, help="default: results/TIER")


def add_job_options(parser: argparse.ArgumentParser) -> None:
    """Add what a training job takes besides its id."""
    add_study_options(parser)
    parser.add_argument("--prepared", type=Path, default=Path("data/prepared"))
    parser.add_argument(
        "--device", type=device_name, help="cpu, cuda, cuda:1, ... (default: params.yaml)"
    )


def device_name(text: str) -> str:
    """Check a device's name; whether the machine has it is seen when torch opens it."""
    if not _DEVICE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"expected auto, cpu, cuda or cuda:NUMBER, got {text!r}")
    return text


def check_readme(readme: Path | None) -> None:
    """Refuse a README that isn't there before anything is read or written.

    Raises:
        ConfigError: there is no such file.
    """
    if readme and not readme.is_file():
        raise ConfigError(f"--readme {readme}: no such file")
