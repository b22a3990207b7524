"""What the paper's regression numbers are: it prints no unit and names no target.

Metric and factor stand on the data set's card (``metric``, ``paper_scale``); here are the words.
Each reading is inferred from the size of the printed numbers beside persistence on the same kind of
rows (docs/protocols.md, unit verdicts).
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from pfrnn.study.data.registry import dataset as registered
from pfrnn.study.data.registry import dataset_names


class Reading(NamedTuple):
    """How one of the paper's numbers is read.

    Attributes:
        metric: our metric that it is compared with.
        scale: our value times this is in the paper's unit.
        unit: the unit in words.
        certain: whether a source states it; otherwise it is inferred.
        why: the evidence.
    """

    metric: str
    scale: float = 1.0
    unit: str = ""
    certain: bool = True
    why: str = ""


ACCURACY = Reading("accuracy", 1.0, "per cent correct", True, "The caption says accuracy in %.")
_LOCALIZATION = (
    "map units squared, mean of x and y at the last step",
    True,
    "The text names the last step's MSE; the authors' release leaves the heading out.",
)
WORDS: dict[str, tuple[str, bool, str]] = {
    "maze10": _LOCALIZATION,
    "maze18": _LOCALIZATION,
    "maze27": _LOCALIZATION,
    "nasdaq": (
        "RMSE in index points",
        True,
        "The paper's reference value 0.33 is the RMSE in index points of the set's own paper. "
        "Nearly every other printed value would then be worse than persistence.",
    ),
    "aep": (
        "RMSE in tens of Wh",
        False,
        "Printed 3.24 to 8.73; persistence has an RMSE of 66.4 Wh on our test rows and 72.0 Wh on "
        "all rows. The smallest printed values would beat every simple forecaster by far.",
    ),
    "air": (
        "MSE of C6H6 in (ug/m3)^2",
        False,
        "Printed 13.12 to 19.32; persistence has an MSE of 14.4 on our test rows and 17.96 on all "
        "rows. An RMSE with the missing code -200 left in as a value, 13.2, would fit as well.",
    ),
    "pm": (
        "RMSE in ug/m3",
        False,
        "Printed 19.04 to 27.33; persistence has an RMSE of 22.2 on our test rows, 24.2 on all "
        "rows and 20.1 on the last 15 % (the latter two where both hours were measured).",
    ),
}


@functools.cache
def reading_of(dataset: str) -> Reading:
    """Return how the paper's numbers of a data set are read.

    A set that the paper does not have is read as its card says; without a card, as an accuracy.
    """
    card = registered(dataset).card if dataset in dataset_names() else None
    if card is None or card.metric == ACCURACY.metric:
        return ACCURACY
    own = (f"{card.metric}, {card.unit}", True, "Its card says so; the paper does not have it.")
    return Reading(card.metric, card.paper_scale, *WORDS.get(dataset, own))
