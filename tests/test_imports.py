"""Who may import whom (docs/architecture.md), read from the source without running it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pfrnn
from pfrnn.provenance import source_closure

PACKAGE = Path(pfrnn.__file__).parent
SHARED = {
    "config",
    "seeding",
    "errors",
    "files",
    "memory",
    "records",
    "variants",
    "provenance",
    "strict",
    "yamlfile",
}

# layer: the layers it may import besides itself and the shared modules; one that isn't listed
# may import the shared modules alone.
ALLOWED = {
    "functional": set(),
    "kernels": {"functional"},
    "nn": {"functional", "kernels"},
    "data": {"maze"},
    "maze": {"data"},
    "evaluation": {"data", "plan", "jobfolder"},
    "plan": {"data", "resolved"},
    "resolved": set(),
    "rates": set(),
    "workload": {"data", "plan", "rates"},
    "recorded": {"data", "plan", "workload"},
    "progress": {"plan", "jobfolder", "evaluation"},
    "devices": set(),
    "jobfolder": set(),
    "schema": {"data"},
    "training": {
        "functional",
        "kernels",
        "nn",
        "data",
        "maze",
        "evaluation",
        "plan",
        "devices",
        "jobfolder",
    },
    "tracking": {"plan", "training", "reporting", "evaluation"},
    "reporting": {"data", "maze", "evaluation", "plan", "workload", "recorded", "jobfolder"},
    "cli": None,  # the command line may call everything
}
# A third-party package and the only layers that may import it; absent: all may.
OWNERS = {
    "mlflow": {"tracking"},
    "matplotlib": {"reporting"},
    "snakemake": set(),
    "dvc": {"dvclock"},
    "triton": {"kernels"},
    "torch": {"functional", "kernels", "nn", "training", "cli", "provenance"},
}
HEAVY = {"torch", "pandas", "sklearn", "mlflow", "matplotlib", "scipy", "numpy"}


def layer_of(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return parts[0]


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
    modules = {entry.stem for entry in root.iterdir() if entry.suffix in ("", ".py")}
    found = set()
    for path in sorted(root.rglob("*.py")):
        layer = layer_of(path, root)
        where = path.relative_to(root)
        for name in imported(path, root):
            parts = name.split(".")
            if parts[0] == root.name:
                target = parts[1] if len(parts) > 1 else "__init__"
                if target not in modules or target == layer or target in SHARED:
                    continue
                if layer in ("__init__", "__main__"):
                    continue
                allowed = ALLOWED.get(layer, set())
                if allowed is not None and target not in allowed:
                    found.add(f"{where}: {layer} must not import {target}")
            elif parts[0] in OWNERS and layer not in OWNERS[parts[0]]:
                if not (parts[0] == "torch" and layer == "__init__"):
                    found.add(f"{where}: only {sorted(OWNERS[parts[0]])} may import {parts[0]}")
    return sorted(found)


def test_no_forbidden_arrow() -> None:
    assert violations(PACKAGE) == []


@pytest.mark.parametrize(
    ("path", "line", "expected"),
    [
        ("data/bad.py", "from pfrnn.nn import PFLSTM", "data must not import nn"),
        ("data/bad.py", "from ..nn import PFLSTM", "data must not import nn"),
        ("functional/bad.py", "import pfrnn.training", "functional must not import training"),
        ("reporting/bad.py", "def f():\n    import torch", "may import torch"),
        ("training/bad.py", "import mlflow.tracking", "may import mlflow"),
        ("evaluation/bad.py", "from matplotlib import pyplot", "may import matplotlib"),
        ("cli/bad.py", "import snakemake", "may import snakemake"),
        ("config.py", "from pfrnn import plan", "config must not import plan"),
    ],
)
def test_a_forbidden_arrow_is_found(path: str, line: str, expected: str, tmp_path: Path) -> None:
    root = tmp_path / "pfrnn"
    for package in ("data", "functional", "reporting", "training", "evaluation", "cli", "nn"):
        (root / package).mkdir(parents=True)
        (root / package / "__init__.py").write_text("")
    (root / "plan.py").write_text("")
    (root / path).write_text(line + "\n")
    found = violations(root)
    assert len(found) == 1
    assert expected in found[0]


def test_commands_import_nothing_heavy_at_the_top() -> None:
    """`pfrnn --help` must not load torch; each cli module, and what it loads at once, is light."""
    heavy = {
        f"{path.name}: {name}"
        for path in sorted((PACKAGE / "cli").glob("*.py"))
        for name in imported(path, PACKAGE, top_only=True)
        if name.split(".")[0] in HEAVY
    }
    assert heavy == set()


def test_building_the_command_line_loads_nothing_heavy() -> None:
    code = "import sys; from pfrnn.cli import build_parser; build_parser(); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert "pfrnn.cli" in loaded
    assert (HEAVY - {"numpy"}) & set(loaded) == set()


def test_training_does_not_depend_on_reporting_or_on_single_data_sets() -> None:
    """Else an edit of a figure, or of one data set, would retrain everything."""
    closure = source_closure("pfrnn.training.block") | source_closure("pfrnn.training.final")
    assert {"pfrnn.training.trainer", "pfrnn.nn.networks", "pfrnn.functional"} <= set(closure)
    unwanted = [
        name
        for name in closure
        if name.startswith(("pfrnn.reporting", "pfrnn.tracking", "pfrnn.data.sets."))
    ]
    assert unwanted == []
