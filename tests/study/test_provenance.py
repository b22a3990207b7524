from __future__ import annotations

import ast
import io
import subprocess
import tokenize
from pathlib import Path

import pytest

from pfrnn.study.provenance import (
    commit,
    driver,
    lock_digest,
    meaningful_source,
    source_closure,
    source_digest,
)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    root = tmp_path / "toy"
    files = {
        "__init__.py": "",
        "a.py": "from toy.b import f\n\n\ndef g():\n    from . import c\n    return f() + c.x\n",
        "b.py": "from toy.sub import table\n\n\ndef f():\n    return 1\n",
        "c.py": "x = 2\n",
        "alone.py": "y = 3\n",
        "sub/__init__.py": "table = 'rows.csv'\n",
        "sub/rows.csv": "1,2\n",
        "sub/maps/one.txt": "0\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def digest(root: Path, *entries: str) -> str:
    """The digest, computed anew (both steps are cached within a process)."""
    source_digest.cache_clear()
    from pfrnn.study.provenance import _file_meaning, _parsed

    _file_meaning.cache_clear()
    _parsed.cache_clear()
    return source_digest(*entries, root=root)


def by_pythons_tokenizer(text: str) -> str:
    """The meaning of a source again, slowly: comments from the tokenizer, every node looked at."""
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(text)):
        holds = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if holds and ast.get_docstring(node, clean=False) is not None:
            for row in range(node.body[0].lineno - 1, node.body[0].end_lineno):
                lines[row] = ""
    return "\n".join(line.rstrip() for line in lines if line.strip())


HARD = r"""
a = '#' "#" '''# " ''' + r"\\"  # a comment with 'quotes'
b = rb'\\'  # "
async def f(x=lambda: '#'):
    '''A docstring # with one.'''
    match x:
        case {"#": y}:  # '
            class C:
                "Another."
                z = f"{y}#{y!r:>{4}}"  # end
    try:
        import pfrnn.one
    except* ValueError:
        with x:
            import pfrnn.two  # '''
    finally:
        '''No docstring, # kept.'''
"""


def test_meaning_is_what_pythons_tokenizer_sees() -> None:
    from pfrnn.study.provenance import _statements

    files = list((Path(__file__).parents[2] / "pfrnn").rglob("*.py"))
    assert len(files) > 150
    for text in (HARD, *(path.read_text(encoding="utf-8") for path in files)):
        assert meaningful_source(text) == by_pythons_tokenizer(text)
        tree = ast.parse(text)
        every = {node for node in ast.walk(tree) if isinstance(node, ast.stmt)}
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
                every -= {inner for part in node.body for inner in ast.walk(part)}
        assert set(_statements(tree)) == every


def test_closure_follows_imports_also_inside_functions(package: Path) -> None:
    assert set(source_closure("toy.a", package)) == {"toy", "toy.a", "toy.b", "toy.c", "toy.sub"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.py", "x = 3\n"),
        ("b.py", "from toy.sub import table\n\n\ndef f():\n    return 2\n"),
        ("__init__.py", "version = 1\n"),
        ("sub/rows.csv", "1,3\n"),
        ("sub/maps/one.txt", "1\n"),
        ("sub/maps/two.txt", "0\n"),
    ],
)
def test_a_change_of_meaning_changes_the_digest(package: Path, name: str, text: str) -> None:
    before = digest(package, "toy.a")
    (package / name).write_text(text)
    assert digest(package, "toy.a") != before


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.py", '"""Says what it is."""\n\n# why\nx = 2  # because\n'),
        ("alone.py", "y = 4\n"),
        ("sub/__pycache__/x.pyc", "bytes"),
    ],
)
def test_comments_and_other_modules_do_not(package: Path, name: str, text: str) -> None:
    before = digest(package, "toy.a")
    (package / name).parent.mkdir(exist_ok=True)
    (package / name).write_text(text)
    assert digest(package, "toy.a") == before


def test_a_hash_inside_a_string_is_meaning() -> None:
    assert meaningful_source("x = '# no comment'\n") == "x = '# no comment'"


def test_an_unknown_entry_is_an_error(package: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"toy\.nothing"):
        digest(package, "toy.nothing")


def test_commit_says_when_the_tree_is_dirty(tmp_path: Path) -> None:
    assert commit(tmp_path) == ("unknown", False)
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@x"]

    def run(*words: str) -> None:
        subprocess.run([*git, *words], cwd=tmp_path, check=True, capture_output=True)

    run("init")
    (tmp_path / "f").write_text("1")
    run("add", "f")
    run("commit", "-m", "first")
    head, dirty = commit(tmp_path)
    assert (len(head), dirty) == (40, False)
    (tmp_path / "f").write_text("2")
    assert commit(tmp_path) == (head, True)


def test_a_container_says_what_it_was_built_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PFRNN_COMMIT", "0123abc")
    assert commit() == ("0123abc", False)
    monkeypatch.setenv("PFRNN_COMMIT", "0123abc-dirty")
    assert commit() == ("0123abc", True)


def test_the_lock_files_digest(tmp_path: Path) -> None:
    assert lock_digest(tmp_path) == "unknown"
    (tmp_path / "constraints.txt").write_text("torch==2.13.0\n")
    before = lock_digest(tmp_path)
    (tmp_path / "constraints.txt").write_text("torch==2.13.1\n")
    assert before != lock_digest(tmp_path)
    assert len(before) == 10


@pytest.mark.parametrize(
    "text",
    [
        # The two spellings of the kernel module's version file (proprietary and open module).
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC\n",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.183.01  Release Build\n",
    ],
)
def test_the_drivers_version(tmp_path: Path, text: str) -> None:
    assert driver(tmp_path / "none") == "unknown"
    (tmp_path / "version").write_text(text + "GCC version:  gcc version 12.2.0\n")
    assert driver(tmp_path / "version") == "535.183.01"
