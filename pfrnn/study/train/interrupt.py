"""Stopping at a step's end when a scheduler or a person asks for it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pfrnn.errors import PfrnnError

STOPS = (signal.SIGTERM, signal.SIGINT)


class StoppedError(PfrnnError):
    """Training was asked to stop; its state is saved (exit code 128 + signal number)."""

    def __init__(self, number: int, where: str) -> None:
        name = signal.Signals(number).name
        super().__init__(f"stopped by {name}; state saved in {where}, run again to go on")
        self.exit_code = 128 + number


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """Collect SIGTERM and SIGINT in the list instead of ending the process.

    A second signal of the same kind has its usual effect, for when a step hangs. Only the main
    thread may set handlers; elsewhere signals act as usual.
    """
    before = {number: signal.getsignal(number) for number in STOPS}
    found: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        found.append(number)
        signal.signal(number, before[signal.Signals(number)])

    try:
        for number in STOPS:
            signal.signal(number, note)
    except ValueError:
        yield found
        return
    try:
        yield found
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
