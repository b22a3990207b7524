"""Who may import whom (docs/architecture.md), read from the source without running it."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pfrnn
from pfrnn.study.provenance import source_closure

PACKAGE = Path(pfrnn.__file__).parent
# Small modules of the study that every other part of it may import.
GROUND = {
    "config",
    "seeding",
    "files",
    "memory",
    "records",
    "variants",
    "provenance",
    "strict",
    "yamlfile",
}

# Room: the rooms it may import besides itself. All may import pfrnn.errors; rooms of the study the
# ground modules too. The library's rooms are listed first: none of them may import the study.
ALLOWED = {
    "functional": set(),
    "kernels": {"functional"},
    "nn": {"functional", "kernels"},
    "study.data": set(),
    "study.evaluate": {"study.data", "study.plan", "study.jobfolder"},
    "study.plan": {"study.data", "study.resolved"},
    "study.resolved": set(),
    "study.rates": set(),
    "study.workload": {"study.data", "study.plan", "study.rates"},
    "study.recorded": {"study.data", "study.plan", "study.workload"},
    "study.progress": {"study.plan", "study.jobfolder", "study.evaluate"},
    "study.devices": set(),
    "study.jobfolder": set(),
    "study.schema": {"study.data"},
    "study.scope": {
        "study.data",
        "study.plan",
        "study.recorded",
        "study.devices",
        "study.rates",
        "study.workload",
    },
    "study.train": {
        "functional",
        "kernels",
        "nn",
        "study.data",
        "study.evaluate",
        "study.plan",
        "study.devices",
        "study.jobfolder",
    },
    "study.track": {
        "study.data",
        "study.plan",
        "study.train",
        "study.report",
        "study.evaluate",
    },
    "study.report": {
        "study.data",
        "study.evaluate",
        "study.plan",
        "study.workload",
        "study.recorded",
        "study.jobfolder",
    },
    "study.cli": None,  # the command line may call everything
}
# A third-party package and the only rooms that may import it; absent: all may.
OWNERS = {
    "mlflow": {"study.track"},
    "matplotlib": {"study.report"},
    "snakemake": set(),
    "triton": {"kernels"},
    "torch": {"functional", "kernels", "nn", "study.train", "study.cli", "study.provenance"},
}
HEAVY = {"torch", "pandas", "sklearn", "mlflow", "matplotlib", "scipy", "numpy"}


def room_of(parts: tuple[str, ...] | list[str]) -> str:
    """The room of a module, by its names below the package: ``study.data``, ``nn``."""
    if parts and parts[0] == "study" and len(parts) > 1:
        return f"study.{parts[1]}"
    return parts[0] if parts else "__init__"


def imported(path: Path, root: Path, top_only: bool = False) -> Iterator[str]:
    """Dotted names that a file imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_only else ast.walk(tree)
    package = [root.name, *path.relative_to(root).parts[:-1]]
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            yield prefix
            yield from (f"{prefix}.{alias.name}" for alias in node.names)


def violations(root: Path) -> list[str]:
    """Every forbidden arrow below ``root``, in words."""
    rooms = {room_of(path.relative_to(root).with_suffix("").parts) for path in root.rglob("*.py")}
    ground = {f"study.{name}" for name in GROUND} | {"errors", "study.__init__"}
    found = set()
    for path in sorted(root.rglob("*.py")):
        room = room_of(path.relative_to(root).with_suffix("").parts)
        where = path.relative_to(root)
        if room in ("__init__", "__main__"):
            continue
        for name in imported(path, root):
            parts = name.split(".")
            if parts[0] == root.name:
                target = room_of(parts[1:])
                library = not room.startswith("study")
                if library and target.startswith("study"):
                    found.add(f"{where}: {room} must not import {target}")
                if target not in rooms or target == room or target in ground:
                    continue
                allowed = ALLOWED.get(room, set())
                if allowed is not None and target not in allowed:
                    found.add(f"{where}: {room} must not import {target}")
            elif parts[0] in OWNERS and room not in OWNERS[parts[0]]:
                found.add(f"{where}: only {sorted(OWNERS[parts[0]])} may import {parts[0]}")
    return sorted(found)


def test_no_forbidden_arrow() -> None:
    assert violations(PACKAGE) == []


@pytest.mark.parametrize(
    ("path", "line", "expected"),
    [
        ("study/data/bad.py", "from pfrnn.nn import PFLSTM", "study.data must not import nn"),
        ("study/data/bad.py", "from ...nn import PFLSTM", "study.data must not import nn"),
        ("functional/bad.py", "import pfrnn.study.train", "functional must not import study.train"),
        ("nn/bad.py", "from pfrnn.study import config", "nn must not import study.config"),
        ("nn/bad.py", "import pfrnn.study", "nn must not import study"),
        ("study/report/bad.py", "def f():\n    import torch", "may import torch"),
        ("study/train/bad.py", "import mlflow.tracking", "may import mlflow"),
        ("study/evaluate/bad.py", "from matplotlib import pyplot", "may import matplotlib"),
        ("study/cli/bad.py", "import snakemake", "may import snakemake"),
        ("study/config.py", "from pfrnn.study import plan", "config must not import study.plan"),
    ],
)
def test_a_forbidden_arrow_is_found(path: str, line: str, expected: str, tmp_path: Path) -> None:
    root = tmp_path / "pfrnn"
    for room in (*ALLOWED, "study"):
        folder = root.joinpath(*room.split("."))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").write_text("")
    shutil.rmtree(root / "study" / "plan")
    (root / "study" / "plan.py").write_text("")
    (root / "study" / "config.py").write_text("")
    (root / path).write_text(line + "\n")
    found = violations(root)
    assert any(expected in line for line in found)
    assert all("bad.py" in line or "config.py" in line for line in found)


def test_commands_import_nothing_heavy_at_the_top() -> None:
    """`pfrnn --help` must not load torch; each cli module, and what it loads at once, is light."""
    heavy = {
        f"{path.name}: {name}"
        for path in sorted((PACKAGE / "study" / "cli").glob("*.py"))
        for name in imported(path, PACKAGE, top_only=True)
        if name.split(".")[0] in HEAVY
    }
    assert heavy == set()


def test_building_the_command_line_loads_nothing_heavy() -> None:
    code = (
        "import sys; from pfrnn.study.cli import build_parser; build_parser(); print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert "pfrnn.study.cli" in loaded
    assert (HEAVY - {"numpy"}) & set(loaded) == set()


def test_training_does_not_depend_on_reporting_or_on_single_data_sets() -> None:
    """Else an edit of a figure, or of one data set, would retrain everything."""
    closure = source_closure("pfrnn.study.train.block") | source_closure("pfrnn.study.train.final")
    assert {"pfrnn.study.train.trainer", "pfrnn.study.train.networks", "pfrnn.functional"} <= set(
        closure
    )
    unwanted = [
        name
        for name in closure
        if name.startswith(("pfrnn.study.report", "pfrnn.study.track", "pfrnn.study.data.sets."))
    ]
    assert unwanted == []
