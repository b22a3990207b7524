"""Stopping at a step's end when a scheduler or a person asks for it."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any

from pfrnn.errors import PfrnnError


class StoppedError(PfrnnError):
    """Training was asked to stop; its state is saved (exit code 128 + signal number)."""

    def __init__(self, number: int, where: str) -> None:
        name = signal.Signals(number).name
        super().__init__(f"stopped by {name}; state saved in {where}, run again to go on")
        self.exit_code = 128 + number


class StopRequest:
    """Context in which SIGTERM and SIGINT set ``signal`` instead of ending the process.

    A second signal of the same kind has its usual effect, for when a step hangs.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                self._before[number] = signal.signal(number, self._note)
            except ValueError:
                # Only the main thread may set handlers; elsewhere signals act as usual.
                break
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        signal.signal(number, self._before[number])

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
