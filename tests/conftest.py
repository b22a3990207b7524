"""What must be so before any test module is imported."""

import importlib.util
import os

import torch

if not torch.cuda.is_available():
    # Triton reads it when the kernels' modules are imported, and whichever test comes first may do
    # that.
    os.environ.setdefault("TRITON_INTERPRET", "1")
    if importlib.util.find_spec("triton") is not None:
        from tests.kernels.quick_interpreter import speed_up

        speed_up()
