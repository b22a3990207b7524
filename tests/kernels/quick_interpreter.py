"""Triton's interpreter without its largest cost: it patches the language at every function call.

A launch puts the interpreter's own functions into ``triton.language``, and each call of a device
function in it does the same once more, which is a quarter of all time. Here the second and further
calls of a launch find them there. ``speed_up`` changes nothing where Triton has no such function.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import triton
from triton.runtime import interpreter


class Patched:
    """What a call's patching is asked to undo: nothing, the launch's own does that."""

    def restore(self) -> None:
        pass


def speed_up() -> None:
    """Patch each of the language's modules once a launch."""
    if not hasattr(interpreter, "_patch_lang") or hasattr(interpreter, "_patched_before"):
        return
    patch, launch = interpreter._patch_lang, interpreter.GridExecutor.__call__
    seen: set[str] = set()
    interpreter._patched_before = seen

    def patch_once(function: Any) -> Any:
        # The language's modules that the function's own module names are those that are patched.
        language = (triton.language, triton.language.core)
        named = {
            value.__name__
            for value in function.__globals__.values()
            if isinstance(value, ModuleType) and value in language
        }
        if named <= seen:
            return Patched()
        seen.update(named)
        return patch(function)

    def launch_afresh(self: Any, *arguments: Any, **options: Any) -> Any:
        seen.clear()
        try:
            return launch(self, *arguments, **options)
        finally:
            seen.clear()

    interpreter._patch_lang = patch_once
    interpreter.GridExecutor.__call__ = launch_afresh
