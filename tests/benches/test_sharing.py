"""The benchmark of jobs that share a card, without one: what it counts and what it writes."""

from __future__ import annotations

import json
import time

import pytest
import torch

pytest.importorskip("triton", reason="the benchmark imports the kernels: pip install triton")

from bench import sharing
from bench.step_models import Size

CPU = torch.device("cpu")
WORKER = """
import sys, time
if {fails}:
    raise MemoryError("no room on the card")
print("ready", flush=True)
assert sys.argv[1] == "--worker" and sys.stdin.readline() == "go\\n"
print(0.004)
"""


def test_a_round_is_one_step_of_every_job():
    calls = []

    def job(name):
        def step():
            time.sleep(1e-3)
            calls.append(name)

        return step

    seconds = sharing.paced([job("a"), job("b")], 0.02, CPU)
    assert calls.count("a") == calls.count("b")
    assert calls[:4] == ["a", "b", "a", "b"]
    assert len(calls) % (2 * sharing.AHEAD) == 0
    assert 2e-3 <= seconds


def test_rates_of_processes_add_up(tmp_path, monkeypatch):
    script = tmp_path / "worker.py"
    script.write_text(WORKER.format(fails=False))
    monkeypatch.setattr(sharing, "__file__", str(script))
    assert sharing.processes(Size(), True, 2, 1.0) == pytest.approx(2.0)
    script.write_text(WORKER.format(fails=False).replace("print(0.004)", "sys.exit(1)"))
    with pytest.raises(RuntimeError, match=r"ended while it was timed \(exit code 1\)$"):
        sharing.processes(Size(), True, 2, 1.0)
    script.write_text(WORKER.format(fails=True))
    with pytest.raises(
        RuntimeError,
        match=r"before its step was made \(exit code 1\): MemoryError: no room on the card",
    ):
        sharing.processes(Size(), True, 2, 1.0)


def test_rows_and_gains(tmp_path, monkeypatch):
    def streams(size, early, jobs, seconds):
        if jobs == 3:
            raise RuntimeError("out of memory")
        return 6.0 / jobs + (not early)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(sharing, "machine", lambda device: {"card": "none"})
    monkeypatch.setitem(sharing.TIMED, "streams", streams)
    monkeypatch.setitem(sharing.TIMED, "processes", lambda *rest: 6.0)
    output = tmp_path / "sharing.json"
    sharing.main(["--output", str(output), "--jobs", "1", "2", "3", "--late"])
    result = json.loads(output.read_text())
    assert result["card"] == "none"
    assert len(result["commit"]) == 40
    rows = {(row["way"], row["jobs"], row["early"]): row for row in result["rows"]}
    assert len(rows) == len(result["rows"]) == 12
    assert rows["streams", 2, True]["gain"] == 2.0
    assert rows["streams", 2, False]["gain"] == 7.0 / 4.0
    assert rows["streams", 3, True]["error"] == "out of memory"
    assert rows["processes", 2, True]["gain"] == 1.0
    assert rows["processes", 2, True]["mps"] is sharing.mps()
    assert "mps" not in rows["streams", 1, True]


def test_without_early_launches_all_else_is_the_codes_own():
    assert sharing.tuning_of(Size(), True) is None
    tuning = sharing.tuning_of(Size(), False)
    assert (tuning.forward_early_from, tuning.backward_early) == (None, False)
    own = sharing.tuning_for(30, 64)
    assert tuning._replace(forward_early_from=own.forward_early_from, backward_early=True) == own


def test_what_is_refused(capsys):
    with pytest.raises(SystemExit):
        sharing.main(["--jobs", "0"])
    assert "expected at least one job" in capsys.readouterr().err
    if not torch.cuda.is_available():
        with pytest.raises(SystemExit):
            sharing.main([])
        assert "needs a CUDA device" in capsys.readouterr().err
