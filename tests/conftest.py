"""What must be so before any test module is imported."""

import importlib.util
import os
import zlib

import pytest
import torch

if not torch.cuda.is_available():
    # Triton reads it when the kernels' modules are imported, and whichever test comes first may do
    # that.
    os.environ.setdefault("TRITON_INTERPRET", "1")
    if importlib.util.find_spec("triton") is not None:
        from tests.kernels.quick_interpreter import speed_up

        speed_up()

# The files that take longest, longest first; with `--no-loadscope-reorder` xdist hands files out in
# this order, so that none of them is left alone at the end. Any other order is right, too.
LONGEST = (
    "chaos/test_chaos.py",
    "workflow/test_run.py",
    "slurm/test_slurm.py",
    "track/test_server.py",
    "kernels/test_compiles.py",
    "train/test_fused.py",
    "workflow/test_mlflow_models.py",
    "train/test_all_variants.py",
    "nn/test_compile.py",
    "track/test_mlflow.py",
)


@pytest.fixture(autouse=True)
def _same_numbers(request: pytest.FixtureRequest) -> None:
    """Torch's own generator begins a test where it always does: alone, in a run, on any worker."""
    torch.manual_seed(zlib.crc32(request.node.name.encode()))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, then the others with slow tests, then the rest."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}

    def rank(item: pytest.Item) -> int:
        name = "/".join(item.path.parts[-2:])
        if name in LONGEST:
            return LONGEST.index(name)
        return len(LONGEST) + (item.path not in slow)

    items.sort(key=rank)
