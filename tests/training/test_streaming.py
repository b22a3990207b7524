"""Streamed and resident data give the same bits."""

from __future__ import annotations

import pandas as pd
import pytest
import torch

from pfrnn.errors import ConfigError
from pfrnn.training import streaming
from pfrnn.training.block import train_block
from pfrnn.training.interrupt import StoppedError
from pfrnn.training.places import Places
from pfrnn.training.trainer import BlockTrainer

from . import toys

TIMES = ["seconds", "wall_seconds"]


def trained(plan, places, monkeypatch, steps):
    if steps is None:
        monkeypatch.delenv(streaming.VARIABLE, raising=False)
    else:
        monkeypatch.setenv(streaming.VARIABLE, str(steps))
    train_block(plan, plan.blocks[0].id, places)
    return places.results / plan.blocks[0].id


def same(one, other):
    a, b = (torch.load(folder / "best.pt") for folder in (one, other))
    for stack in a:
        assert all(torch.equal(a[stack][key], b[stack][key]) for key in a[stack])
    for name in ("members.csv", "history.csv"):
        x, y = (pd.read_csv(f / name).drop(columns=TIMES, errors="ignore") for f in (one, other))
        pd.testing.assert_frame_equal(x, y, check_exact=True)


def patch(name, model):
    return {"study": {"datasets": [name], "variants": [model]}, "training": {"patience": 1}}


@pytest.mark.parametrize("steps", [1, 2, 50])
@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("toy_regression", "bayes_lstm"),
        ("toy_regression", "lstm"),
        ("toy_classes", "pf_lstm"),
        ("maze10", "pf_gru"),
    ],
)
def test_streamed_equals_resident(tmp_path, monkeypatch, name, model, steps):
    plan = toys.study(patch(name, model))
    places = toys.prepared_places(plan, tmp_path)
    resident = trained(plan, places, monkeypatch, None)
    other = Places(tmp_path / "streamed", places.prepared)
    same(resident, trained(plan, other, monkeypatch, steps))


def test_resume_inside_a_chunk(tmp_path, monkeypatch):
    plan = toys.study(patch("toy_regression", "pf_lstm"))
    places = toys.prepared_places(plan, tmp_path)
    resident = trained(plan, places, monkeypatch, None)
    other = Places(tmp_path / "streamed", places.prepared)
    calls = []

    def stop(self, request):
        calls.append(0)
        if len(calls) == 2:
            self.save()
            raise StoppedError(15, str(self.checkpoint_path))

    with monkeypatch.context() as patched:
        patched.setattr(BlockTrainer, "_pause", stop)
        with pytest.raises(StoppedError):
            trained(plan, other, monkeypatch, 3)
    same(resident, trained(plan, other, monkeypatch, 3))


def test_refuses_a_wrong_setting(monkeypatch):
    monkeypatch.setenv(streaming.VARIABLE, "0")
    with pytest.raises(ConfigError, match="PFRNN_STREAM"):
        streaming.open_split(None, torch.device("cpu"))
