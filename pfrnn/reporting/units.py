"""What the paper's regression numbers are: it prints no unit and names no target.

Each reading is inferred from the size of the printed numbers beside persistence on the same kind
of rows (docs/statistics.md); the report shows RMSE, MAE and MSE with persistence beside them, so
that a reader can judge the reading.
"""

from __future__ import annotations

from typing import NamedTuple


class Reading(NamedTuple):
    """How one of the paper's numbers is read.

    Attributes:
        metric: our metric it is compared with.
        divisor: our value divided by this is in the paper's unit.
        unit: the unit in words.
        certain: whether a source states it; otherwise it is inferred.
        why: the evidence.
    """

    metric: str
    divisor: float
    unit: str
    certain: bool
    why: str


_LOCALIZATION = Reading(
    "last_step_mse",
    1.0,
    "map units squared, mean of x and y at the last step",
    True,
    "The text names the last step's MSE; the authors' release leaves the heading out.",
)

READINGS: dict[str, Reading] = {
    "maze10": _LOCALIZATION,
    "maze18": _LOCALIZATION,
    "maze27": _LOCALIZATION,
    "nasdaq": Reading(
        "rmse",
        1.0,
        "RMSE in index points",
        True,
        "The paper's reference value 0.33 is the RMSE in index points of the set's own paper.",
    ),
    "aep": Reading(
        "rmse",
        10.0,
        "RMSE in tens of Wh",
        False,
        "Printed 3.7 to 6.6; persistence has an RMSE of 7.2 tens of Wh.",
    ),
    "air": Reading(
        "mse",
        1.0,
        "MSE of C6H6 in (ug/m3)^2",
        False,
        "Printed 13 to 19; persistence has an MSE of 14.3 to 18.0, depending on the rows.",
    ),
    "pm": Reading(
        "rmse",
        1.0,
        "RMSE in ug/m3",
        False,
        "Printed 19 to 26; persistence has an RMSE of 20.1 to 24.2, depending on the rows.",
    ),
}

ACCURACY = Reading("accuracy", 1.0, "per cent correct", True, "The caption says accuracy in %.")


def reading_of(dataset: str) -> Reading:
    """Return how the paper's numbers of a data set are read; accuracy where none is listed."""
    return READINGS.get(dataset, ACCURACY)
