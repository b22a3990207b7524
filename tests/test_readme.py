"""The README's example runs, and the commands that it and the guide name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pfrnn.study.cli import build_parser
from pfrnn.study.config import TIERS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")


def test_the_layers_example_runs_as_printed() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert tuple(names["output"].shape) == (50, 4, 32)  # type: ignore[attr-defined]


def test_every_command_named_exists(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["--help"])
    listed = capsys.readouterr().out
    named = set(re.findall(r"(?:^|`)pfrnn ([a-z][a-z-]*)", README + GUIDE, re.MULTILINE))
    assert {"status", "grid", "report"} <= named
    assert {name for name in named if not re.search(rf"^ +{name}\b", listed, re.MULTILINE)} == set()


def test_every_target_and_tier_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", README + GUIDE, re.MULTILINE)) <= targets
    assert dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", GUIDE, re.MULTILINE)) == TIERS


def test_linked_files_exist() -> None:
    for name in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / name).exists(), name
