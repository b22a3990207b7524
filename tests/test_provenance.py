from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pfrnn.provenance import commit, meaningful_source, source_closure, source_digest


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
    from pfrnn.provenance import _file_meaning

    _file_meaning.cache_clear()
    return source_digest(*entries, root=root)


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
