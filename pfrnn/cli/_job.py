"""A training command's frame: alone in its folder, nothing trained twice, a GPU of its own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pfrnn.cli._device import leased
from pfrnn.plan import Plan
from pfrnn.training.places import Places


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
        identity: what the job's numbers depend on.
        train: imports torch and trains; called with the folder locked and a device leased.
    """
    from pfrnn.jobfolder import alone, seal, unseal

    job = getattr(parsed, "block", None) or parsed.final
    folder: Path = places.results / job
    with alone(folder):
        if unseal(folder, identity):
            print(
                f"{job}: finished before with the same parameters, data and source; "
                "its records are put back, nothing is trained",
                file=sys.stderr,
            )
            return
        # CUDA must see the leased device only, so torch comes after the lease.
        with leased(parsed.device, plan.config.execution.device):
            train()
        seal(folder, identity)


def identity_of(
    plan: Plan, places: Places, dataset: str, parameters: dict[str, Any], source: str
) -> dict[str, Any]:
    """Return what a job's numbers depend on: parameters, data and source, as digests.

    Raises:
        DataError: the data set isn't prepared, or its card is damaged.
    """
    from pfrnn.data.store import load_card
    from pfrnn.files import digest_of
    from pfrnn.provenance import source_digest

    return {
        "parameters": digest_of(parameters),
        "data": load_card(places.prepared / plan.prepared_id(dataset)).arrays_digest,
        "source": source_digest(source),
    }
