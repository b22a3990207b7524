"""``pfrnn mlflow-import``: bring MLflow up to date with the run records."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pfrnn.errors import ConfigError
from pfrnn.study.config import TIERS
from pfrnn.study.files import write_json

if TYPE_CHECKING:
    from pfrnn.study.plan import Plan


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "mlflow-import",
        help="bring MLflow up to date with the run records",
        description="Import all jobs into MLflow, also those in training: into the local store "
        "mlflow.db, or the server that MLFLOW_TRACKING_URI names. Importing twice changes nothing.",
        epilog="Example: pfrnn mlflow-import --tier quick",
    )
    parser.add_argument("--tier", choices=TIERS, help="import results/TIER (default: all tiers)")
    parser.add_argument("--results", type=Path, help="import this folder")
    parser.add_argument("--params", default="params.yaml", help="parameter file(s), by commas")
    parser.add_argument("--out", type=Path, help="write a summary to this JSON file")
    parser.add_argument(
        "--create-store", action="store_true", help="only create or migrate the store's tables"
    )
    parser.add_argument("--no-models", action="store_true", help="log no model")
    parser.add_argument(
        "--or-later", action="store_true", help="a store that does not take it is no failure"
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> None:
    """Import, and write the summary."""
    from pfrnn.study.track.importer import one_at_a_time
    from pfrnn.study.track.jobs import job_folders
    from pfrnn.study.track.store import StoreError

    folders = _folders(parsed)
    jobs = sum(len(job_folders(folder, finished=True)) for folder in folders)
    summary: dict[str, Any] = {"jobs": jobs}
    try:
        with one_at_a_time(Path("results")):
            _import(parsed, folders)
    except StoreError as error:
        if not parsed.or_later:
            raise
        print(f"not imported: {error}", file=sys.stderr)
        summary["missed"] = str(error)
    if parsed.out:
        write_json(parsed.out, summary)


def _folders(parsed: argparse.Namespace) -> list[Path]:
    """The results folders to import: the one named, or those of all tiers that have run."""
    if parsed.results or parsed.tier:
        folder = parsed.results or Path("results") / parsed.tier
        if not folder.is_dir():
            raise ConfigError(f"{folder}: no such folder; run the tier first")
        return [folder]
    folders = [Path("results") / tier for tier in TIERS]
    return [folder for folder in folders if folder.is_dir()]


def _import(parsed: argparse.Namespace, folders: list[Path]) -> None:
    from pfrnn.study.track.importer import import_results
    from pfrnn.study.track.store import DEFAULT_URI, MlflowStore, create_store, tracking_uri

    uri = tracking_uri()
    if parsed.create_store or (uri == DEFAULT_URI and not Path("mlflow.db").exists()):
        create_store(uri)
    if parsed.create_store:
        return
    store = MlflowStore(uri)
    for folder in folders:
        plan = _plan(parsed.params, folder.name)
        done = import_results(folder, store, plan, not parsed.no_models)
        print(
            f"{folder}: {done.imported} jobs imported ({done.runs} runs), "
            f"{done.unchanged} unchanged",
            flush=True,
        )


def _plan(params: str, tier: str) -> Plan | None:
    """The tier's plan; None for a folder that no configuration here describes."""
    from pfrnn.study.plan import load_plan

    if tier not in TIERS or not all(Path(name).is_file() for name in params.split(",")):
        return None
    return load_plan(params, tier)
