"""What must be so before any test module is imported."""

import os

import torch

if not torch.cuda.is_available():
    # Triton reads it when the kernels' modules are imported, and whichever test comes first may do
    # that.
    os.environ.setdefault("TRITON_INTERPRET", "1")
