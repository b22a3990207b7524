"""Successive halving: who is dropped, when, and what the replay says about the full search."""

from __future__ import annotations

import csv
import json
import math

import pytest

from pfrnn.errors import RecordError
from pfrnn.study.cli import main
from pfrnn.study.evaluate.halving import Replay, dropped, replay, rungs
from pfrnn.study.evaluate.halving_report import Replayed, read_history, summary
from pfrnn.study.evaluate.selection import read_candidates
from pfrnn.study.jobfolder import break_seal
from pfrnn.study.train.block import train_block

from . import toys


def test_rungs_are_an_eighth_a_quarter_and_a_half():
    assert rungs(200) == (25, 50, 100)
    assert rungs(8) == (1, 2, 4)
    assert rungs(1) == ()


def test_the_worse_half_is_dropped():
    assert dropped({4: 1.0, 7: 2.0, 9: 3.0, 11: 4.0}) == [9, 11]
    assert dropped({4: 1.0, 7: 1.0, 9: 1.0}) == [9]
    assert dropped({4: math.inf, 7: 2.0}) == [4]
    assert dropped({3: 5.0}) == []
    assert dropped({}) == []


def history(curves):
    return [
        {"member": m, "epoch": e, "val_score": s}
        for m, curve in curves.items()
        for e, s in enumerate(curve, 1)
    ]


def test_replay_finds_a_late_bloomer_that_halving_misses():
    early = [5.0, 4.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0]
    late = [6.0, 6.0, 6.0, 6.0, 2.0, 2.0, 2.0, 1.0]
    found = replay(history({0: early, 1: late}), 8)
    assert (found.full, found.halved) == (1, 0)
    assert found.regret == 2.0
    assert found.share == (8 + 1) / 16
    agreed = replay(history({0: early, 1: [7.0] * 8}), 8)
    assert (agreed.full, agreed.halved, agreed.regret) == (0, 0, 0.0)


@pytest.mark.parametrize(("regrets", "median"), [((0.0, 1.0), 0.5), ((3.0, 0.0, 1.0), 1.0)])
def test_the_median_regret_of_an_even_number_lies_between(regrets, median):
    rows = [
        Replayed("air", f"block{i}", 2, Replay(0, 0, 1.0, regret, 0.5))
        for i, regret in enumerate(regrets)
    ]
    assert summary(rows)["median_regret"] == median


def test_a_block_with_halving_trains_as_the_replay_of_the_full_block_says(tmp_path):
    grid = {"grid": {"learning_rate": [1e-5, 1e-3, 3e-3, 1e-2], "halving": False}}
    patch = {"study": {"variants": ["gru"]}, "training": {"max_epochs": 8, "patience": 8}}
    full = toys.study(patch, grid)
    halving = toys.study(patch, grid, {"grid": {"halving": True}})
    assert full.blocks[0].digest != halving.blocks[0].digest
    places = toys.prepared_places(full, tmp_path)
    for plan in (full, halving):
        train_block(plan, plan.blocks[0].id, places)
    members = read_candidates(halving, halving.blocks[0], places.results)
    assert sorted(one.status for one in members) == ["completed"] + ["halved"] * 3
    assert sorted(one.epochs for one in members) == [1, 1, 2, 8]
    path = places.results / full.blocks[0].id / "history.csv"
    with path.open(newline="") as source:
        rows = [
            {key: float(row[key]) for key in ("member", "epoch", "val_score")}
            for row in csv.DictReader(source)
        ]
    expected = replay(rows, 8)
    assert members[expected.halved].status == "completed"
    assert expected.share == (1 + 1 + 2 + 8) / 32


def test_the_report_counts_the_winners_that_halving_keeps(tmp_path, capsys, monkeypatch):
    """Two blocks of one cell, their histories written by hand over real records."""
    patch = {
        "study": {"datasets": ["maze10"], "variants": ["gru"]},
        "grid": {"batch_size": [10, 15]},
        "training": {"max_epochs": 8, "patience": 8},
    }
    plan = toys.study(patch)
    places = toys.prepared_places(plan, tmp_path)
    # An empty field stands for a score that wasn't finite.
    keeps = {0: [5.0, 4.0, 3.0, 2.0, 2.0, 2.0, 2.0, 2.0], 1: [6.0] * 8}
    misses = {0: [5.0, 4.0, 3.0, 3.0, 3.0, 3.0, 3.0, 2.5], 1: ["", *[6.0] * 6, 1.5]}
    for block, curves in zip(plan.blocks, (keeps, misses), strict=True):
        train_block(plan, block.id, places)
        break_seal(places.results / block.id)
        with (places.results / block.id / "history.csv").open("w", newline="") as target:
            writer = csv.DictWriter(target, ["member", "epoch", "val_score"])
            writer.writeheader()
            writer.writerows(history(curves))
    monkeypatch.setattr("pfrnn.study.cli._plan.load_plan", lambda params, tier: plan)
    options = ["--results", str(places.results)]
    assert main(["halving", "--json", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    first, second = (found["blocks"][block.id] for block in plan.blocks)
    assert (first["full"], first["halved"], first["regret"]) == (0, 0, 0.0)
    assert (second["full"], second["halved"], second["score"], second["regret"]) == (1, 0, 1.5, 1.0)
    total = found["total"]
    assert (total["blocks"], total["winner_kept"], total["largest_regret"]) == (2, 1, 1.0)
    assert total["share_of_epochs"] == (8 + 1) / 16
    # The full search takes the second block's late bloomer; halving takes the first block's.
    assert found["selections"] == {"agreeing": 0, "cells": 1}
    assert main(["halving", *options]) == 0
    out = capsys.readouterr().out
    assert "in 1 of 2 blocks and in 0 of 1 selections over blocks, with 56% of the epochs" in out
    (places.results / plan.blocks[1].id / "run.json").unlink()
    assert main(["halving", *options]) == 0
    assert "in 1 of 1 blocks and in 0 of 0 selections" in capsys.readouterr().out


@pytest.mark.parametrize("line", [",3,2.0", "1,,2.0", "1,nan,2.0", "x,3,2.0", "1,3,low"])
def test_a_history_without_member_epoch_or_number_is_damaged(line, tmp_path):
    """An empty score alone means something: it wasn't finite."""
    path = tmp_path / "search" / "maze10" / "gru" / "h1" / "history.csv"
    path.parent.mkdir(parents=True)
    path.write_text("member,epoch,val_score\n0,1,\n0,2,3.5\n")
    read = [{"member": 0, "epoch": 1, "val_score": float("inf")}]
    assert read_history(path.parent)[:1] == read
    path.write_text(f"member,epoch,val_score\n0,1,\n{line}\n")
    with pytest.raises(RecordError, match=r"history.csv: expected whole .* `pfrnn train search/"):
        read_history(path.parent)


def test_the_report_needs_a_full_search(tmp_path, capsys, monkeypatch):
    for patch, words in (
        ({"grid": {"halving": True}}, "not searched in full"),
        ({}, "no finished block of more than one member"),
    ):
        plan = toys.study(patch)
        monkeypatch.setattr("pfrnn.study.cli._plan.load_plan", lambda params, tier, plan=plan: plan)
        assert main(["halving", "--results", str(tmp_path)]) in (1, 2)
        assert words in capsys.readouterr().err
