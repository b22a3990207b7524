"""What a committed report may show of a data set: by the registry's card, not by a stored one.

A card is stored when a set is prepared and recorded with its results; what is known of its licence
may change afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pfrnn.study.data.registry import dataset, dataset_names

Row = list[float | None]


def licensed(cards: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return prepared cards with the registry's licence; a set that it doesn't hold keeps its own.

    Args:
        cards: name of a data set -> its card as JSON.
    """
    known = set(dataset_names())
    return {name: card | _terms(name) if name in known else card for name, card in cards.items()}


def _terms(name: str) -> dict[str, Any]:
    card = dataset(name).card
    return {"licence": card.licence, "redistributable": card.redistributable}


def allowed(pictures: Mapping[str, Any], cards: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return test sequences with differences in place of values that may not be passed on.

    Args:
        pictures: name -> what :func:`pfrnn.study.report.pictures.sequences` gave.
        cards: of :func:`licensed`.
    """
    return {
        name: picture
        if picture.get("differences", True) or cards[name]["redistributable"]
        else picture | {"differences": True, "lines": [_differences(x) for x in picture["lines"]]}
        for name, picture in pictures.items()
    }


def _differences(line: list[Row]) -> list[Row]:
    """Each column minus its first known value."""
    first = [next((v for v in column if v is not None), 0.0) for column in zip(*line, strict=True)]
    return [
        [None if v is None else round(v - f, 4) for v, f in zip(row, first, strict=True)]
        for row in line
    ]


def not_allowed(pictures: Mapping[str, Any], cards: Mapping[str, dict[str, Any]]) -> list[str]:
    """Say which recorded cards and sequences are not what the registry's licences allow."""
    now = licensed(cards)
    said = [
        f"data/cards.json: the licence of {name} isn't the registry's; write the report anew"
        for name, card in cards.items()
        if card != now[name]
    ]
    shown = allowed(pictures, now)
    said += [
        f"data/sequences.json: values of {name}, whose licence forbids passing them on; write the "
        "report anew"
        for name, picture in pictures.items()
        if picture != shown[name]
    ]
    return said
