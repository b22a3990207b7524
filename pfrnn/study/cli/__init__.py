"""The command line: one module a subcommand; parse, call, exit code.

Exit codes: 0 done, 1 failed (the last line says why), 2 wrong usage or configuration, 130
interrupted.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import pkgutil
import sys
from collections.abc import Sequence

from pfrnn import __version__
from pfrnn.errors import PfrnnError

_FULL_OR_READ_ONLY = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)


def build_parser() -> argparse.ArgumentParser:
    """Build the parser from every module in this package that has ``add_parser``."""
    parser = argparse.ArgumentParser(
        prog="pfrnn",
        description="Reproduce 'Particle Filter Recurrent Neural Networks' step by step.",
        epilog="Example: pfrnn datasets --json",
    )
    parser.add_argument("--version", action="version", version=f"pfrnn {__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", required=True)
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{__name__}.{module.name}").add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    try:
        parsed = build_parser().parse_args(arguments)
        return _run(parsed)
    except KeyboardInterrupt:
        # Also while modules load.
        print("pfrnn: interrupted", file=sys.stderr)
        return 130
    except ModuleNotFoundError as error:
        package = (error.name or "pfrnn").split(".")[0]
        if package == "pfrnn":
            raise
        # The layers need torch alone; the commands need the study's extras.
        print(
            f"pfrnn: the Python package of {package!r} is not installed; the commands need "
            "more than the layers: pip install 'pfrnn[workflow]'",
            file=sys.stderr,
        )
        return 2


def _run(parsed: argparse.Namespace) -> int:
    try:
        return int(parsed.run(parsed) or 0)
    except PfrnnError as error:
        print(f"pfrnn {parsed.command}: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except OSError as error:
        if error.errno not in _FULL_OR_READ_ONLY:
            raise
        where = f" ({error.filename})" if error.filename else ""
        print(
            f"pfrnn {parsed.command}: {error.strerror}{where}; free space or make the folder "
            "writable, then run again: finished work and checkpoints are kept",
            file=sys.stderr,
        )
        return 1
