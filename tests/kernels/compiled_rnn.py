"""Compile what a plain RNN's training step launches, for a GPU that isn't there.

``python -m tests.kernels.compiled_rnn 90`` (compute capability) prints one JSON line: the number of
programs of each kernel after LSTM and GRU steps with and without batch norm and padding; and of all
after the same with another batch and population.
"""

from __future__ import annotations

import json
import sys
from collections import Counter

from pfrnn.functional.types import RNNSwitches
from tests.kernels.compiled_only import compile_only, zeroed
from tests.kernels.test_rnn_kernels import Case, draw, evaluate


def steps(members: int, sequences: int) -> None:
    for gru in (False, True):
        for switches in (RNNSwitches(), RNNSwitches("relu", "feature")):
            case = Case(gru, 2, members, sequences, 80, switches)
            evaluate(case, draw(case), "cpu", True)
        padded = Case(gru, 2, members, sequences, 80, padded=True)
        evaluate(padded, draw(padded), "cpu", True)


def main(capability: str) -> None:
    programs = compile_only(int(capability))
    zeroed()
    steps(2, 64)
    once = Counter(name.split()[0] for name in programs)
    steps(3, 61)
    print(json.dumps([once, len(programs)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
