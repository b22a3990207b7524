"""Where the kernels run in tests: a GPU when there is one, else Triton's interpreter."""

from __future__ import annotations

import importlib.util

import pytest
import torch

MISSING = importlib.util.find_spec("triton") is None
if MISSING:
    collect_ignore_glob = ["test_*_kernel*.py"]


@pytest.fixture(scope="session")
def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
