"""Sections of the page below the paper's tables: what the numbers rest on."""

from __future__ import annotations

import io
import math
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from pfrnn.study.config import options_of
from pfrnn.study.data.base import SPLITS
from pfrnn.study.data.registry import dataset as registered
from pfrnn.study.data.registry import dataset_names
from pfrnn.study.report.assets import asset
from pfrnn.study.report.claim_list import PF
from pfrnn.study.report.claims import PARITY, Judged, counted_claims, shown_claims
from pfrnn.study.report.figures.style import Drawing, label
from pfrnn.study.report.gains import percent, shown_gains
from pfrnn.study.report.numbers import (
    DASH,
    counted,
    decimals_for,
    number,
    seconds_text,
    significant,
)
from pfrnn.study.report.paper.numbers import paper_numbers
from pfrnn.study.report.results import Results
from pfrnn.study.report.tables import labelled
from pfrnn.study.report.units import Reading, reading_of


class Table(NamedTuple):
    """A table of text.

    Attributes:
        caption: what it shows.
        frame: its cells, text.
        key: the column whose text is a row's anchor; empty for none.
    """

    caption: str
    frame: pd.DataFrame
    key: str = ""


class Part(NamedTuple):
    """A section of the page."""

    anchor: str
    title: str
    paragraphs: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Drawing] = ()


def gains_part(judged: Judged, figure: Drawing) -> Part:
    """Return the gains of PF-RNNs: over their RNNs first, then over all else."""
    gains = judged.gains
    tables = [
        Table(caption, shown_gains(gains[gains["headline"] == headline]))
        for caption, headline in (("Over the RNN.", True), ("Over the other rivals.", False))
        if (gains["headline"] == headline).any()
    ]
    return Part(
        "gains",
        "Gains",
        (
            "Paired by repetition at fixed size: the change of the error (for accuracies: of the "
            "odds of a wrong class), so that less than zero is a gain, with its interval. The "
            "intervals hold the variance over seeds alone: the recorded finals keep no error per "
            "test item. p: paired t-test, adjusted by Holm's rule together with all claims of all "
            "tiers. Excluded: an equivalence test excludes larger changes at 5 %.",
        ),
        tables,
        [figure],
    )


def claims_part(judged: Judged, results: Results) -> Part:
    """Return the claims, and the data sets behind them one by one."""
    claims, strata = judged.claims, judged.strata
    shown = shown_claims(claims)
    shown["claim"] = [f"“{text}”" for text in shown["claim"]]
    excerpts = {name for name in results.sets if results.state(name) == "excerpt"}
    shared = [", ".join(sorted(excerpts.intersection(sets))) for sets in claims["sets"]]
    shown["ours"] += [f"; excerpts: {names}" if names else "" for names in shared]
    details = pd.DataFrame(
        {
            "data set / pair": strata["stratum"],
            "claim": strata["claim"],
            "n": strata["n"].astype(str),
            "change of the error": [percent(value) for value in strata["mean_difference"]],
        }
    )
    return Part(
        "claims",
        "Claims",
        (
            "Each claim is one stratified sign-flip test over all paired repetitions. The effect "
            "that decides is the mean over data sets of mean / root mean square of the paired "
            "gains, from -1 to 1: each set counts alike, whatever the size of its gain. p-values "
            "are two-sided and adjusted together with all gains of all tiers.",
        ),
        (
            Table("What the paper claims, and whether it holds here.", shown),
            Table("Claims that are counted, not tested.", counted_claims(results)),
            Table("Data sets behind the claims, one by one.", details),
        ),
    )


def controls_part(results: Results) -> Part:
    """Say which variants at fixed size beat each control on the same test rows."""
    rows = []
    for dataset in results.sets:
        reading = reading_of(dataset)
        own = results.rows[results.rows["dataset"] == dataset]["variant"]
        models = {name: results.get(dataset, name) for name in dict.fromkeys(own)}
        for control, value in results.controls(dataset).items():
            beaten: dict[bool, list[str]] = {True: [], False: []}
            for name, ours in models.items():
                if ours is not None:
                    better = (ours.mean > value) == (reading.metric == "accuracy")
                    beaten[better].append(label(name))
            shown = f"{control.replace('_', ' ')} ({number(value, decimals_for(value))})"
            texts = [", ".join(beaten[side]) or DASH for side in (True, False)]
            rows.append((dataset, f"{reading.metric}, {reading.unit}", shown, *texts))
    frame = labelled(rows, "data set", "metric", "control", "better", "not better")
    return Part(
        "controls",
        "Controls",
        (
            "Simple predictors on the same test rows. Persistence repeats the last observed value; "
            "the map centre and the majority class are always the same answer; linear "
            "autoregression and logistic regression are small learned models. The exact posterior "
            "knows the true model: no method can beat it on average.",
        ),
        (Table("Which variants at fixed size beat each control.", frame),) if rows else (),
    )


