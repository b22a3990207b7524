"""A machine without Triton (torch brings it with CUDA only) trains on the plain path."""

import subprocess
import sys

CODE = """
import importlib.util
import sys

find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "triton" else find(name, *rest)
sys.modules["triton"] = None  # an import of it fails

import torch
import pfrnn.study.cli
from pfrnn.kernels.dispatch import Problem, choose
from pfrnn.functional.pf_lstm import pf_lstm_step
from pfrnn.functional.types import FilterSwitches
import pfrnn.study.train.block, pfrnn.study.train.final

problem = Problem(pf_lstm_step, FilterSwitches(), 4, 8, torch.device("cpu"), torch.float32)
print(choose(problem).name)
"""


def test_training_imports_and_chooses_without_triton():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["plain"]
