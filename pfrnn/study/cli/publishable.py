"""``pfrnn publishable``: set up a DVC remote that strangers may read."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

from pfrnn.errors import ConfigError, PfrnnError
from pfrnn.study.files import write_text

_HEADER = "# Not for a public remote (`pfrnn publishable`): each clone fetches these sets itself."


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "publishable",
        help="set up a DVC remote without the data that may not be passed on",
        description="Leave raw and prepared data whose licence forbids passing them on out of "
        "what DVC versions, and make URL the default remote. Whoever clones the repository runs "
        "`dvc pull`, then `pfrnn fetch` and `snakemake data` for the sets left out.",
        epilog="Example: pfrnn publishable s3://bucket/pfrnn",
    )
    parser.add_argument("url", metavar="URL", help="a remote as `dvc remote add` takes it")
    parser.add_argument("--name", default="public", help="the remote's name (default: public)")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Write .dvcignore, take up the outputs again, add the remote."""
    if not Path(".dvc").is_dir() or not Path("dvc.yaml").is_file():
        raise ConfigError("no .dvc and dvc.yaml here; run this in the repository's top folder")
    if not parsed.url.strip():
        raise ConfigError("URL: expected a folder or address of the remote, got an empty text")
    names = restricted_sets()
    ignore(Path(".dvcignore"), names)
    _dvc("remote", "add", "--default", "--force", parsed.name, parsed.url)
    if Path("dvc.lock").exists():
        _dvc("commit", "--force")
    print(f"left out: {', '.join(names)}")
    print("now: git add .dvcignore .dvc/config dvc.lock && git commit && dvc push")
    return 0


def restricted_sets() -> list[str]:
    """Names of the data sets that may not lie in a public place."""
    from pfrnn.study.data.registry import dataset, dataset_names

    return [name for name in dataset_names() if not dataset(name).card.redistributable]


def ignore(path: Path, names: list[str]) -> None:
    """Add the data of ``names`` to a .dvcignore file; what it holds already stays."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    wanted = [_HEADER]
    for name in names:
        wanted += [f"/data/raw/{name}", f"/data/prepared/{name}-*"]
    lines = before.splitlines()
    new = [line for line in wanted if line not in lines]
    if new:
        write_text(path, "\n".join([*lines, *new]) + "\n")


def _dvc(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "dvc", *arguments], check=False)
    if done.returncode:
        raise PfrnnError(f"`dvc {' '.join(arguments)}` failed, see above")
