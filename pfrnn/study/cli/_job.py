"""A training command's frame: alone in its folder, nothing trained twice, a GPU of its own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pfrnn.study.cli._device import leased
from pfrnn.study.plan import Plan
from pfrnn.study.train.places import Places


def run_job(
    parsed: argparse.Namespace,
    plan: Plan,
    places: Places,
    identity: dict[str, Any],
    train: Callable[[], None],
) -> None:
    """Train one block or final unless it is finished already.

    Args:
        parsed: the command line; ``block`` or ``final`` names the job.
        plan: the tier's plan.
        places: folders.
        identity: what the job's numbers depend on (pfrnn.study.jobfolder.identity_of).
        train: imports torch and trains; called with the folder locked and a device leased.
    """
    from pfrnn.study.jobfolder import alone, unseal
    from pfrnn.study.records import outputs_of

    job = getattr(parsed, "block", None) or parsed.final
    folder: Path = places.results / job
    with alone(folder):
        if unseal(folder, identity, outputs_of(job)):
            # workflow/scripts/logged shows lines that begin so, for a job that was forced.
            print(
                f"put back: {job}: finished before with the same parameters, data and source; "
                "its records are put back, nothing is trained; to train it again, first remove "
                f"{folder}",
                file=sys.stderr,
            )
            return
        # CUDA must see the leased device only, so torch comes after the lease.
        with leased(parsed.device, plan.config.execution.device):
            train()
