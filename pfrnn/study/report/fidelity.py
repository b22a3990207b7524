"""Which switch between the paper's text and the authors' release matters: one moved at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pfrnn.study.evaluate.paired import PairedDifference, paired_difference
from pfrnn.study.report.cells import Lookup, Ours
from pfrnn.study.report.paper.numbers import PaperNumber, paper_numbers
from pfrnn.study.report.units import Reading, reading_of
from pfrnn.study.report.verdicts import NOT_RUN, Verdict, judge, obstacle
from pfrnn.study.variants import FIDELITY, MOVES, Fidelity, Move, Variant

TEXT, RELEASE = "pf_lstm_paper", "pf_lstm_release"
MAIN = "pf_lstm"
# Better conditioned than the last step's error, whose mean hangs on a few mirrored poses.
ALL_STEPS = Reading("all_steps_mse", 1.0, "", True, "")
_MOVES: Mapping[str, Move] = {move.switch: move for move in MOVES}


class Row(NamedTuple):
    """One variant of the family on one data set.

    Attributes:
        dataset: the data set.
        model: the variant.
        reading: metric and unit of ``ours``.
        ours: its finals; None when there are none, ``verdict`` says why.
        to_text: paired differences, this minus the text's row; None for that row itself, and
            where either is missing.
        to_release: likewise the release's, for what was moved back from it.
        all_steps: on a maze, the error over all steps.
        all_steps_to_text: its paired differences.
        printed: the paper's number for PF-LSTM, or None.
        verdict: on that number.
    """

    dataset: str
    model: Variant
    reading: Reading
    ours: Ours | None
    to_text: PairedDifference | None
    to_release: PairedDifference | None
    all_steps: Ours | None
    all_steps_to_text: PairedDifference | None
    printed: PaperNumber | None
    verdict: Verdict

    @property
    def fidelity(self) -> Fidelity:
        """Where the variant stands."""
        return self.model.fidelity or Fidelity("paper")

    @property
    def switch(self) -> str:
        """What was moved, in words."""
        if self.fidelity.moved:
            return _MOVES[self.fidelity.moved].text
        return "none (the text)" if self.fidelity.preset == "paper" else "all (the release)"

    @property
    def value(self) -> str:
        """To which value; empty where one row has none of its own."""
        move = _MOVES.get(self.fidelity.moved)
        if move is None:
            return ""
        return str(move.release if self.fidelity.preset == "paper" else move.paper)


def fidelity_sets(lookup: Lookup) -> list[str]:
    """Return the data sets on which a row of the family has results."""
    results = lookup.evidence.results
    return sorted(set(results[results["variant"].isin(list(FIDELITY))]["dataset"]))


def fidelity_rows(lookup: Lookup) -> list[Row]:
    """Return the whole family on every data set that has some of it; none where nothing has."""
    return [_row(lookup, name, one) for name in fidelity_sets(lookup) for one in FIDELITY.values()]


def _row(lookup: Lookup, dataset: str, model: Variant) -> Row:
    reading = reading_of(dataset)
    ours = lookup.ours(dataset, model.name)
    maze = dataset.startswith("maze")
    back = model.fidelity is not None and model.fidelity.preset != "paper" and model.fidelity.moved
    printed = _printed(dataset)
    return Row(
        dataset,
        model,
        reading,
        ours,
        _difference(lookup, dataset, model.name, TEXT, reading),
        _difference(lookup, dataset, model.name, RELEASE, reading) if back else None,
        lookup.ours(dataset, model.name, "fixed", ALL_STEPS) if maze else None,
        _difference(lookup, dataset, model.name, TEXT, ALL_STEPS) if maze else None,
        printed,
        _verdict(lookup, dataset, model.name, ours, printed),
    )


def _difference(
    lookup: Lookup, dataset: str, name: str, base: str, reading: Reading
) -> PairedDifference | None:
    """Differences over the repetitions that both have: they share seed and order of the data."""
    if name == base:
        return None
    ours, theirs = (lookup.ours(dataset, each, "fixed", reading) for each in (name, base))
    if ours is None or theirs is None:
        return None
    mine = dict(zip(ours.repetitions, ours.values, strict=True))
    other = dict(zip(theirs.repetitions, theirs.values, strict=True))
    both = sorted(mine.keys() & other.keys())
    if not both:
        return None
    return paired_difference([mine[r] for r in both], [other[r] for r in both], lookup.confidence)


def _printed(dataset: str) -> PaperNumber | None:
    """The first number that the paper prints for PF-LSTM at its fixed size on this set."""
    for number in paper_numbers():
        if (number.dataset, number.variant, number.size_rule) == (dataset, MAIN, "fixed"):
            return number
    return None


def _verdict(
    lookup: Lookup, dataset: str, name: str, ours: Ours | None, printed: PaperNumber | None
) -> Verdict:
    if ours is None:
        return Verdict(NOT_RUN, lookup.why_not_run(dataset, name, "fixed"))
    if printed is None:
        return Verdict("not comparable", "the paper prints no number")
    barred = obstacle(lookup.evidence.study.tier, dataset, lookup.state(dataset))
    return barred or judge(
        printed.printed, ours.values, ours.errors, printed.scale, ours.n_test, lookup.confidence
    )


def moved_most(rows: list[Row]) -> list[Row]:
    """Return the rows whose difference to the text has an interval that leaves zero out."""
    return [
        row
        for row in rows
        if row.to_text is not None
        and row.to_text.interval is not None
        and 0.0 not in row.to_text.interval
    ]
