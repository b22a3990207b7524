"""Snakemake's dry runs, each in a fresh process that is forked where Snakemake is imported already.

A dry run is half import, and the tests make about a hundred. What the process sees is what
``python -m snakemake`` sees: folder, environment, arguments, and no module of the study's. Real
runs start that command itself.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SECONDS = 1800
# One a test process; it forks, and is never used itself.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["snakemake.cli"])


def dry_run(
    arguments: list[str], folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m snakemake`` with -n; output and errors come back as one text."""
    if "-n" not in arguments:
        raise ValueError(f"expected -n among the arguments, got {arguments}")
    with tempfile.NamedTemporaryFile() as output:
        process = SERVER.Process(
            target=_snakemake, args=(arguments, str(folder), environment, output.name)
        )
        process.start()
        process.join(SECONDS)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(arguments, SECONDS)
        text = Path(output.name).read_text(encoding="utf-8")
    return subprocess.CompletedProcess(arguments, process.exitcode, text)


def _snakemake(arguments: list[str], folder: str, environment: dict[str, str], output: str) -> None:
    with open(output, "wb") as target:
        os.dup2(target.fileno(), 1)
        os.dup2(target.fileno(), 2)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    # As `python -m` has it: the folder first, and no path that a test module added.
    inside = [path for path in sys.path if path.startswith((sys.prefix, sys.base_prefix))]
    sys.path[:] = [folder, *inside]
    early = [name for name in sys.modules if name.partition(".")[0] == "pfrnn"]
    if early:
        raise RuntimeError(f"expected no module of the study before Snakemake, got {early}")
    sys.argv = ["snakemake", *arguments]
    from snakemake.cli import main

    main(arguments)
