"""A member's whole training on the fused loop: alone it has the bits that it has in a population.

On a GPU where there is one, else in Triton's interpreter. Not so with what a library multiplies or
adds (docs/performance.md, "Accuracy"): plain RNNs' steps, and the maze's map.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from pfrnn.kernels import dispatch
from pfrnn.study.config import load_config
from pfrnn.study.train.choose import choose_path
from pfrnn.study.train.device import open_device
from pfrnn.study.train.members import search_members
from pfrnn.study.variants import variant

from .test_flat import flattening
from .test_population import SETTINGS, run, world

HERE = torch.cuda.is_available()
EPOCHS = 6 if HERE else 1
PARAMS = Path(__file__).parents[3] / "params.yaml"
# The paper's, for a GPU alone.
PAPER = {
    "sizes": {"other": {"pf": 64, "lstm": 80, "gru": 86, "particles": 20}},
    "network": {"encoder_regression": 64, "encoder_classification": 64, "embedding": 64},
}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="needs triton (its interpreter)"
    ),
]


@pytest.fixture
def place():
    """The device as a job opens it; cuDNN's settings as before afterwards."""
    flags = torch.backends.cudnn
    before = flags.deterministic, flags.benchmark, flags.allow_tf32
    if HERE:
        open_device(load_config(PARAMS, "smoke").execution, "cuda")
    yield torch.device("cuda" if HERE else "cpu")
    flags.deterministic, flags.benchmark, flags.allow_tf32 = before


def cut(split: Any, count: int, place: torch.device) -> Any:
    """Its first sequences."""
    moved = [value[:count].to(place) for value in split[:4]]
    return type(split)(*moved, split.host_length[:count], split.longest)


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param({}, id="toy"),
        pytest.param(
            PAPER, id="paper", marks=pytest.mark.skipif(not HERE, reason="too large to interpret")
        ),
    ],
)
@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("toy_regression", "pf_lstm"),
        ("toy_regression", "pf_gru"),
        ("toy_classes", "pf_gru"),
    ],
)
def test_a_member_alone_has_the_bits_that_it_has_in_a_population(
    tmp_path, monkeypatch, place, name, model, sizes
):
    """From the data to the best state; one member's gradient is clipped at every step."""
    monkeypatch.setenv(dispatch.VARIABLE, "fused")
    if not HERE:
        flattening(monkeypatch)  # as on a GPU, where the kernels update
    patch = {"training": {"max_epochs": EPOCHS, "patience": EPOCHS, "bptt": 100}, **sizes}
    members = search_members(SETTINGS[:2], 1, name)

    def trained(folder, chosen):
        problem, plain = world(tmp_path / folder, name, model, **patch)
        # Two steps an epoch, the second with fewer sequences.
        problem = problem._replace(
            train=cut(problem.train, 20, place),
            validation=cut(problem.validation, problem.validation.sequences, place),
            batch_size=16,
        )
        path = choose_path(plain.spec, variant(model), problem.config, 20, place)
        end = run(problem, path, chosen, tmp_path / folder / "run")
        assert path.name == "fused", path.reason
        path.release()
        return end

    together = trained("all", members)
    for number, member in enumerate(members):
        if not HERE and number == 0:
            continue  # interpreted, each training takes seconds
        alone = trained(f"only{number}", [member])
        mine = [row for row in together.history if row["member"] == number]
        assert len(mine) == len(alone.history) == EPOCHS
        for row, other in zip(mine, alone.history, strict=True):
            for key in row.keys() - {"member", "seconds"}:
                assert row[key] == other[key], (number, key, row["epoch"])
        for stack, same in zip(together.best[number][:2], alone.best[0][:2], strict=True):
            assert all(torch.equal(value, same[key]) for key, value in stack.items()), number
