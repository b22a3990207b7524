"""What a report is made from: one folder of small tidy files, and nothing else.

===================  ==========================================================================
``results.csv``      one row a repetition and metric (``pfrnn.study.records.RESULT_COLUMNS``)
``data/study.json``  tier, planned data sets, variants and size rules, confidence, missing sets
``data/cards.json``  prepared card of each data set: state, controls, sizes, digests
``data/runs.json``   run record of each final: commit, device, seconds, how many diverged
``data/choices.json`` setting selected for each final
``data/histories.csv`` thinned learning curves of the finals
``data/series.json`` error, effective sample size and calibration of each final
``data/beliefs.json`` a few trajectories with all particles, and the exact posterior's answer
``data/sequences.json`` a few test sequences of each data set
``data/blocks.json`` data, commit, device and seconds of each finished block and final
===================  ==========================================================================

``collect`` makes it from a tier's results, ``merge`` adds it to what is recorded. Tables, figures
and claims are functions of it, so the same folder gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from pfrnn.errors import RecordError
from pfrnn.study.files import canonical_json, write_json, write_text
from pfrnn.study.recorded import evidence_cure, read_part
from pfrnn.study.records import RESULT_COLUMNS

HISTORY = ("final_id", "member", "epoch", "train_loss", "val_score", "ess")
BEST_SO_FAR = "val_best"  # the best score up to an epoch, of all epochs and not of those kept alone
EPOCHS_KEPT = 32  # rows a run of histories.csv, at most
DIRTY = "-dirty"  # ends a commit in whose place an edited source ran
TEXTS = (
    "tier dataset variant size_rule fidelity seed metric passes unit data_state data_digest device "
    "commit final_id"
).split()
PARTS = ("cards", "runs", "choices", "series", "beliefs", "sequences", "blocks")


class Study(NamedTuple):
    """What the tier set out to run.

    Attributes:
        tier: its name.
        datasets: planned data sets, missing ones included.
        variants: planned variants.
        size_rules: planned size rules.
        confidence: of every interval.
        missing: data set -> why it could not be had.
        missing_files: data set -> the publisher's file names that would cure it.
        stand_ins: substitutes among ``datasets``, which ran because of the missing ones.
        own_variants: data set -> its planned variants, where they are not ``variants``.
        parameter_files: laid over params.yaml, for the commands that the report shows.
    """

    tier: str
    datasets: Sequence[str]
    variants: Sequence[str]
    size_rules: Sequence[str]
    confidence: float
    missing: dict[str, str]
    missing_files: dict[str, list[str]]
    stand_ins: Sequence[str] = ()
    own_variants: dict[str, list[str]] | None = None
    parameter_files: Sequence[str] = ()

    def variants_of(self, dataset: str) -> Sequence[str]:
        """Return the variants planned on a data set."""
        return (self.own_variants or {}).get(dataset, self.variants)


class Evidence(NamedTuple):
    """The evidence folder in memory; tables hold text, as in the files."""

    study: Study
    results: pd.DataFrame
    histories: pd.DataFrame
    cards: dict[str, dict[str, Any]]
    runs: dict[str, dict[str, Any]]
    choices: dict[str, dict[str, Any]]
    series: dict[str, dict[str, Any]]
    beliefs: dict[str, dict[str, Any]]
    sequences: dict[str, dict[str, Any]]
    blocks: dict[str, dict[str, Any]]


def read_table(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Read a table of the evidence as text.

    Raises:
        RecordError: it is missing, no table, or lacks a column.
    """
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: cannot be read ({error}); {evidence_cure(path)}") from error
    if lacking := [name for name in columns if name not in frame]:
        raise RecordError(f"{path}: {', '.join(lacking)} missing; {evidence_cure(path)}")
    return frame


def numeric(frame: pd.DataFrame, path: Path | str = "results.csv") -> pd.DataFrame:
    """Return a table of text with its numbers as numbers; what is empty becomes NaN.

    Raises:
        RecordError: a number isn't one.
    """
    frame = frame.copy()
    for name in frame.columns.difference(TEXTS):
        empty = frame[name].isin(["", "nan", "None"])
        try:
            frame[name] = frame[name].mask(empty).astype(float)
        except ValueError as error:
            raise RecordError(f"{path}, column {name}: expected numbers ({error})") from error
    return frame


def read_results(path: Path) -> pd.DataFrame:
    """Read ``results.csv`` with numbers; RecordError where it isn't one."""
    return numeric(read_table(path, RESULT_COLUMNS), path)


def read_evidence(folder: Path) -> Evidence:
    """Read an evidence folder.

    Raises:
        RecordError: a file is missing or damaged, or the results are of another tier.
    """
    study = Study(**read_part(folder, "study.json"))
    results = read_table(folder / "results.csv", RESULT_COLUMNS)
    if others := sorted(set(results["tier"]) - {study.tier}):
        raise RecordError(
            f"{folder / 'results.csv'}: expected rows of tier {study.tier}, got "
            f"{', '.join(others)}; name the tier that ran (--tier)"
        )
    histories = read_table(folder / "data" / "histories.csv", HISTORY)
    if BEST_SO_FAR not in histories:
        histories[BEST_SO_FAR] = ""
    parts = {name: read_part(folder, f"{name}.json") for name in PARTS}
    return Evidence(study, results, histories, **parts)


def write_evidence(evidence: Evidence, folder: Path) -> None:
    """Write an evidence folder."""
    data = folder / "data"
    write_text(folder / "results.csv", evidence.results.to_csv(index=False, lineterminator="\n"))
    write_text(data / "histories.csv", evidence.histories.to_csv(index=False, lineterminator="\n"))
    study = evidence.study._asdict()
    write_json(data / "study.json", {k: v for k, v in study.items() if k[:9] != "parameter" or v})
    for name in PARTS:
        value = getattr(evidence, name)
        if name in ("beliefs", "sequences"):  # large: on one line
            write_text(data / f"{name}.json", canonical_json(value) + "\n")
        else:
            write_json(data / f"{name}.json", value)


def marked(commit: str, run: dict[str, Any]) -> str:
    """Return a commit, marked where the source had changes that it doesn't hold."""
    return commit + (DIRTY if run.get("dirty") else "")


def short(value: Any) -> Any:
    """Round a number to six digits, for tables that are committed."""
    return float(f"{value:.6g}") if isinstance(value, float) and math.isfinite(value) else value
