"""Jobs that are still training, as far as their history is on disk (at every checkpoint)."""

from __future__ import annotations

from pathlib import Path

from pfrnn.study.files import sha256_file
from pfrnn.study.track.jobs import Job, Member, curves, key_of, read_histories

HISTORY = "history.csv"


def live_folders(results: Path) -> list[Path]:
    """Return the folders that hold a history and no ``run.json`` yet."""
    found = (
        path.parent for kind in ("search", "final") for path in results.glob(f"{kind}/**/{HISTORY}")
    )
    return sorted(folder for folder in found if not (folder / "run.json").exists())


def live_digest(folder: Path) -> str:
    """Digest what there is; no finished record has it."""
    return f"running {sha256_file(folder / HISTORY)}"


def read_live(folder: Path, results: Path) -> Job:
    """Read a job in training; its members are those that have trained an epoch."""
    kind, experiment, variant = folder.relative_to(results).parts[:3]
    tags = {
        "tier": results.name,
        "kind": kind,
        "variant": variant if kind == "search" else variant.rsplit("-", 2)[0],
        "job": folder.relative_to(results).as_posix(),
        "status": "running",
    }
    members = tuple(
        Member(f"member {name}", {}, tags, {"epochs": float(len(rows))}, curves(rows, None))
        for name, rows in read_histories(folder).items()
    )
    return Job(
        key=key_of(folder, results),
        experiment=experiment,
        digest=live_digest(folder),
        parameters={},
        tags=tags,
        metrics={},
        members=members,
        finished_ms=int((folder / HISTORY).stat().st_mtime * 1000),
        running=True,
    )
