"""Cells beside the paper's, by the name that a variant's ``own`` gives (docs/own_model.md)."""

from __future__ import annotations

from typing import TypeVar

from pfrnn.errors import ConfigError, suggestion
from pfrnn.nn.cells import ParticleCell, PFGRUCell, PFLSTMCell
from pfrnn.study.train.plain import GRUCell, LSTMCell, PlainCell

Base = TypeVar("Base", PlainCell, ParticleCell)

# One line each. An import at the top of this file makes a cell's source part of the digests that
# decide what is trained again.
CELLS: dict[str, type[PlainCell] | type[ParticleCell]] = {}


def plain_cell(cell: str, own: str | None = None) -> type[PlainCell]:
    """Return the class of a plain cell.

    Args:
        cell: ``lstm`` or ``gru``.
        own: name of an own cell, which is then taken instead.

    Raises:
        ConfigError: no cell has this name, or it is a particle cell.
    """
    if own is None:
        return LSTMCell if cell == "lstm" else GRUCell
    return _own(own, PlainCell)


def particle_cell(cell: str, own: str | None = None) -> type[ParticleCell]:
    """Return the class of a particle cell; arguments and errors as :func:`plain_cell`."""
    if own is None:
        return PFLSTMCell if cell == "lstm" else PFGRUCell
    return _own(own, ParticleCell)


def _own(name: str, base: type[Base]) -> type[Base]:
    if name not in CELLS:
        near = suggestion(name, sorted(CELLS)) if CELLS else "; none is there"
        raise ConfigError(f"unknown own cell {name!r} (pfrnn/study/train/own.py, CELLS){near}")
    found = CELLS[name]
    if not issubclass(found, base):
        raise ConfigError(
            f"own cell {name!r}: its variant's kind needs a {base.__name__}, got {found.__name__}"
        )
    return found
