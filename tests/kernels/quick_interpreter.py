"""Triton's interpreter without its two largest costs.

It patches the language at every function call. A launch puts the interpreter's own functions into
``triton.language``, and each call of a device function in it does the same once more, which is a
quarter of all time. Here the second and further calls of a launch find them there.

And its calls may lie across the end of a piece of Python's own memory for frames (``WIDE``).
``speed_up`` changes nothing where Triton has no such functions.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import triton
from triton.runtime import interpreter

# Python gives frames memory in pieces of 16 KiB. Where one happens to end below the interpreter's
# inner loop, each call in it maps a piece and unmaps it: up to twice the time. A frame that asks
# for so many values gets a piece of 512 KiB, and all that it calls lie in the rest of it.
WIDE = 33_000


class Patched:
    """What a call's patching is asked to undo: nothing, the launch's own does that."""

    def restore(self) -> None:
        pass


def speed_up() -> None:
    """Patch each of the language's modules once a launch; give a launch's frames one piece."""
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

    launch_afresh.__code__ = launch_afresh.__code__.replace(co_stacksize=WIDE)
    interpreter._patch_lang = patch_once
    interpreter.GridExecutor.__call__ = launch_afresh
