"""One-step-ahead prediction of one column of a regular time series: what AIR, AEP and PM share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pfrnn.study.data.base import SPLITS, Arrays, Protocol, Split
from pfrnn.study.data.controls import linear_autoregression, persistence
from pfrnn.study.data.scaling import Floats, carry_forward, fit_scaler
from pfrnn.study.data.splits import by_time
from pfrnn.study.data.windows import forecast_split

# Past values of the linear autoregression.
LAGS = 24


class ForecastProtocol(Protocol):
    """How a series becomes sequences; docs/protocols.md names the source of each choice."""

    window: int = Field(default=48, ge=2, description="Steps (rows) of a sequence.")
    stride: int = Field(default=12, ge=1, description="Steps between training sequences' starts.")
    validation: float = Field(default=0.2, gt=0, lt=1, description="Share of rows, by time.")
    test: float = Field(default=0.2, gt=0, lt=1, description="Share of rows, the last ones.")
    calendar: bool = Field(default=True, description="Time of day and week among the inputs.")


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


class Scaled(NamedTuple):
    """A series ready for windows: standardised on training rows, gaps filled causally.

    Attributes:
        x: (rows, D) float32 inputs.
        y: (rows, 1) float32 target.
        observed: (rows,), where the target was measured.
        past: (rows,) target in its unit, gaps filled.
        mean: the target's training mean.
        std: the target's training standard deviation.
        features: names of the inputs.
    """

    x: npt.NDArray[np.float32]
    y: npt.NDArray[np.float32]
    observed: npt.NDArray[np.bool_]
    past: Floats
    mean: float
    std: float
    features: tuple[str, ...]


def scale_series(series: Series, train: npt.NDArray[np.bool_]) -> Scaled:
    """Standardise with the observed values of training rows, fill gaps by the value before.

    Args:
        series: the time series.
        train: (rows,), True for training rows.
    """
    observed = ~np.isnan(series.values)
    scaler = fit_scaler(series.values[train], observed[train])
    filled = carry_forward(series.values, observed, scaler.mean)
    target = series.target
    measured = observed[:, target]
    inputs = [scaler.apply(filled)]
    features = list(series.names)
    if not measured.all():
        inputs.append(measured[:, None].astype(np.float32))
        features.append(f"{series.names[target]} observed")
    if series.known:
        inputs.append(np.stack(list(series.known.values()), axis=1).astype(np.float32))
        features += list(series.known)
    return Scaled(
        x=np.concatenate(inputs, axis=1),
        y=inputs[0][:, [target]],
        observed=measured,
        past=filled[:, target],
        mean=float(scaler.mean[target]),
        std=float(scaler.std[target]),
        features=tuple(features),
    )


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
    rows = len(series.values)
    parts = by_time(rows, validation, test)
    train = parts["train"]
    scaled = scale_series(series, np.arange(rows) < train.stop)
    splits = {
        name: forecast_split(
            scaled.x,
            scaled.y,
            scaled.observed,
            parts[name],
            window,
            stride if name == "train" else window,
        )
        for name in SPLITS
    }
    return _arrays(scaled, splits, train, scaled.observed, season, lags)


def split_by_time(series: Series, protocol: ForecastProtocol, per_day: int) -> Arrays:
    """Do ``forecast_arrays`` by a protocol; a season is a day, the autoregression has 24 lags.

    Args:
        series: the time series.
        protocol: window, stride and shares.
        per_day: steps a day.
    """
    return forecast_arrays(
        series,
        window=protocol.window,
        stride=protocol.stride,
        validation=protocol.validation,
        test=protocol.test,
        season=per_day,
        lags=LAGS,
    )


def assigned_arrays(
    series: Series,
    validation: npt.NDArray[np.bool_],
    test: npt.NDArray[np.bool_],
    *,
    window: int,
    season: int,
    lags: int,
) -> Arrays:
    """Give single rows to the splits, as a published random split does; it leaks by its nature.

    All splits have the same windows over the whole series; a step counts in the split that its
    predicted row belongs to.

    Args:
        series: the time series.
        validation: (rows,), rows whose prediction counts for validation.
        test: likewise for test; train is the rest.
        window: steps a sequence; windows do not overlap.
        season: steps of a season, for seasonal persistence.
        lags: past values of the linear autoregression.
    """
    rows = range(len(series.values))
    member = {"train": ~validation & ~test, "validation": validation, "test": test}
    scaled = scale_series(series, member["train"])
    splits = {
        name: forecast_split(
            scaled.x, scaled.y, scaled.observed & member[name], rows, window, window
        )
        for name in SPLITS
    }
    return _arrays(scaled, splits, rows, scaled.observed & member["train"], season, lags)


def _arrays(
    scaled: Scaled,
    splits: Mapping[str, Split],
    train: range,
    fit_on: npt.NDArray[np.bool_],
    season: int,
    lags: int,
) -> Arrays:
    """Add the controls; the autoregression is fitted to rows of ``train`` where ``fit_on``."""
    rows = splits["test"].rows
    missing = int((~scaled.observed).sum())
    total = len(scaled.past)
    return Arrays(
        splits=splits,
        target_mean=(scaled.mean,),
        target_std=(scaled.std,),
        features=scaled.features,
        notes=(f"Target missing in {missing} of {total} rows: masked, carried forward.",)
        if missing
        else (),
        predictions={
            "persistence": persistence(scaled.past, rows),
            "seasonal_persistence": persistence(scaled.past, rows, season),
            "linear_autoregression": linear_autoregression(scaled.past, fit_on, train, rows, lags),
        },
    )
