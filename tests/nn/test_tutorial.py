"""The tutorial's code runs, on the simulated series and, with the mirror, on PM."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"


def run(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TUTORIAL_STEPS", "15")
    pytest.importorskip("matplotlib", reason="the tutorial plots")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 5
    names = {"__name__": "tutorial"}
    with torch.random.fork_rng():
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), names)
    assert (folder / "belief.png").stat().st_size > 5_000
    assert names["each"].shape[-1] == 100
    assert all(0 <= share <= 1 for share in names["judged"].share.tolist())
    return names


@pytest.mark.parametrize("mirror", [None, "https://example.org/data"])
def test_on_the_simulated_series(tmp_path, monkeypatch, capsys, mirror):
    monkeypatch.delenv("PFRNN_DATA_MIRROR", raising=False)
    if mirror:  # a mirror may be an address; what is read here is a file
        monkeypatch.setenv("PFRNN_DATA_MIRROR", mirror)
    names = run(tmp_path, monkeypatch)
    assert len(names["series"]) == 20_000
    assert "PFLSTM       RMSE" in capsys.readouterr().out


@pytest.mark.mirror
def test_on_pm(tmp_path, monkeypatch):
    if not os.environ.get("PFRNN_DATA_MIRROR"):
        pytest.skip("PFRNN_DATA_MIRROR is not set")
    names = run(tmp_path, monkeypatch)
    assert len(names["series"]) == 43_824 - 24
    assert names["rmse"](None) < 40  # persistence, in ug/m3
