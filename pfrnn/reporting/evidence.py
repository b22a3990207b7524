"""What a report is made from: one folder of small tidy files, and nothing else.

===================  ==========================================================================
``results.csv``      one row a repetition and metric (``pfrnn.records.RESULT_COLUMNS``)
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

``pfrnn.reporting.collect`` writes it from a tier's results; tables, figures and claims are
functions of it, so the same folder gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from pfrnn.errors import RecordError
from pfrnn.files import read_json
from pfrnn.records import RESULT_COLUMNS

HISTORY = ("final_id", "member", "epoch", "train_loss", "val_score", "ess")
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

    def variants_of(self, dataset: str) -> Sequence[str]:
        """Return the variants planned on a data set."""
        return (self.own_variants or {}).get(dataset, self.variants)


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


def read_results(path: Path) -> pd.DataFrame:
    """Read a tidy results file.

    Raises:
        RecordError: it isn't a table, a column is missing, or a number isn't one.
    """
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (pd.errors.EmptyDataError, pd.errors.ParserError, UnicodeDecodeError) as error:
        came = str(error) if path.stat().st_size else "an empty file"
        raise RecordError(
            f"{path}: expected a results file, got {came}; write it with `pfrnn aggregate`, or "
            "take the committed one back"
        ) from error
    lacking = [name for name in RESULT_COLUMNS if name not in frame.columns]
    if lacking:
        raise RecordError(
            f"{path}: expected the columns of a results file, {', '.join(lacking)} missing; "
            "write it with `pfrnn aggregate`"
        )
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


def read_evidence(folder: Path) -> Evidence:
    """Read an evidence folder.

    Raises:
        RecordError: a file is missing or damaged.
    """
    results = folder / "results.csv"
    data = folder / "data"
    for path in (results, data / "study.json", data / "cards.json", data / "runs.json"):
        if not path.is_file():
            raise RecordError(f"{path}: no such file; `pfrnn report` writes it from the results")
    study, frame = read_json(data / "study.json"), read_results(results)
    others = sorted(set(frame["tier"]) - {study["tier"]})
    if others:
        raise RecordError(
            f"{results}: expected rows of tier {study['tier']}, got {', '.join(others)}; a verdict "
            "depends on the tier, so name the one that ran (--tier)"
        )
    for name in ("datasets", "variants", "size_rules"):
        study[name] = tuple(study[name])
    study["stand_ins"] = tuple(study.get("stand_ins", ()))
    blocks = data / "blocks.json"
    return Evidence(
        Study(**study),
        frame,
        read_json(data / "cards.json"),
        read_json(data / "runs.json"),
        read_json(data / "choices.json"),
        pd.read_csv(data / "histories.csv"),
        read_json(data / "series.json"),
        read_json(data / "beliefs.json"),
        read_json(data / "sequences.json"),
        # Evidence that was written before jobs were recorded has none.
        read_json(blocks) if blocks.is_file() else {},
    )
