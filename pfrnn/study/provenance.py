"""Where a number came from: digests of the source that made it, commit, versions, device."""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from pfrnn.study.files import sha256_file

PACKAGE_ROOT = Path(__file__).resolve().parents[1]


# A string literal, which may hold a #, or a comment; whatever comes first from the left is one.
# Python's own tokenizer agrees on every file of the package (a test), ten times as slowly.
_COMMENT = re.compile(
    r'"""(?:\\.|[^\\])*?"""|' + r"'''(?:\\.|[^\\])*?'''|"
    r'"(?:\\.|[^"\\\n])*"|' + r"'(?:\\.|[^'\\\n])*'|"
    r"(?P<comment>#[^\n]*)",
    re.DOTALL,
)


def meaningful_source(text: str) -> str:
    """Strip comments, docstrings and blank space: what is left decides what the code does.

    Editing a comment must not retrain a weekend of models. Of the parser only positions are taken,
    so the result is the same on every Python version.
    """
    return _meaning(text, ast.parse(text))


def _meaning(text: str, tree: ast.Module) -> str:
    lines = _COMMENT.sub(lambda found: "" if found["comment"] else found[0], text).splitlines()
    for node in (tree, *_statements(tree)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                for row in range(first.lineno - 1, first.end_lineno or first.lineno):
                    lines[row] = ""
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """All statements inside a node, at any depth; expressions, which hold none, are passed by."""
    names = ("body", "orelse", "finalbody", "handlers", "cases")
    # What only a type checker imports does not run.
    typing = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
    for name in ("orelse",) if typing else names:
        inner = getattr(node, name, None)
        for child in inner if isinstance(inner, list) else ():
            if isinstance(child, ast.stmt):
                yield child
            yield from _statements(child)


@functools.cache
def _parsed(path: Path) -> tuple[str, ast.Module]:
    text = path.read_text(encoding="utf-8")
    return text, ast.parse(text)


def _module_path(module: str, root: Path) -> Path | None:
    parts = module.split(".")
    if parts[0] != root.name:
        return None
    base = root.joinpath(*parts[1:])
    for candidate in (base.with_suffix(".py"), base / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def _imports(path: Path, module: str) -> set[str]:
    """Names of package modules that a file imports, anywhere in it (also inside functions)."""
    _, tree = _parsed(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: set[str] = set()
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parent, base] if base else parent)
            found.add(base)
            found.update(f"{base}.{alias.name}" for alias in node.names)
    return found


def source_closure(entry: str, root: Path = PACKAGE_ROOT) -> dict[str, Path]:
    """Return every module of the package that ``entry`` imports, directly or not.

    Parent packages' ``__init__`` files count: Python runs them on import.
    """
    closure: dict[str, Path] = {}
    waiting = [entry]
    while waiting:
        module = waiting.pop()
        path = _module_path(module, root)
        if path is None or module in closure:
            continue
        closure[module] = path
        waiting.extend(_imports(path, module))
        parts = module.split(".")
        waiting.extend(".".join(parts[:depth]) for depth in range(1, len(parts)))
    return closure


@functools.cache
def source_digest(*entries: str, root: Path = PACKAGE_ROOT) -> str:
    """Digest the meaning of all source that the entry modules reach, and their data files.

    A data file (a map, a template, the paper's tables) counts for the innermost package around it.

    Args:
        *entries: dotted module names, e.g. ``"pfrnn.study.train.block"``.
        root: the package's folder.

    Returns:
        Ten hexadecimal digits, the same on every machine and Python version.
    """
    closure: dict[str, Path] = {}
    for entry in entries:
        found = source_closure(entry, root)
        if not found:
            raise ModuleNotFoundError(f"no module {entry!r} under {root}")
        closure.update(found)
    digest = hashlib.sha256()
    for module in sorted(closure):
        digest.update(f"{module}\0{_file_meaning(closure[module])}\0".encode())
    for path in _data_files(closure.values()):
        digest.update(f"{path.relative_to(root)}\0{sha256_file(path)}\0".encode())
    return digest.hexdigest()[:10]


def _data_files(modules: Iterable[Path]) -> list[Path]:
    """Files that are not Python, below the packages among ``modules``, nested packages left out."""
    found: set[Path] = set()
    waiting = [path.parent for path in modules if path.name == "__init__.py"]
    while waiting:
        for path in waiting.pop().iterdir():
            if path.is_dir() and path.name != "__pycache__" and not (path / "__init__.py").exists():
                waiting.append(path)
            elif path.is_file() and path.suffix not in (".py", ".pyc", ".typed"):
                found.add(path)
    return sorted(found)


@functools.cache
def _file_meaning(path: Path) -> str:
    return _meaning(*_parsed(path))


def commit(root: Path | None = None) -> tuple[str, bool]:
    """Return (commit hash, True when the working tree differs); ("unknown", False) without git.

    A container image has no git folder: there ``PFRNN_COMMIT`` names what it was built from, with
    ``-dirty`` at its end where that was changed (Dockerfile).
    """
    where = root or PACKAGE_ROOT.parent
    built = os.environ.get("PFRNN_COMMIT", "")
    if built and root is None:
        return built.removesuffix("-dirty"), built.endswith("-dirty")
    try:
        head = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=where, capture_output=True, text=True, check=True
        ).stdout.strip()
        dirty = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no"],
            cwd=where,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown", False
    return head, bool(dirty)


def versions() -> dict[str, str]:
    """Return the versions that a result may depend on."""
    found = {"python": platform.python_version()}
    for name in ("torch", "numpy", "pandas", "scikit-learn", "triton", "pfrnn"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def lock_digest(root: Path | None = None) -> str:
    """Digest the lock file that the environment was installed from; "unknown" without one."""
    path = (root or PACKAGE_ROOT.parent) / "constraints.txt"
    return sha256_file(path)[:10] if path.is_file() else "unknown"


def driver(version_file: Path = Path("/proc/driver/nvidia/version")) -> str:
    """Return the NVIDIA driver's version; "unknown" where the kernel module doesn't say."""
    try:
        text = version_file.read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    found = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)", text)
    return found[1] if found else "unknown"


def machine(device: str) -> dict[str, Any]:
    """Describe the device a result was computed on (no host name: results must compare equal)."""
    described: dict[str, Any] = {"device": device, "system": platform.system()}
    if device.startswith("cuda"):
        import torch

        properties = torch.cuda.get_device_properties(device)
        described |= {
            "device_name": properties.name,
            "device_memory": properties.total_memory,
            "cuda": torch.version.cuda,
            "driver": driver(),
        }
    else:
        described["device_name"] = platform.processor() or platform.machine()
    return described
