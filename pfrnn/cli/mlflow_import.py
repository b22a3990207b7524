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
    parser.add_argument("--tier", choices=TIERS, help="import results/TIER")
    parser.add_argument("--results", type=Path, help="import this folder (default: results/TIER)")
    parser.add_argument("--out", type=Path, help="write a summary to this JSON file")
    parser.add_argument(
        "--create-store", action="store_true", help="create or migrate the store's tables first"
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Create the store, import, write the summary; each as asked."""
    from pfrnn.tracking.importer import one_at_a_time

    results = parsed.results or (Path("results") / parsed.tier if parsed.tier else None)
    if results is None and not parsed.create_store:
        raise ConfigError("say what to import: --tier TIER or --results FOLDER")
    if results is not None and not results.is_dir():
        raise ConfigError(f"{results}: no such folder; run the tier first")
    with one_at_a_time(results.parent if results is not None else Path("results")):
        return _import(parsed, results)


def _import(parsed: argparse.Namespace, results: Path | None) -> int:
    from pfrnn.tracking.importer import import_results
    from pfrnn.tracking.store import DEFAULT_URI, MlflowStore, create_store, tracking_uri

    uri = tracking_uri()
    local = uri == DEFAULT_URI and not Path("mlflow.db").exists()
    if parsed.create_store or local:
        create_store(uri)
    if results is None:
        return 0
    done = import_results(
        results, MlflowStore(uri), lambda key: print(f"imported {key}", file=sys.stderr)
    )
    print(f"{done.imported} jobs imported ({done.runs} runs), {done.unchanged} unchanged")
    if parsed.out:
        write_json(parsed.out, {"jobs": done.imported + done.unchanged})
    return 0
