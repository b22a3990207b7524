from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from pfrnn.study.files import atomic_path, digest_of, sha256_file, write_json, write_text


def _write_half(target: Path) -> None:
    with atomic_path(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError("disk full")


def test_atomic_path_keeps_the_old_file_when_writing_fails(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "table.csv"
    write_text(target, "old\n")
    with pytest.raises(RuntimeError, match="disk"):
        _write_half(target)
    assert target.read_text() == "old\n"
    assert list(target.parent.iterdir()) == [target]


def test_atomic_path_leaves_nothing_when_the_first_write_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="disk"):
        _write_half(tmp_path / "new.csv")
    assert list(tmp_path.iterdir()) == []


def test_written_files_are_readable_as_any_other(tmp_path: Path) -> None:
    write_text(tmp_path / "ours", "x")
    (tmp_path / "plain").write_text("x")
    modes = {(tmp_path / name).stat().st_mode for name in ("ours", "plain")}
    assert len(modes) == 1


def test_json_is_sorted_and_refuses_nan(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"b": 1, "a": "ü"})
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == '{\n  "a": "ü",\n  "b": 1\n}\n'
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "b.json", {"x": float("nan")})
    assert not (tmp_path / "b.json").exists()


def test_digest_depends_on_content_and_not_on_key_order() -> None:
    assert digest_of({"a": 1, "b": [1.5, "x"]}) == digest_of({"b": [1.5, "x"], "a": 1})
    assert digest_of({"a": 1}) != digest_of({"a": 2})
    assert digest_of({"a": 1}) != digest_of({"a": "1"})
    plain = hashlib.sha256(json.dumps([1]).encode()).hexdigest()
    assert digest_of([1], length=64) == plain


def test_sha256_reports_progress(tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_bytes(b"x" * (2**20 + 5))
    seen: list[int] = []
    assert sha256_file(path, seen.append) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert seen == [2**20, 5]