def units_part(results: Results) -> Part:
    """RMSE, MAE and MSE of each regression set with persistence beside, and the reading."""
    numbers, rows = paper_numbers(), []
    for dataset in ("nasdaq", "aep", "air", "pm"):
        reading = reading_of(dataset)
        mine = (numbers["table"] == "1") & (numbers["dataset"] == dataset)
        values = numbers[mine & (numbers["variant"] != "")]["value"]
        texts = []
        for metric in ("rmse", "mae", "mse"):
            one = Reading(metric)
            ours = results.get(dataset, "pf_lstm", "fixed", one)
            control = results.controls(dataset, one).get("persistence")
            both = [ours.mean if ours else None, control]
            texts.append(" / ".join("not run" if v is None else significant(v) for v in both))
        unit = str(results.card(dataset).get("unit", "not prepared"))
        doubt = "stated" if reading.certain else "inferred"
        said = (f"{reading.unit} ({doubt})", reading.why)
        spread = f"{significant(min(values))} to {significant(max(values))}"
        rows.append((dataset, spread, *texts, unit, *said))
    frame = labelled(
        rows, "data set", "paper prints", "RMSE: PF-LSTM / persistence",
        "MAE: PF-LSTM / persistence", "MSE: PF-LSTM / persistence", "our unit",
        "verdict on the unit", "why",
    )  # fmt: skip
    return Part(
        "units",
        "Units of the regression tables",
        (
            "The paper prints regression losses without a unit and names no target. Ours are given "
            "as RMSE, MAE and MSE in the target's unit, with persistence on the same test rows.",
        ),
        (Table("Which reading of the printed numbers fits.", frame),),
    )


def parity_part(results: Results) -> Part:
    """Compare trainable parameters of each PF-RNN with its RNN's at fixed size."""
    rows = []
    for dataset in results.sets:
        for pair in PF:
            found = [results.get(dataset, name) for name in pair]
            own, other = (float(o.row["parameters"]) if o else math.nan for o in found)
            if own > 0 and other > 0:
                share = own / other - 1
                equal = f"within {100 * PARITY:.0f} %" if abs(share) <= PARITY else "not equal"
                names = " / ".join(map(label, pair))
                counts = (counted(own), counted(other), f"{number(100 * share, 1)} %")
                rows.append((dataset, names, *counts, equal))
    frame = labelled(rows, "data set", "pair", "PF-RNN", "RNN", "difference", "verdict")
    said = (
        "The paper chooses the fixed sizes so that a PF-RNN and its RNN have 'roughly the same "
        f"number of trainable parameters'. Here: equal means within {100 * PARITY:.0f} %."
    )
    return Part(
        "parity",
        "Equal parameters",
        (said if rows else "No pair of a PF-RNN and its RNN has run yet.",),
        (Table("Trainable parameters of the whole network.", frame),) if rows else (),
    )


def gaps_parts() -> list[Part]:
    """Where we deviate from the paper's protocol, and what it leaves open."""
    gaps = pd.read_csv(io.StringIO(asset("gaps.csv")))
    frames = {kind: own.drop(columns="kind") for kind, own in gaps.groupby("kind")}
    return [
        Part(
            "deviations",
            "Deviations",
            ("Where we knowingly do something else than the text.",),
            (Table("Deviations from the paper's protocol.", frames["deviation"]),),
        ),
        Part(
            "unknown",
            "What we could not know",
            ("What the paper leaves open, and what we chose; params.yaml has most choices.",),
            (Table("Gaps of the paper.", frames["gap"]),),
        ),
    ]


