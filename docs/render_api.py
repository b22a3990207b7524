"""Render the public names of the library and their docstrings to docs/api.md.

python docs/render_api.py            write docs/api.md
python docs/render_api.py --check    fail when docs/api.md is not what the docstrings say
"""

from __future__ import annotations

import argparse
import enum
import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

MODULES = ("pfrnn.nn", "pfrnn.functional")
# Methods that are torch's own machinery, or inherited without a change, aren't listed.
HEAD = """# API reference

Rendered from the docstrings by `python docs/render_api.py`; a test keeps it up to date.
Axes: time T, leading (member) axes `...`, sequences N, particles K, hidden units H.
"""


def render() -> str:
    """Return the whole reference as Markdown."""
    parts = [HEAD]
    for name in MODULES:
        module = importlib.import_module(name)
        names = sorted(module.__all__, key=lambda item: (item.lower(), item))
        links = ", ".join(f"[{item}](#{anchor(name, item)})" for item in names)
        parts.append(f"## {name}\n\n{inspect.getdoc(module)}\n\n{links}\n")
        parts += [entry(module, item) for item in names]
    return "\n".join(parts)


def anchor(module: str, name: str) -> str:
    """Return the anchor that a Markdown renderer gives an entry's heading."""
    return f"{module}.{name}".replace(".", "").lower()


def entry(module: ModuleType, name: str) -> str:
    """Render one public name."""
    value = getattr(module, name)
    title = f"### {module.__name__}.{name}\n"
    if not callable(value):
        return f"{title}\n{constant(value)}\n"
    text = f"{title}\n{signature(value, name)}\n\n{docstring(value)}\n"
    if inspect.isclass(value) and not issubclass(value, (tuple, enum.Enum)):
        text += "".join(method(name, key, member) for key, member in methods(value))
    return text


def constant(value: Any) -> str:
    """Render a mapping of presets by its repr, one entry a line."""
    items = "\n".join(f"{key}: {item!r}" for key, item in value.items())
    return f"```\n{items}\n```"


def signature(value: Any, name: str) -> str:
    """Render a call's signature, one argument a line when it is long."""
    given = inspect.signature(value)
    arguments, starred = [], False
    for parameter in given.parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            arguments.append("*")
            starred = True
        arguments.append(argument(parameter))
    empty = given.return_annotation is inspect.Signature.empty
    arrow = "" if empty else f" -> {annotation(given.return_annotation)}"
    text = f"{name}({', '.join(arguments)}){arrow}"
    if len(text) > 90:
        lines = ",\n    ".join(arguments)
        text = f"{name}(\n    {lines},\n){arrow}"
    return f"```python\n{text}\n```"


def argument(parameter: inspect.Parameter) -> str:
    """Render one parameter as it stands in the source."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    text = stars.get(parameter.kind, "") + parameter.name
    if parameter.annotation is not inspect.Parameter.empty:
        text += f": {annotation(parameter.annotation)}"
    if parameter.default is not inspect.Parameter.empty:
        text += f" = {parameter.default!r}"
    return text


def annotation(value: Any) -> str:
    """Render an annotation: a string, a forward reference or a class."""
    if isinstance(value, str):
        return value
    return getattr(value, "__forward_arg__", None) or getattr(value, "__name__", str(value))


def docstring(value: Any) -> str:
    """Render a docstring as it stands: Google sections read well as plain text."""
    text = inspect.getdoc(value) or ""
    first, _, rest = text.partition("\n")
    return first if not rest.strip() else f"{first}\n\n```text\n{rest.strip(chr(10))}\n```"


def methods(cls: type) -> list[tuple[str, Any]]:
    """Return the public methods that the package defines, base classes included."""
    found = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("pfrnn."):
            found.update({k: v for k, v in vars(base).items() if not k.startswith("_")})
    return [(k, v) for k, v in sorted(found.items()) if inspect.isfunction(v)]


def method(owner: str, name: str, value: Any) -> str:
    """Render one method."""
    return f"\n#### {owner}.{name}\n\n{signature(value, name)}\n\n{docstring(value)}\n"


def main() -> int:
    """Write or check the page; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    from pfrnn.study.files import write_text

    path = ROOT / "docs" / "api.md"
    text = render()
    if not args.check:
        write_text(path, text)
        return 0
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        print("docs/api.md is out of date; run `python docs/render_api.py`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
