"""Wall time of a slice of the gpu tier through Snakemake: on one card, then on two, one job a card.

    python bench/two_gpus.py                 on a machine with two GPUs
    python bench/two_gpus.py --cards 0       tier smoke, two jobs on the CPU, to try the script

Each run works in a copy of the repository under a temporary folder, so nothing here is touched.
Data are prepared before the clock starts. Prints one JSON object: seconds of both runs, their
ratio, and which devices the jobs of the second run leased.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("Snakefile", "params.yaml", "pfrnn", "workflow")
# 8 blocks of the search and 8 finals, all simulated: no raw data, no network.
SLICE = """
study: {datasets: [maze10, maze18], variants: [lstm, gru, pf_lstm, pf_gru], size_rules: [fixed]}
datasets:
  maze10: {train: TRAIN, validation: 400, test: 400, posterior_trajectories: 0}
  maze18: {train: TRAIN, validation: 400, test: 400, posterior_trajectories: 0}
grid: {batch_size: [64]}
training: {max_epochs: EPOCHS, patience: EPOCHS}
# What a tier says of one set is laid over what stands above.
overrides:
  maze10:
    study: {variants: [lstm, gru, pf_lstm, pf_gru]}
    training: {max_epochs: EPOCHS, patience: EPOCHS}
"""


def slice_of(train: int, epochs: int) -> str:
    """The slice, as a file for Snakemake's ``--configfile``."""
    return SLICE.replace("TRAIN", str(train)).replace("EPOCHS", str(epochs))


def snakemake(folder: Path, tier: str, *arguments: str) -> float:
    """Run Snakemake on the slice; return the seconds it took."""
    began = time.monotonic()
    command = [sys.executable, "-m", "snakemake", "--cores", "all", *arguments]
    subprocess.run(
        [*command, "--configfile", "slice.yaml", "--config", f"tier={tier}"],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=True,
    )
    return time.monotonic() - began


def working_copy(folder: Path, tier: str, train: int, epochs: int) -> Path:
    """Copy the repository and prepare the slice's data."""
    folder.mkdir()
    for part in PARTS:
        source = ROOT / part
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, folder / part)
    (folder / "profiles").symlink_to("workflow/profiles")
    (folder / "slice.yaml").write_text(slice_of(train, epochs))
    snakemake(folder, tier, "data")
    return folder


def leases(results: Path) -> dict[str, int]:
    """How many jobs each device had, from the first line of the jobs' logs."""
    counts: collections.Counter[str] = collections.Counter()
    for kind in ("search", "final"):
        for log in (results / "logs" / kind).rglob("*.log"):
            found = re.search(r"CUDA_VISIBLE_DEVICES=(\S*)", log.read_text())
            counts[found[1] if found else "none"] += 1
    return dict(counts)


def main() -> None:
    """Time both runs and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cards", type=int, default=2, help="GPUs to use; 0: the CPU, two jobs")
    parser.add_argument("--train", type=int, default=4000, help="training sequences a data set")
    parser.add_argument("--epochs", type=int, default=10)
    parsed = parser.parse_args()
    tier, at_once = ("gpu", parsed.cards) if parsed.cards else ("smoke", 2)
    with tempfile.TemporaryDirectory(prefix="pfrnn-two-gpus-") as name:
        first = working_copy(Path(name) / "one", tier, parsed.train, parsed.epochs)
        second = Path(name) / "two"
        shutil.copytree(first, second, symlinks=True)
        one = snakemake(first, tier, "reports", "--resources", "gpu=1")
        two = snakemake(second, tier, "reports", "--resources", f"gpu={at_once}")
        results = second / "results" / tier
        found = {
            "blocks": len(list((results / "search").rglob("run.json"))),
            "finals": len(list((results / "final").rglob("run.json"))),
            "seconds_one_at_a_time": round(one, 1),
            f"seconds_{at_once}_at_a_time": round(two, 1),
            "faster": round(one / two, 2),
            "jobs_a_device": leases(results),
            "report": (results / "report" / "index.html").is_file(),
        }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
