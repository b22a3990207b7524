"""Invented run records in the form of pfrnn/study/records.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from pfrnn.study.files import write_json
from pfrnn.study.records import HISTORY_COLUMNS, MEMBER_COLUMNS, TEST_COLUMNS

SEARCH = "search/air/lstm/h80-k0-b32-0123456789"
FINAL = "final/air/pf_lstm-fixed-0123456789"


def _table(path: Path, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    pd.DataFrame(rows).reindex(columns=list(columns)).to_csv(path, index=False)


def _record(folder: Path, count: int, epochs: int, final: bool) -> Path:
    folder.mkdir(parents=True)
    shared = {"clip": 3.0, "l2": 0.001, "status": "completed", "epochs": epochs}
    shared |= {"best_epoch": epochs, "val_loss": 0.5, "train_loss": 0.25, "parameters": 1000}
    members = [
        {**shared, "member": index, "learning_rate": (0.0001, 0.0003, 0.0005)[index % 3],
         "repetition": index if final else 0, "seed": 7 + index, "val_score": 1.0 + 0.5 * index}
        for index in range(count)
    ]  # fmt: skip
    _table(folder / "members.csv", MEMBER_COLUMNS, members)
    history = [
        {"member": index, "epoch": epoch, "train_loss": 10.0 - epoch, "val_score": 1.0 / epoch}
        for index in range(count)
        for epoch in range(1, epochs + 1)
    ]
    _table(folder / "history.csv", HISTORY_COLUMNS, history)
    run = {"parameters": {}, "dataset": "air", "variant": "pf_lstm" if final else "lstm"}
    run |= {"metric": "rmse", "hidden_size": 80, "particles": 0, "batch_size": 32}
    run |= {"wall_seconds": 120.0, "commit": "abc", "data_digest": "d1", "data_state": "whole"}
    write_json(folder / "run.json", run)
    return folder


def write_search(results: Path, members: int = 2, epochs: int = 3) -> Path:
    """Write a search block's record."""
    return _record(results / SEARCH, members, epochs, final=False)


def write_final(results: Path, repetitions: int = 2) -> Path:
    """Write a final's record; repetition r has the test RMSE 3 + r / 2."""
    folder = _record(results / FINAL, repetitions, 3, final=True)
    rows = [
        {"repetition": r, "seed": 7 + r, "metric": "rmse", "value": 3 + r / 2, "n_test": 10}
        for r in range(repetitions)
    ]
    _table(folder / "test.csv", TEST_COLUMNS, rows)
    return folder
