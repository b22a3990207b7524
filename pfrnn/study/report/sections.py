"""Sections on what the numbers rest on: controls, units, missing sets, runs."""

from __future__ import annotations

import math
from typing import Any

from pfrnn.study.report.cells import Lookup
from pfrnn.study.report.cost import EXPLAINED, cost_tables
from pfrnn.study.report.figures.style import label
from pfrnn.study.report.matrices import rebuild_command, significant_count
from pfrnn.study.report.numbers import DASH, decimals_for, number, scored, seconds_text, significant
from pfrnn.study.report.paper.numbers import numbers_of
from pfrnn.study.report.summary import stand_in_sentence
from pfrnn.study.report.units import Reading, reading_of
from pfrnn.study.report.views import Part, PlainRow, PlainTable


def controls_part(lookup: Lookup) -> Part:
    """Compare every final at fixed size with each control on the same test rows."""
    results = lookup.evidence.results
    rows = []
    for dataset in sorted(set(results["dataset"])):
        reading = reading_of(dataset)
        controls = lookup.controls(dataset)
        for variant in dict.fromkeys(results[results["dataset"] == dataset]["variant"]):
            ours = lookup.ours(dataset, variant)
            if ours is None:
                continue
            beaten = [
                name
                for name, value in controls.items()
                if (ours.mean > value if reading.metric == "accuracy" else ours.mean < value)
            ]
            unbeaten = [name for name in controls if name not in beaten]
            mean = number(ours.mean, decimals_for(ours.mean))
            said = (_named(controls, beaten), _named(controls, unbeaten))
            texts = (dataset, label(variant), f"{reading.metric}, {reading.unit}", mean, *said)
            rows.append(PlainRow(texts, dataset, variant))
    header = ("data set", "variant", "metric", "ours", "better than", "not better than")
    table = PlainTable("Each variant at fixed size against the controls.", header, tuple(rows))
    return Part(
        "controls",
        "Controls",
        (
            "Simple predictors on the same test rows. Persistence repeats the last observed value, "
            "the map centre and the majority class are answered always; linear autoregression and "
            "logistic regression are small learned models. A network that does not beat them has "
            "learned little from the sequence. The exact posterior, where given, knows the true "
            "model: no method can beat it on average.",
        ),
        (table,) if rows else (),
    )


def _named(controls: dict[str, float], names: list[str]) -> str:
    """Write controls with their values; a dash when there are none."""
    return (
        ", ".join(
            f"{name.replace('_', ' ')} ({scored(controls[name], decimals_for(controls[name]))})"
            for name in names
        )
        or DASH
    )


def missing_part(lookup: Lookup) -> Part:
    """Missing data sets, why, and the two ways to add them."""
    study = lookup.evidence.study
    if not study.missing:
        return Part(
            "missing",
            "Missing data sets",
            ("Nothing is missing: every data set of this tier was had.",),
        )
    rows = []
    for name, reason in sorted(study.missing.items()):
        files = ", ".join(study.missing_files.get(name, [])) or "see `pfrnn datasets`"
        rows.append(PlainRow((name, reason, files, f"data/raw/{name}/"), name))
    table = PlainTable(
        "Missing sets and the files that would add them.",
        ("data set", "why it is missing", "files", "folder"),
        tuple(rows),
    )
    said = (stand_in_sentence(study),) if study.stand_ins else ()
    return Part(
        "missing",
        "Missing data sets",
        (
            *said,
            "Two ways to add a set, then run the same command again; only what is new is computed:",
            "1. Put the publisher's files, under the publisher's names, into the folder in the "
            "table.",
            "2. Set PFRNN_DATA_MIRROR to a folder or base address that holds SET/FILE for each "
            "file (with a network and without a mirror, the publisher's own address is tried).",
        ),
        (table,),
    )


def runs_part(lookup: Lookup) -> Part:
    """What all jobs cost; one line a final: setting, device, commit, command that rebuilds it."""
    evidence = lookup.evidence
    rows = []
    for final, group in evidence.results.groupby("final_id", sort=True):
        row: dict[str, Any] = {str(name): value for name, value in group.iloc[0].items()}
        run = evidence.runs.get(str(final), {})
        rows.append(
            PlainRow(
                (
                    str(final),
                    f"{group['repetition'].nunique()}",
                    str(run.get("diverged", "not recorded")),
                    significant_count(row["parameters"]),
                    significant_count(row["budget_configurations"]),
                    seconds_text(row["search_seconds"]),
                    seconds_text(row["final_seconds"]),
                    str(row["device"]),
                    evidence.commit_of(str(final), str(row["commit"]), 12),
                    rebuild_command(
                        evidence.study.tier, str(final), evidence.study.parameter_files
                    ),
                ),
                str(row["dataset"]),
                str(row["variant"]),
            )
        )
    header = (
        "final",
        "repetitions",
        "diverged",
        "parameters",
        "configurations searched",
        "search",
        "final runs",
        "device",
        "commit",
        "rebuild",
    )
    table = PlainTable("Every final run behind the tables.", header, tuple(rows))
    cost = cost_tables(lookup)
    said = (EXPLAINED,) if cost else ()
    return Part("runs", "Runs and budgets", said, (*cost, *((table,) if rows else ())))


def units_part(lookup: Lookup) -> Part:
    """RMSE, MAE and MSE of each regression set with persistence beside, and the reading."""
    rows = []
    for dataset in ("nasdaq", "aep", "air", "pm"):
        reading = reading_of(dataset)
        printed = [n.printed.value for n in numbers_of(1) if n.dataset == dataset and n.variant]
        spread = f"{significant(min(printed))} to {significant(max(printed))}"
        metrics = {name: Reading(name, 1.0, "", True, "") for name in ("rmse", "mae", "mse")}
        controls = {
            name: lookup.controls(dataset, one).get("persistence", math.nan)
            for name, one in metrics.items()
        }
        ours = {
            name: lookup.ours(dataset, "pf_lstm", "fixed", one) for name, one in metrics.items()
        }
        cells = [
            f"{significant(ours[name].mean) if ours[name] else 'not run'} / "  # type: ignore[union-attr]
            f"{significant(controls[name]) if math.isfinite(controls[name]) else 'not run'}"
            for name in metrics
        ]
        unit = lookup.evidence.cards.get(dataset, {}).get("unit", "not prepared")
        doubt = "stated" if reading.certain else "inferred"
        rows.append(
            PlainRow(
                (dataset, spread, *cells, str(unit), f"{reading.unit} ({doubt})", reading.why),
                dataset,
            )
        )
    header = (
        "data set",
        "paper prints",
        "RMSE: PF-LSTM / persistence",
        "MAE: PF-LSTM / persistence",
        "MSE: PF-LSTM / persistence",
        "our unit",
        "verdict on the unit",
        "why",
    )
    return Part(
        "units",
        "Units of the regression tables",
        (
            "The paper prints regression losses without a unit and names no target. Ours are given "
            "as RMSE, MAE and MSE in the target's unit, with persistence on the same test rows.",
        ),
        (PlainTable("Which reading of the printed numbers fits.", header, tuple(rows)),),
    )
