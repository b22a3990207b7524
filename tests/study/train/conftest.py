"""What several tests of training share."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def _double():
    """Float64, so that an equality can be tight.

    In float32 RMSprop turns rounding into steps: a bias in front of a batch norm has gradient 0
    but for rounding, and RMSprop divides by its size.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)