def missing_part(results: Results) -> Part:
    """Missing data sets, why, and the two ways to add them."""
    study = results.study
    if not study.missing:
        said: Sequence[str] = ("Nothing is missing: every data set of this tier was had.",)
        return Part("missing", "Missing data sets", said)
    files = {name: ", ".join(study.missing_files.get(name, [])) for name in study.missing}
    rows = [
        (name, why, files[name] or "see `pfrnn datasets`", f"data/raw/{name}/")
        for name, why in sorted(study.missing.items())
    ]
    frame = labelled(rows, "data set", "why it is missing", "files", "folder")
    return Part(
        "missing",
        "Missing data sets",
        (
            "Two ways to add a set, then run the same command again; only what is new is computed: "
            "put the publisher's files, under the publisher's names, into the folder in the table; "
            "or set PFRNN_DATA_MIRROR to a folder or base address that holds SET/FILE.",
        ),
        (Table("Missing sets and the files that would add them.", frame),),
    )


def data_part(results: Results, drawings: Sequence[Drawing]) -> Part:
    """The cards of all planned or prepared sets, and their pictures."""
    names = list(dict.fromkeys((*results.study.datasets, *sorted(results.evidence.cards))))
    states = [_state(results, name) for name in names]
    origins = [_origin(results, name) for name in names if name in dataset_names()]
    header = ("data set", "state", "why", "sequences", "left out", "target", "digest", "notes")
    facts = ("data set", "origin", "to cite", "licence", "rows of the whole set", "raw files")
    return Part(
        "data",
        "Data",
        (
            "whole: the publisher's file with a known digest. excerpt: part of it. unverified: a "
            "file whose digest nobody could compare. simulated: drawn here from a seed. missing: "
            "could not be had.",
            "Test windows of LPA, GAS and UID overlap, so their items are not independent: their "
            "test-set error draws whole groups of overlapping windows.",
        ),
        (
            Table("State of the data behind every number.", labelled(states, *header)),
            Table("Where the data come from.", labelled(origins, *facts)),
        ),
        drawings,
    )


def _state(results: Results, name: str) -> tuple[str, ...]:
    card = results.card(name)
    if not card:
        why = results.study.missing.get(name, "not prepared in this tier")
        return (name, results.state(name), why, *[DASH] * 5)
    plain = {"whole": "as published", "simulated": "drawn here from the base seed"}
    sizes, capped = (
        ", ".join(f"{split} {card[key][split]:,}" for split in SPLITS if split in card[key])
        for key in ("sequences", "capped")
    )
    return (
        name,
        results.described(name),
        str(card["state_note"]) or plain.get(card["state"], "no reason noted"),
        sizes,
        f"by the tier's caps: {capped}" if capped else "nothing",
        f"{card['target']} [{card['unit']}]",
        str(card["arrays_digest"])[:12],
        " ".join(f"{note.rstrip('.')}." for note in card["notes"]) or "none",
    )


def _origin(results: Results, name: str) -> tuple[str, ...]:
    card, raw = registered(name).card, results.card(name).get("raw_sha256", {})
    files = ", ".join(f"{file} {digest[:12]}" for file, digest in sorted(raw.items()))
    return (
        name,
        card.origin,
        card.citation,
        card.licence.rstrip(".") + ("" if card.redistributable else " (may not be passed on)"),
        f"{card.rows:,}" if card.rows else "simulated",
        (f"{len(raw)} files" if len(raw) > 4 else files)
        or ("not prepared" if card.files else "none"),
    )


def cost_frame(results: Results) -> pd.DataFrame:
    """Return a row a finished job: data, commit, device, seconds spent and predicted."""
    rows = []
    for name, job in sorted(results.evidence.blocks.items()):
        kind, dataset, variant = name.split("/")[:3]
        dirty = "-dirty" if job.get("dirty") else ""
        rows.append(
            {
                "id": name,
                "kind": kind,
                "dataset": dataset,
                "variant": variant.rsplit("-", 2)[0] if kind == "final" else variant,
                "data_digest": job["data_digest"],
                "commit": results.commit(name, job["commit"] + dirty),
                "device": job["device"],
                "wall_seconds": job["wall_seconds"],
                "predicted_seconds": job["predicted_seconds"],
            }
        )
    return pd.DataFrame(rows)


