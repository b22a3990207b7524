"""What the paper's regression numbers are: it prints no unit and names no target.

Metric and factor stand on the data set's card (``metric``, ``paper_scale``), and nowhere else;
here are the words. Each reading is inferred from the size of the printed numbers beside persistence
on the same kind of rows (docs/protocols.md, unit verdicts); the report shows RMSE, MAE and MSE with
persistence beside them, so that a reader can judge the reading.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from pfrnn.data.registry import dataset as registered
from pfrnn.data.registry import dataset_names


class Reading(NamedTuple):
    """How one of the paper's numbers is read.

    Attributes:
        metric: our metric it is compared with.
        scale: our value times this is in the paper's unit.
        unit: the unit in words.
        certain: whether a source states it; otherwise it is inferred.
        why: the evidence.
    """

    metric: str
    scale: float
    unit: str
    certain: bool
    why: str


class Words(NamedTuple):
    """A reading's unit in words, whether a source states it, and the evidence."""

    unit: str
    certain: bool
    why: str


_LOCALIZATION = Words(
    "map units squared, mean of x and y at the last step",
    True,
    "The text names the last step's MSE; the authors' release leaves the heading out.",
)

WORDS: dict[str, Words] = {
    "maze10": _LOCALIZATION,
    "maze18": _LOCALIZATION,
    "maze27": _LOCALIZATION,
    "nasdaq": Words(
        "RMSE in index points",
        True,
        "The paper's reference value 0.33 is the RMSE in index points of the set's own paper. "
        "Nearly every other printed value would then be worse than persistence.",
    ),
    "aep": Words(
        "RMSE in tens of Wh",
        False,
        "Printed 3.2 to 8.7; persistence has an RMSE of 6.6 to 7.2 tens of Wh, depending on the "
        "rows. The smallest printed values would beat every simple forecaster by far.",
    ),
    "air": Words(
        "MSE of C6H6 in (ug/m3)^2",
        False,
        "Printed 13 to 19; persistence has an MSE of 14.3 to 18.0, depending on the rows. An RMSE "
        "with the missing code -200 left in as a value would fit as well.",
    ),
    "pm": Words(
        "RMSE in ug/m3",
        False,
        "Printed 19 to 27; persistence has an RMSE of 20.1 to 24.2, depending on the rows.",
    ),
}

ACCURACY = Reading("accuracy", 1.0, "per cent correct", True, "The caption says accuracy in %.")


@functools.cache
def reading_of(dataset: str) -> Reading:
    """Return how the paper's numbers of a data set are read.

    A set that the paper does not have is read as its card says; without a card, as an accuracy.
    """
    if dataset not in dataset_names():
        return ACCURACY
    card = registered(dataset).card
    if card.metric == ACCURACY.metric:
        return ACCURACY
    unit = f"{card.metric}, {card.unit}"
    words = WORDS.get(dataset, Words(unit, True, "Its card says so; the paper does not have it."))
    return Reading(card.metric, card.paper_scale, *words)
