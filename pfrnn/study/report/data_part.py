"""The section on data: where each set comes from, what state it is in, a few of its sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pfrnn.study.data.base import SPLITS
from pfrnn.study.data.registry import dataset as registered
from pfrnn.study.data.registry import dataset_names
from pfrnn.study.report.cells import Lookup
from pfrnn.study.report.figures.style import Drawing
from pfrnn.study.report.numbers import DASH
from pfrnn.study.report.page import figure_view
from pfrnn.study.report.views import Part, PlainRow, PlainTable

WORDS = (
    "whole: the publisher's file with a known digest. excerpt: part of it. unverified: a file "
    "whose digest nobody could compare. simulated: drawn here from a seed. missing: could not be "
    "had."
)
WINDOWS = (
    "Test windows of LPA, GAS and UID overlap, so their items are not independent; the test-set "
    "error of an accuracy is then that of a draw of whole groups of overlapping windows "
    "(recordings, inductions, blocks), never less than the binomial one."
)
_PLAIN = {"whole": "as published", "simulated": "drawn here from the base seed"}


def data_part(lookup: Lookup, drawings: Sequence[Drawing]) -> Part:
    """Return the cards of all planned or prepared sets, and their pictures."""
    evidence = lookup.evidence
    names = dict.fromkeys((*evidence.study.datasets, *sorted(evidence.cards)))
    states = tuple(_state(lookup, name) for name in names)
    known = set(dataset_names())
    origins = tuple(_origin(name, evidence.cards.get(name, {})) for name in names if name in known)
    header = ("data set", "state", "why", "sequences", "left out", "target", "digest", "notes")
    facts = ("data set", "origin", "to cite", "licence", "rows of the whole set", "raw files")
    return Part(
        "data",
        "Data",
        (WORDS, WINDOWS),
        (
            PlainTable("State of the data behind every number.", header, states),
            PlainTable("Where the data come from.", facts, origins),
        ),
        tuple(map(figure_view, drawings)),
    )


def _state(lookup: Lookup, name: str) -> PlainRow:
    evidence = lookup.evidence
    card = evidence.cards.get(name)
    if card is None:
        why = evidence.study.missing.get(name, "not prepared in this tier")
        return PlainRow((name, lookup.state(name), why, *[DASH] * 5), name)
    return PlainRow(
        (
            name,
            lookup.described(name),
            str(card["state_note"]) or _PLAIN.get(card["state"], "no reason noted"),
            _counts(card["sequences"]),
            f"by the tier's caps: {_counts(card['capped'])}" if card["capped"] else "nothing",
            f"{card['target']} [{card['unit']}]",
            str(card["arrays_digest"])[:12],
            " ".join(f"{note.rstrip('.')}." for note in card["notes"]) or "none",
        ),
        name,
    )


def _counts(values: dict[str, int]) -> str:
    return ", ".join(f"{split} {values[split]:,}" for split in SPLITS if split in values)


def _origin(name: str, prepared: dict[str, Any]) -> PlainRow:
    card = registered(name).card
    allowed = "" if card.redistributable else " (the data may not be passed on)"
    files = ", ".join(
        f"{file} {digest[:12]}" for file, digest in sorted(prepared.get("raw_sha256", {}).items())
    )
    if len(prepared.get("raw_sha256", {})) > 4:
        files = f"{len(prepared['raw_sha256'])} files"
    return PlainRow(
        (
            name,
            card.origin,
            card.citation,
            card.licence.rstrip(".") + allowed,
            f"{card.rows:,}" if card.rows else "simulated",
            files or ("none" if not card.files else "not prepared"),
        ),
        name,
    )
