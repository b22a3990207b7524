"""Time the import of a whole paper tier into MLflow, on simulated records of a real form.

    python -m bench.mlflow_import RECORDS FOLDER [--epochs 200] [--every 1] [--json FILE]

RECORDS are the results of a tier that was really trained (``results/quick``): each job of the plan
of tier ``paper`` is given a copy of one of its records, of the same task where there is one,
stretched to the job's number of members and to ``--epochs`` epochs. Sizes are the paper tier's and
numbers mean nothing; there are no pictures and no models. FOLDER (new) then holds the records and
the store, and three imports by the command line are timed there: into a store that doesn't exist,
once more, and, after the store was deleted, of a tenth of the jobs. How resident memory grew is
written down too.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pfrnn.study.data.registry import dataset
from pfrnn.study.files import read_json, write_json
from pfrnn.study.plan import Plan, load_plan
from pfrnn.study.train.writers import write_table

ROOT = Path(__file__).resolve().parents[1]
TIER = "paper"
# Seconds between two looks at the importing process.
POLL = 2.0


class Template(NamedTuple):
    """A real record: what a simulated one is stretched from."""

    run: dict[str, Any]
    members: list[dict[str, str]]
    history: list[dict[str, str]]
    test: list[dict[str, str]]


class Wanted(NamedTuple):
    """A job of the plan, and the number of its members."""

    id: str
    dataset: str
    variant: str
    members: int


def planned(plan: Plan) -> Iterator[Wanted]:
    """Every block and final of a plan, once."""
    for block in plan.blocks:
        yield Wanted(block.id, block.dataset, block.variant, len(block.settings))
    repetitions = plan.config.evaluation.repetitions
    for final in dict.fromkeys(cell.final_id for cell in plan.cells):
        cell = plan.cell(final)
        yield Wanted(final, cell.dataset, cell.trained, repetitions)


def templates(records: Path) -> dict[tuple[str, bool, str], Template]:
    """Return {(search or final, with particles, task): a real record}."""
    found: dict[tuple[str, bool, str], Template] = {}
    for path in sorted(records.glob("*/**/run.json")):
        run = read_json(path)
        test = path.with_name("test.csv")
        kind = path.relative_to(records).parts[0]
        found[kind, run["particles"] > 0, run["task"]] = Template(
            run,
            rows(path.with_name("members.csv")),
            rows(path.with_name("history.csv")),
            rows(test) if test.exists() else [],
        )
    return found


def rows(path: Path) -> list[dict[str, str]]:
    """Read a table."""
    with path.open(encoding="utf-8", newline="") as source:
        return list(csv.DictReader(source))


def write_record(results: Path, job: Wanted, like: Template, epochs: int) -> None:
    """Write a record of a job's size in a real one's form."""
    folder = results / job.id
    folder.mkdir(parents=True)
    members, history = [], []
    for number in range(job.members):
        row = like.members[number % len(like.members)]
        members.append(row | {"member": number, "epochs": epochs, "best_epoch": epochs // 2})
        curve = [one for one in like.history if one["member"] == row["member"]]
        for epoch, one in zip(range(1, epochs + 1), itertools.cycle(curve), strict=False):
            history.append(one | {"member": number, "epoch": epoch})
    if like.test:
        # A final's members are its repetitions.
        members = [row | {"repetition": row["member"]} for row in members]
        first = [row for row in like.test if row["repetition"] == like.test[0]["repetition"]]
        tests = [row | {"repetition": str(n)} for n in range(job.members) for row in first]
        write_table(folder / "test.csv", list(first[0]), tests)
    write_table(folder / "members.csv", list(members[0]), members)
    write_table(folder / "history.csv", list(history[0]), history)
    of_job = {"id": job.id, "dataset": job.dataset, "variant": job.variant, "tier": TIER}
    write_json(folder / "run.json", like.run | of_job | {"members": job.members})


def write_tier(folder: Path, records: Path, epochs: int, every: int) -> tuple[int, int]:
    """Write the records of every ``every``-th job; return the numbers of jobs and of members."""
    known = templates(records)
    plan = load_plan(ROOT / "params.yaml", TIER)
    jobs = list(planned(plan))[::every]
    if (folder / "params.yaml").exists():
        print(f"{folder}: records written before", flush=True)
        return len(jobs), sum(job.members for job in jobs)
    for job in jobs:
        like = job.id.split("/")[0], job.variant.startswith("pf_")
        some = next(template for key, template in known.items() if key[:2] == like)
        template = known.get((*like, dataset(job.dataset).card.task), some)
        write_record(folder / "results" / TIER, job, template, epochs)
    for name in ("params.yaml", "workflow"):
        (folder / name).symlink_to(ROOT / name)
    return len(jobs), sum(job.members for job in jobs)


def timed_import(folder: Path, log: Path) -> dict[str, Any]:
    """Run ``pfrnn mlflow-import`` and watch it."""
    command = [sys.executable, "-m", "pfrnn", "mlflow-import", "--tier", TIER, "--no-models"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment.pop("MLFLOW_TRACKING_URI", None)
    started, course = time.monotonic(), []
    with log.open("wb") as target:
        child = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=target, stderr=subprocess.STDOUT
        )
        looked = 0.0
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            time.sleep(POLL)
            if time.monotonic() - looked > 60:
                looked = time.monotonic()
                seconds = round(looked - started)
                jobs = log.read_bytes().count(b"imported ")
                course.append([seconds, cpu_seconds(child.pid), jobs, resident(child.pid)])
                print("{} s, {} s of CPU: {} jobs, {} MB".format(*course[-1]), flush=True)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"the import failed; see {log}")
    return {
        "wall_seconds": round(time.monotonic() - started, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_megabytes": usage.ru_maxrss // 1024,
        "said": log.read_text(encoding="utf-8").splitlines()[-1],
        "seconds_cpu_jobs_megabytes": course,
    }


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far; 0 when it has just ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return round((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), 1)


def resident(pid: int) -> int:
    """Resident memory of a process in megabytes; 0 when it has just ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    sizes = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")]
    return int(sizes[0]) // 1024 if sizes else 0


def main() -> None:
    """Write the records, import three times, print and write what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("records", type=Path, help="results of a tier that was trained")
    parser.add_argument("folder", type=Path, help="a new folder, some GB")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--every", type=int, default=1, help="every so-manieth job only")
    parser.add_argument("--json", type=Path)
    parsed = parser.parse_args()
    whole, tenth = parsed.folder / "whole", parsed.folder / "tenth"
    counted = write_tier(whole, parsed.records, parsed.epochs, parsed.every)
    smaller = write_tier(tenth, parsed.records, parsed.epochs, 10 * parsed.every)
    found: dict[str, Any] = {"epochs": parsed.epochs, "jobs": counted[0], "members": counted[1]}
    print(found, flush=True)
    found["first"] = timed_import(whole, parsed.folder / "first.log")
    found["store_megabytes"] = (whole / "mlflow.db").stat().st_size // 2**20
    found["again"] = timed_import(whole, parsed.folder / "again.log")
    for name in ("mlflow.db", "mlruns"):
        (whole / name).rename(parsed.folder / f"old-{name}")
    shutil.rmtree(whole / "results")
    (tenth / "results").rename(whole / "results")
    found["tenth"] = timed_import(whole, parsed.folder / "tenth.log")
    found["tenth"] |= {"jobs": smaller[0], "members": smaller[1]}
    print(json.dumps(found, indent=2))
    if parsed.json:
        write_json(parsed.json, found)


if __name__ == "__main__":
    main()
