"""The GPU that a training command takes before torch is imported."""

from __future__ import annotations

import os
import sys

from pfrnn.study.devices import VISIBLE, Lease, lease_for_job


def leased(asked: str | None, configured: str) -> Lease:
    """Lease a GPU unless the CPU or a numbered device was asked for; say on stderr what came.

    Args:
        asked: the command line's ``--device``.
        configured: ``execution.device`` of params.yaml.
    """
    name = asked or configured
    if name == "cpu" or ":" in name:
        lease = Lease((), (), f"device {name}, as asked")
    else:
        lease = lease_for_job(on_wait=_say)
    _say(f"{lease.reason}; {VISIBLE}={os.environ.get(VISIBLE, '')}")
    return lease


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
