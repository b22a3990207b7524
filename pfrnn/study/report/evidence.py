"""What a report is made from: one folder of small tidy files, and nothing else.

===================  ==========================================================================
``results.csv``      one row a repetition and metric (``pfrnn.study.records.RESULT_COLUMNS``)
``data/study.json``  tier, planned data sets, variants and size rules, confidence, missing sets;
                     parameter files over params.yaml, where there are any
``data/cards.json``  prepared card of each data set: state, controls, sizes, digests
``data/runs.json``   run record of each final: commit, device, seconds, how many diverged
``data/choices.json`` setting selected for each final
``data/histories.csv`` thinned learning curves of the finals
``data/series.json`` error, effective sample size and calibration of each final
``data/beliefs.json`` a few trajectories with all particles, and the exact posterior's answer
``data/sequences.json`` a few test sequences of each data set
``data/blocks.json`` data, commit, device and seconds of each finished block and final
===================  ==========================================================================

``pfrnn.study.report.collect`` writes it from a tier's results; tables, figures and claims are
functions of it, so the same folder gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from pfrnn.errors import RecordError
from pfrnn.study.recorded import evidence_cure, read_jobs, read_part, read_table
from pfrnn.study.records import RESULT_COLUMNS

# The columns that every histories.csv has, and what one may have besides: the best score up to the
# epoch, of all epochs and not of those kept alone.
HISTORY = ("final_id", "member", "epoch", "train_loss", "val_score", "ess")
BEST_SO_FAR = "val_best"
# Rows a run of histories.csv, at most.
EPOCHS_KEPT = 32
# Ends a commit in whose place an edited source ran, as in PFRNN_COMMIT.
DIRTY = "-dirty"
EXPLAINED_DIRTY = f"{DIRTY[1:]}: the source had changes that this commit doesn't hold"
NUMERIC = (
    "hidden_size",
    "particles",
    "batch_size",
    "learning_rate",
    "clip",
    "l2",
    "repetition",
    "value",
    "passes_sd",
    "sampling_error",
    "n_test",
    "selected_member_value",
    "parameters",
    "budget_configurations",
    "budget_epochs",
    "search_seconds",
    "final_seconds",
)


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
    datasets: tuple[str, ...]
    variants: tuple[str, ...]
    size_rules: tuple[str, ...]
    confidence: float
    missing: dict[str, str]
    missing_files: dict[str, list[str]]
    stand_ins: tuple[str, ...] = ()
    own_variants: dict[str, list[str]] | None = None
    parameter_files: tuple[str, ...] = ()

    def variants_of(self, dataset: str) -> Sequence[str]:
        """Return the variants planned on a data set."""
        return (self.own_variants or {}).get(dataset, self.variants)

    def recorded(self) -> dict[str, Any]:
        """What study.json holds; evidence of params.yaml alone names no parameter files."""
        return {
            name: value
            for name, value in self._asdict().items()
            if name != "parameter_files" or value
        }


class Evidence(NamedTuple):
    """The evidence folder in memory."""

    study: Study
    results: pd.DataFrame
    cards: dict[str, dict[str, Any]]
    runs: dict[str, dict[str, Any]]
    choices: dict[str, dict[str, Any]]
    histories: pd.DataFrame
    series: dict[str, dict[str, Any]]
    beliefs: dict[str, dict[str, Any]]
    sequences: dict[str, dict[str, Any]]
    blocks: dict[str, dict[str, Any]]

    def commit_of(self, final: str, commit: str, digits: int = 40) -> str:
        """Return a final's commit, marked where the source had changes that no commit holds."""
        return commit[:digits] + (DIRTY if self.runs.get(final, {}).get("dirty") else "")

    def commits(self) -> list[str]:
        """The commit of each row of the results, as :meth:`commit_of` has it."""
        pairs = zip(self.results["final_id"], self.results["commit"], strict=True)
        return [self.commit_of(str(final), str(commit)) for final, commit in pairs]


_AGAIN = "write it with `pfrnn aggregate`, or take the committed one back"


def read_results(path: Path) -> pd.DataFrame:
    """Read a tidy results file.

    Raises:
        RecordError: it isn't a table, a column is missing, or a number isn't one.
    """
    # One whole line a row: pandas takes a cut one, and fills it up.
    read_table(path, RESULT_COLUMNS, _AGAIN)
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    for name in NUMERIC:
        numbers = pd.to_numeric(frame[name].replace("", "nan"), errors="coerce")
        words = frame[name].str.lower()
        bad = frame[numbers.isna() & ~words.isin(["", "nan", "inf", "-inf", "none"])]
        if len(bad):
            row = int(bad.index[0])
            raise RecordError(
                f"{path}, line {row + 2}, column {name}: expected a number, "
                f"got {bad[name].iloc[0]!r}"
            )
        frame[name] = numbers
    return frame


def empty_results() -> pd.DataFrame:
    """Return a results table without rows."""
    frame = pd.DataFrame({name: pd.Series(dtype=str) for name in RESULT_COLUMNS})
    return frame.astype(dict.fromkeys(NUMERIC, float))


def _read_histories(path: Path) -> pd.DataFrame:
    read_table(path, HISTORY)  # refuses a damaged one
    histories = pd.read_csv(path)
    return histories if BEST_SO_FAR in histories else histories.assign(**{BEST_SO_FAR: math.nan})


def read_evidence(folder: Path) -> Evidence:
    """Read an evidence folder.

    Raises:
        RecordError: a file is missing or damaged.
    """
    for path in (folder / "results.csv", folder / "data" / "study.json"):
        if not path.is_file():
            raise RecordError(f"{path}: no such file; `pfrnn report` writes it from the results")
    study, frame = _study(folder), read_results(folder / "results.csv")
    others = sorted(set(frame["tier"]) - {study.tier})
    if others:
        raise RecordError(
            f"{folder / 'results.csv'}: expected rows of tier {study.tier}, got "
            f"{', '.join(others)}; a verdict depends on the tier, so name the one that ran (--tier)"
        )
    return Evidence(
        study,
        frame,
        read_part(folder, "cards.json"),
        read_part(folder, "runs.json"),
        read_part(folder, "choices.json"),
        _read_histories(folder / "data" / "histories.csv"),
        read_part(folder, "series.json"),
        read_part(folder, "beliefs.json"),
        read_part(folder, "sequences.json"),
        read_jobs(folder),
    )


def _study(folder: Path) -> Study:
    study = read_part(folder, "study.json")
    unknown = sorted(study.keys() - set(Study._fields))
    if unknown:
        path = folder / "data" / "study.json"
        raise RecordError(
            f"{path}: {', '.join(unknown)} unknown to this version; {evidence_cure(path)}"
        )
    for name in ("datasets", "variants", "size_rules"):
        study[name] = tuple(study[name])
    for name in ("stand_ins", "parameter_files"):
        study[name] = tuple(study.get(name, ()))
    return Study(**study)
