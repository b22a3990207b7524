"""What a type checker says of a user's code: options, results and top-level names are typed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SNIPPET = """
import torch
from torch.nn.utils.rnn import PackedSequence
from pfrnn import PFGRU, PFLSTM, PFState, PFLTSM  # error: has no attribute "PFLTSM"

layer = PFLSTM(3, 8, num_particles=5, alpha=0.3, resampling="systematic", batch_first=True)
PFLSTM(3, 8, num_particles=5, alhpa=0.3)  # error: Unexpected keyword argument "alhpa"
PFGRU(3, 8, num_particles=5, resampling="sfot")  # error: incompatible type
PFGRU(3, 8)  # error: Missing named argument "num_particles"
x = torch.zeros(2, 4, 3)
output, state = layer(x, num_particles=7)
reveal_type(output)  # note: Revealed type is "torch._tensor.Tensor"
belief: PFState = state
layer(x, state, bptt=2, checkpoint_every=4)
layer(x, tuple(state))
layer(x, noises=x)  # error: No overload variant
packed: PackedSequence = layer(torch.nn.utils.rnn.pack_sequence([x[0]]))[0]
mean: torch.Tensor = state.mean()
layer.filter(x).particels  # error: has no attribute "particels"
"""


@pytest.mark.nightly
def test_a_users_mistakes_are_found(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(SNIPPET)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "user.py"]
    environment = os.environ | {"MYPYPATH": str(ROOT)}
    done = subprocess.run(
        [*command, f"--cache-dir={tmp_path}", "--follow-imports=silent"],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    found: dict[int, str] = {}
    for line, text in re.findall(r"^user\.py:(\d+): (?:error|note): (.*)$", done.stdout, re.M):
        found[int(line)] = found.get(int(line), "") + text
    for number, line in enumerate(SNIPPET.splitlines(), 1):
        _, _, expected = line.partition("# ")
        if expected:
            assert expected.partition(": ")[2] in found.pop(number, ""), (line, done.stdout)
    assert not found, done.stdout
