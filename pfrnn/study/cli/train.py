"""``pfrnn train`` and ``pfrnn final``: one training job each."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pfrnn.study.cli._common import PREPARED, add_study_options, check_id, device_name

if TYPE_CHECKING:
    from pfrnn.study.devices import Lease
    from pfrnn.study.plan import Plan
    from pfrnn.study.train.places import Places


def add_parser(commands: Any) -> None:
    """Add both subcommands."""
    parser = commands.add_parser(
        "train",
        help="train one block of the search",
        description="Train the members of a block side by side. An interrupted job goes on where "
        "it stopped when it is started again.",
        epilog="Example: pfrnn train search/air/pf_lstm/h64-k20-b32-0123456789 --tier quick "
        "(pfrnn grid --tier quick --json lists the ids)",
    )
    parser.add_argument("job", metavar="BLOCK", help="the block's id, its folder below the results")
    _add_options(parser, _train)
    parser = commands.add_parser(
        "final",
        help="retrain a selected setting with repetitions and test it",
        description="Retrain the setting that a selection chose, with paired repetitions, and "
        "test each once. An interrupted job goes on where it stopped.",
        epilog="Example: pfrnn final final/air/pf_lstm-fixed-0123456789 --tier quick "
        "(pfrnn grid --tier quick --json lists the ids)",
    )
    parser.add_argument("job", metavar="FINAL", help="the final's id, its folder below the results")
    _add_options(parser, _final)


def _add_options(parser: argparse.ArgumentParser, run: Callable[..., None]) -> None:
    add_study_options(parser)
    parser.add_argument("--prepared", type=Path, default=PREPARED)
    parser.add_argument(
        "--device", type=device_name, help="cpu, cuda, cuda:1, ... (default: params.yaml)"
    )
    parser.set_defaults(run=run)


def _train(parsed: argparse.Namespace) -> None:
    from pfrnn.study.data.store import load_card
    from pfrnn.study.jobfolder import identity_of
    from pfrnn.study.plan import block_parameters

    plan, places = _planned(parsed)
    block = plan.block(check_id(plan, "block", parsed.job))
    data = load_card(places.prepared / plan.prepared_id(block.dataset)).arrays_digest
    identity = identity_of(block_parameters(plan, block), data, "pfrnn.study.train.block")

    def train() -> None:
        from pfrnn.study.train.block import train_block

        train_block(plan, block.id, places, parsed.device)

    _run_job(parsed.device, plan, places, block.id, identity, train)


def _final(parsed: argparse.Namespace) -> None:
    from pfrnn.study.data.store import load_card
    from pfrnn.study.evaluate.selection import read_selection
    from pfrnn.study.jobfolder import identity_of
    from pfrnn.study.plan import cell_parameters

    plan, places = _planned(parsed)
    cell = plan.cell(check_id(plan, "final", parsed.job))
    selection = read_selection(plan, cell, places.results)
    data = load_card(places.prepared / plan.prepared_id(cell.dataset)).arrays_digest
    identity = identity_of(cell_parameters(plan, cell), data, "pfrnn.study.train.final", selection)

    def train() -> None:
        from pfrnn.study.train.final import run_final

        run_final(plan, cell.final_id, places, parsed.device)

    _run_job(parsed.device, plan, places, cell.final_id, identity, train)


def _planned(parsed: argparse.Namespace) -> tuple[Plan, Places]:
    from pfrnn.study.plan import load_plan
    from pfrnn.study.train.places import Places

    plan = load_plan(parsed.params, parsed.tier)
    return plan, Places(parsed.results or Path("results") / plan.config.tier, parsed.prepared)


def _run_job(
    device: str | None,
    plan: Plan,
    places: Places,
    job: str,
    identity: Mapping[str, Any],
    train: Callable[[], None],
) -> None:
    """Train one block or final unless it is finished already, alone in its folder.

    Args:
        device: the command line's; None takes the configuration's.
        plan: the tier's plan.
        places: folders.
        job: the block's or final's id.
        identity: what its numbers depend on.
        train: imports torch and trains; called with the folder locked and a device leased.
    """
    from pfrnn.study.jobfolder import alone, is_finished

    folder = places.results / job
    with alone(folder):
        if is_finished(places.results, job, identity):
            print(f"finished before: {job}; to train it again, remove {folder} first")
            return
        # CUDA must see the leased device only, so torch comes after the lease.
        with _leased(device or plan.config.execution.device):
            train()
    print(f"finished: {folder}")


def _leased(device: str) -> Lease:
    """Lease a GPU unless the CPU or a numbered device was asked for; say on stderr what came."""
    from pfrnn.study.devices import VISIBLE, Lease, lease_for_job

    if device == "cpu" or ":" in device:
        lease = Lease((), (), f"device {device}, as asked")
    else:
        lease = lease_for_job(on_wait=_say)
    _say(f"{lease.reason}; {VISIBLE}={os.environ.get(VISIBLE, '')}")
    return lease


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
