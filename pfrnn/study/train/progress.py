"""Telling a person how far a block is: a bar on a terminal, else a line every half minute."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

# Seconds between log lines.
_INTERVAL = 30.0


class Progress:
    """Counts training steps of a block; early stopping may end it before the total."""

    def __init__(self, label: str, total: int, done: int = 0) -> None:
        self.label = label
        self.total = total
        self.done = self._start_done = done
        self._start = self._last = time.monotonic()
        self._note = ""
        self._bar: Any = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=self.total, initial=self.done, desc=self.label, unit="step")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def step(self) -> None:
        """Count one step."""
        self.done += 1
        if self._bar is not None:
            self._bar.update()
        elif time.monotonic() - self._last >= _INTERVAL:
            self._line()

    def note(self, epoch: int, live: int, best: float) -> None:
        """Say where training is: epoch, live members, best validation score so far."""
        self._note = f"epoch {epoch}, {live} live, best {best:.5g}"
        if self._bar is not None:
            self._bar.set_postfix_str(self._note)

    def _line(self) -> None:
        self._last = time.monotonic()
        speed = (self.done - self._start_done) / (self._last - self._start)
        left = (self.total - self.done) / speed if speed > 0 else float("inf")
        print(
            f"{self.label}: {self._note}, step {self.done}/{self.total}, "
            f"at most {left / 60:.1f} min left",
            file=sys.stderr,
            flush=True,
        )
