"""Cells beside the paper's, by the name that a variant's ``own`` gives (docs/own_model.md)."""

from __future__ import annotations

from pfrnn.errors import ConfigError, suggestion
from pfrnn.nn.cells import ParticleCell, PFGRUCell, PFLSTMCell
from pfrnn.study.train.plain import GRUCell, LSTMCell, PlainCell

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
    found = _own(own)
    if not issubclass(found, PlainCell):
        raise ConfigError(_other_kind(own, found, "PlainCell", "plain, bayesian or ensemble"))
    return found


def particle_cell(cell: str, own: str | None = None) -> type[ParticleCell]:
    """Return the class of a particle cell; arguments and errors as :func:`plain_cell`."""
    if own is None:
        return PFLSTMCell if cell == "lstm" else PFGRUCell
    found = _own(own)
    if not issubclass(found, ParticleCell):
        raise ConfigError(_other_kind(own, found, "ParticleCell", "particle"))
    return found


def _own(name: str) -> type[PlainCell] | type[ParticleCell]:
    if name not in CELLS:
        near = suggestion(name, sorted(CELLS)) if CELLS else "; none is there"
        raise ConfigError(f"unknown own cell {name!r} (pfrnn/study/train/own.py, CELLS){near}")
    return CELLS[name]


def _other_kind(name: str, found: type, base: str, kinds: str) -> str:
    return f"own cell {name!r}: a variant of kind {kinds} needs a {base}, got {found.__name__}"
