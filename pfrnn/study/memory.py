"""How much memory a process has used."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

STATUS = Path("/proc/self/status")


def peak_resident() -> int:
    """The largest resident size that this process has had, in bytes.

    Read from the kernel's account of this program where it has one (Linux). The general
    ``getrusage`` also counts what the parent held when it started this program, so that a job
    of 10 MiB started by a process of 1 GiB would report 1 GiB.
    """
    if STATUS.exists():
        found = re.search(r"^VmHWM:\s+(\d+) kB$", STATUS.read_text(), re.MULTILINE)
        if found:
            return 1024 * int(found[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
