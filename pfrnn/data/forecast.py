"""One-step-ahead prediction of one column of a regular time series: what AIR, AEP and PM share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pfrnn.data.base import SPLITS, Arrays
from pfrnn.data.controls import linear_autoregression, persistence
from pfrnn.data.scaling import Floats, carry_forward, fit_scaler
from pfrnn.data.splits import by_time
from pfrnn.data.windows import forecast_split


class Series(NamedTuple):
    """A regular multivariate time series with one target column.

    Attributes:
        names: names of the D measured columns.
        values: (rows, D), NaN where a value is missing.
        target: index of the target among them.
        known: further inputs known in advance of the predicted step (calendar, categories):
            name -> (rows,), used as they are. Row r holds what is known for predicting r + 1.
    """

    names: Sequence[str]
    values: Floats
    target: int
    known: Mapping[str, Floats]


def calendar(steps: npt.NDArray[np.int64], per_day: int) -> dict[str, Floats]:
    """Time of day and weekday of the *predicted* step, as sine and cosine.

    A calendar is known in advance, so it gives nothing away.

    Args:
        steps: steps since 1970-01-01 00:00 (a Thursday) of each row.
        per_day: steps a day.
    """
    ahead = steps + 1
    day = 2 * np.pi * (ahead % per_day) / per_day
    week = 2 * np.pi * (ahead % (7 * per_day)) / (7 * per_day)
    return {
        "day sin": np.sin(day),
        "day cos": np.cos(day),
        "week sin": np.sin(week),
        "week cos": np.cos(week),
    }


def forecast_arrays(
    series: Series,
    *,
    window: int,
    stride: int,
    validation: float,
    test: float,
    season: int,
    lags: int,
) -> Arrays:
    """Split by time, standardise on train, impute causally, cut windows, add the controls.

    Validation and test windows follow each other without overlap, so every step counts once.

    Args:
        series: the time series.
        window: steps a sequence.
        stride: steps between the starts of training sequences.
        validation: share of rows.
        test: share of rows, the last ones.
        season: steps of a season, for seasonal persistence.
        lags: past values of the linear autoregression.

    Returns:
        Arrays with predictions of persistence, seasonal persistence and linear autoregression.
    """
    parts = by_time(len(series.values), validation, test)
    train = slice(parts["train"].start, parts["train"].stop)
    observed = ~np.isnan(series.values)
    scaler = fit_scaler(series.values[train], observed[train])
    filled = carry_forward(series.values, observed, scaler.mean)
    target_observed = observed[:, series.target]
    inputs = [scaler.apply(filled)]
    features = list(series.names)
    if not target_observed.all():
        inputs.append(target_observed[:, None].astype(np.float32))
        features.append(f"{series.names[series.target]} observed")
    if series.known:
        inputs.append(np.stack(list(series.known.values()), axis=1).astype(np.float32))
        features += list(series.known)
    x = np.concatenate(inputs, axis=1)
    y = scaler.apply(filled)[:, [series.target]]
    splits = {
        name: forecast_split(
            x, y, target_observed, parts[name], window, stride if name == "train" else window
        )
        for name in SPLITS
    }
    past = filled[:, series.target]
    rows = splits["test"].rows
    missing = int((~target_observed).sum())
    return Arrays(
        splits=splits,
        target_mean=(float(scaler.mean[series.target]),),
        target_std=(float(scaler.std[series.target]),),
        features=tuple(features),
        notes=(f"Target missing in {missing} of {len(past)} rows: masked, carried forward.",)
        if missing
        else (),
        predictions={
            "persistence": persistence(past, rows),
            "seasonal_persistence": persistence(past, rows, season),
            "linear_autoregression": linear_autoregression(
                past, target_observed, parts["train"], rows, lags
            ),
        },
    )