def _cost_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Sum the jobs up by data set and device, then over data sets."""
    frame = frame.astype({"wall_seconds": float, "predicted_seconds": float})
    rows = []
    everything = frame.assign(dataset="all")
    for (dataset, device), own in [
        *frame.groupby(["dataset", "device"]),
        *everything.groupby(["dataset", "device"]),
    ]:
        both = own.dropna(subset=["wall_seconds", "predicted_seconds"])
        predicted, texts = both["predicted_seconds"].sum(), []
        for kind in ("search", "final"):
            jobs = own[own["kind"] == kind]
            texts += [str(len(jobs)), seconds_text(jobs["wall_seconds"].sum())]
        ratio = both["wall_seconds"].sum() / predicted if predicted else math.nan
        spent = seconds_text(own["wall_seconds"].sum())
        expected = seconds_text(predicted) if predicted else DASH
        rows.append((dataset, device, *texts, spent, expected, significant(ratio, 2)))
    return labelled(
        rows, "data set", "device", "search blocks", "seconds of search", "finals",
        "seconds of finals", "spent", "predicted, at most", "spent / predicted",
    )  # fmt: skip


def runs_part(results: Results) -> Part:
    """What all jobs cost, and the runs behind every number."""
    study, rows = results.study, []
    for final, own in results.rows.groupby("final_id", sort=True):
        row = own.iloc[0]
        run = results.evidence.runs.get(str(final), {})
        chosen = results.evidence.choices.get(str(final), {}).get("chosen", {})
        main = results.get(row["dataset"], row["variant"], row["size_rule"])
        digits = decimals_for(main.mean) if main else 2
        values = ", ".join(number(v, digits) for v in main.values) if main else DASH
        size = f"hidden {row['hidden_size']:.0f}, particles {row['particles']:.0f}"
        setting = (
            f"learning rate {row['learning_rate']:g}, batch {row['batch_size']:.0f}, clip "
            f"{row['clip']:g}, L2 {row['l2']:g}, fidelity {row['fidelity']}"
        )
        searched = f"{counted(row['budget_configurations'])}, {seconds_text(row['search_seconds'])}"
        rows.append(
            (
                str(final),
                values,
                f"{own['repetition'].nunique()}, {run.get('diverged', 'unknown')}",
                f"{size}, {setting}",
                counted(row["parameters"]),
                searched,
                f"{chosen['block_id']}, member {chosen['member']}" if chosen else "not recorded",
                seconds_text(row["final_seconds"]),
                str(row["device"]),
                results.commit(str(final), str(row["commit"])[:12]),
                str(row["data_digest"])[:12],
            )
        )
    frame = labelled(
        rows, "final", "by repetition", "repetitions, diverged", "setting", "parameters",
        "configurations searched", "selected", "final runs", "device", "commit", "data",
    )  # fmt: skip
    cost = cost_frame(results)
    tables = []
    if len(cost):
        caption = "Time spent against the prediction (each job: tables/cost.csv)."
        tables.append(Table(caption, _cost_table(cost)))
    if rows:
        tables.append(Table("Every final run behind the tables.", frame, "final"))
    by_hand = options_of(study.tier, ",".join(("params.yaml", *study.parameter_files)))
    example = str(rows[0][0]) if rows else "FINAL"
    return Part(
        "runs",
        "Runs and budgets",
        (
            "Wall time of every finished job, one after another. Predicted for all epochs when the "
            "job was published, at the rate that `pfrnn grid` names; early stopping makes it less.",
            f"To run a final again: {rebuild_command(study.tier, example, study.parameter_files)}; "
            f"by hand: pfrnn final {example} {by_hand}.",
        ),
        tables,
    )


def rebuild_command(tier: str, final_id: str, files: Sequence[str] = ()) -> str:
    """Return the command that trains and tests one final again, also where it is finished.

    Args:
        tier: the report's.
        final_id: the final.
        files: parameter files of the study, over params.yaml.
    """
    folder = f"results/{tier}/{final_id}"
    # A finished job exits at once: only without its folder is it trained. The dry run comes first:
    # where the plan hasn't the final, as without a study's own file, nothing is removed.
    own = f"--configfile {shlex.join(files)} " if files else ""
    asked = f"{own}--config tier={tier} -- {folder}/test.csv"
    return (
        f"snakemake -n -q {asked} && rm -rf {folder} && "
        f"snakemake --cores 2 --resources gpu=1 {asked}"
    )


def joined(values: Any, none: str = "none") -> str:
    """Join distinct values in sorted order; ``none`` when there are none."""
    texts = sorted({str(value) for value in values if str(value) not in ("", "nan")})
    return ", ".join(texts) if texts else none
