"""The peak of a process is its own, not that of the process which started it."""

import subprocess
import sys

from pfrnn.study.memory import peak_resident


def test_a_small_child_of_a_large_parent_is_small() -> None:
    ballast = bytearray(512 << 20)
    assert peak_resident() > len(ballast)
    code = "from pfrnn.study.memory import peak_resident; print(peak_resident())"
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < len(ballast) // 2


def test_the_peak_counts_what_was_freed_again() -> None:
    before = peak_resident()
    ballast = bytearray(before + (64 << 20))
    del ballast
    assert peak_resident() > before
