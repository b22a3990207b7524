"""``pfrnn mlflow-import``: bring MLflow up to date with the run records."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from pfrnn.config import TIERS
from pfrnn.errors import ConfigError
from pfrnn.files import write_json


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "mlflow-import",
        help="bring MLflow up to date with the run records",
        description="Import finished jobs into MLflow: the local store mlflow.db, or the server "
        "that MLFLOW_TRACKING_URI names. Importing twice changes nothing.",
        epilog="Example: pfrnn mlflow-import --tier quick",
    )
    parser.add_argument("--tier", choices=TIERS, help="import results/TIER (default: all tiers)")
    parser.add_argument("--results", type=Path, help="import this folder")
    parser.add_argument("--out", type=Path, help="write a summary to this JSON file")
    parser.add_argument(
        "--create-store", action="store_true", help="only create or migrate the store's tables"
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Create the store, import, write the summary; each as asked."""
    from pfrnn.tracking.importer import one_at_a_time

    folders = _folders(parsed)
    with one_at_a_time(Path("results")):
        return _import(parsed, folders)


def _folders(parsed: argparse.Namespace) -> list[Path]:
    """The results folders to import: the one named, or those of all tiers that have run."""
    if parsed.results or parsed.tier:
        folder = parsed.results or Path("results") / parsed.tier
        if not folder.is_dir():
            raise ConfigError(f"{folder}: no such folder; run the tier first")
        return [folder]
    folders = [Path("results") / tier for tier in TIERS]
    return [folder for folder in folders if folder.is_dir()]


def _import(parsed: argparse.Namespace, folders: list[Path]) -> int:
    from pfrnn.tracking.importer import import_results
    from pfrnn.tracking.store import DEFAULT_URI, MlflowStore, create_store, tracking_uri

    uri = tracking_uri()
    fresh = uri == DEFAULT_URI and not Path("mlflow.db").exists()
    if parsed.create_store or fresh:
        create_store(uri)
    if parsed.create_store:
        return 0
    store = MlflowStore(uri)
    jobs = 0
    for folder in folders:
        done = import_results(folder, store, lambda key: print(f"imported {key}", file=sys.stderr))
        jobs += done.imported + done.unchanged
        print(
            f"{folder}: {done.imported} jobs imported ({done.runs} runs), "
            f"{done.unchanged} unchanged"
        )
    if parsed.out:
        write_json(parsed.out, {"jobs": jobs})
    return 0
