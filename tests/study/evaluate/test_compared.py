"""The small files by which two commits are compared."""

from __future__ import annotations

from pathlib import Path

from pfrnn.study.evaluate.compared import _curve


def test_a_curve_is_of_all_repetitions_to_its_end(tmp_path: Path) -> None:
    """Who has stopped keeps its best: the mean neither jumps then, nor is one run's at the end."""
    scores = {0: [9.0, 5.0, 7.0], 1: [7.0, 8.0, 3.0, 4.0, 2.0], 2: [8.0, None, 6.0]}
    lines = [
        f"{member},{epoch},{'' if score is None else score}"
        for member, curve in scores.items()
        for epoch, score in enumerate(curve, 1)
    ]
    (tmp_path / "history.csv").write_text("\n".join(["member,epoch,val_score", *lines, ""]))
    assert list(_curve("lstm-fixed", tmp_path)) == [
        ("lstm-fixed", 1, 8.0),
        ("lstm-fixed", 2, 20 / 3),
        ("lstm-fixed", 3, 14 / 3),
        ("lstm-fixed", 4, 14 / 3),
        ("lstm-fixed", 5, 13 / 3),
    ]
