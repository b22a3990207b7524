"""``pfrnn datasets``: list the data sets and their state."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pfrnn.errors import ConfigError, DataError, MissingDataError

if TYPE_CHECKING:
    from pfrnn.study.config import Config
    from pfrnn.study.data.base import Dataset


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
    from pfrnn.study.data.registry import dataset_names

    config = load_config(arguments.params, arguments.tier)
    entries = []
    for name in dataset_names():
        try:
            entries.append(_entry(name, config, arguments.raw_dir, arguments.prepared_dir))
        except ConfigError as error:
            entries.append(_broken(name, str(error)))
    if arguments.json:
        print(json.dumps(entries, indent=2, ensure_ascii=False))
    else:
        _print(entries)
    return 0


def _broken(name: str, reason: str) -> dict[str, Any]:
    """A set whose own module or protocol has an error; the others are listed all the same."""
    known = {"name": name, "state": "error", "reason": reason, "target": "", "raw_bytes": 0}
    return known | {"rows": None, "rows_whole": None, "sequences": None, "redistributable": True}


def _entry(name: str, config: Config, raw_dir: Path, prepared_dir: Path) -> dict[str, Any]:
    """Look at one data set; a set that only the mirror has is read from there."""
    from pfrnn.study.data.availability import availability
    from pfrnn.study.data.base import protocol_digest
    from pfrnn.study.data.registry import dataset, protocol
    from pfrnn.study.data.store import load_card

    found = dataset(name)
    values = protocol(name, config.datasets.get(name, {}))
    prepared = prepared_dir / f"{name}-{protocol_digest(name, values, config.seed)}"
    where, reason = availability(name, raw_dir)
    state, reason, rows = _raw_state(found, raw_dir, where, reason)
    try:
        ready = load_card(prepared)
    except DataError:
        ready = None
    facts = ("title", "task", "target", "unit", "licence", "redistributable")
    return {
        "name": name,
        "state": state,
        "reason": reason,
        "where": where,
        "rows": rows,
        "rows_whole": found.card.rows,
        "sequences": ready.sequences if ready else None,
        "classes": ready.classes if ready and ready.classes else None,
        "digest": ready.arrays_digest if ready else None,
        "raw_bytes": _size(raw_dir / name),
        "prepared_bytes": _size(prepared),
        **{fact: getattr(found.card, fact) for fact in facts},
    }


def _raw_state(
    found: Dataset, raw_dir: Path, where: str, reason: str
) -> tuple[str, str, int | None]:
    """Return state, reason and rows."""
    from pfrnn.study.data.fetch import fetch
    from pfrnn.study.data.state import inspect_raw

    name = found.card.name
    if where == "address":
        return "missing", f"not fetched yet ({reason}); run `pfrnn fetch {name}`", None
    if where in ("simulated", "missing"):
        return where, reason, None
    with tempfile.TemporaryDirectory() as temporary:
        folder = raw_dir if where == "disk" and (raw_dir / name).is_dir() else Path(temporary)
        try:
            state = inspect_raw(found, folder / name) if where == "disk" else fetch(found, folder)
            table = found.read(folder / name) if found.read else {}
        except MissingDataError as error:
            return "missing", str(error), None
        except DataError as error:
            return "refused", str(error), None
    rows = max((len(column) for column in table.values()), default=0)
    return state.state, state.note or reason, rows or None


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _print(entries: list[dict[str, Any]]) -> None:
    print(f"{'set':8} {'state':10} {'rows':>17} {'train/valid./test':>20} {'raw':>9}  target")
    for found in entries:
        rows = "" if found["rows"] is None else f"{found['rows']:,}"
        if found["rows"] is not None and found["rows_whole"] not in (None, found["rows"]):
            rows += f" of {found['rows_whole']:,}"
        sequences = found["sequences"]
        counts = "/".join(map(str, sequences.values())) if sequences else "not prepared"
        size = f"{found['raw_bytes'] / 1e6:.1f} MB" if found["raw_bytes"] else "-"
        print(
            f"{found['name']:8} {found['state']:10} {rows:>17} {counts:>20} {size:>9}  "
            f"{found['target']}"
        )
    kept = [found["name"] for found in entries if not found["redistributable"]]
    if kept:
        print(f"\nNot to be passed on (see each licence): {', '.join(kept)}")
    for found in entries:
        if found["state"] not in ("whole", "simulated"):
            print(f"\n{found['name']}: {found['state']}: {found['reason']}")
