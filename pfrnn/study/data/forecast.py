"""One-step-ahead prediction of one column of a regular time series: what AIR, AEP and PM share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pfrnn.errors import DataError
from pfrnn.study.data.base import Arrays, Protocol, Split
from pfrnn.study.data.controls import linear_autoregression, persistence
from pfrnn.study.data.scaling import Floats, carry_forward, fit_scaler
from pfrnn.study.data.splits import by_time

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


def forecast_windows(
    inputs: npt.NDArray[np.float32],
    target: npt.NDArray[np.float32],
    observed: npt.NDArray[np.bool_],
    starts: npt.NDArray[np.int64],
    length: int,
) -> Split:
    """Cut one-step-ahead sequences: at step t the inputs up to row r, the target of row r + 1.

    A window takes ``length + 1`` rows.

    Args:
        inputs: (rows, D), standardised.
        target: (rows, C), standardised.
        observed: (rows,), False where the target is missing; such steps are masked.
        starts: (N,), first row of each sequence.
        length: steps a sequence.

    Raises:
        DataError: there is no sequence.
    """
    if not len(starts):
        raise DataError(
            f"a split has no window of {length} steps and one step ahead; choose a smaller window "
            "or a larger share"
        )
    index = starts[:, None] + np.arange(length)
    mask = observed[index + 1]
    return Split(
        x=inputs[index],
        length=np.full(len(starts), length, dtype=np.int32),
        y=np.where(mask[..., None], target[index + 1], np.float32(0)),
        mask=mask,
        rows=index,
    )


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


def forecast_arrays(series: Series, protocol: ForecastProtocol, season: int) -> Arrays:
    """Split by time, standardise on train, impute causally, cut windows, add the controls.

    No input and no target crosses the border of a split. Validation and test windows follow each
    other without overlap, so every step counts once.

    Args:
        series: the time series.
        protocol: window, stride and shares.
        season: steps of a season (a day), for seasonal persistence.

    Returns:
        Arrays with predictions of persistence, seasonal persistence and linear autoregression.
    """
    rows, window = len(series.values), protocol.window
    parts = by_time(rows, protocol.validation, protocol.test)
    scaled = scale_series(series, np.arange(rows) < parts["train"].stop)
    splits = {}
    for name, part in parts.items():
        stride = protocol.stride if name == "train" else window
        starts = np.arange(part.start, part.stop - window, stride, dtype=np.int64)
        splits[name] = forecast_windows(scaled.x, scaled.y, scaled.observed, starts, window)
    return _arrays(scaled, splits, parts["train"], scaled.observed, season)


def assigned_arrays(
    series: Series,
    validation: npt.NDArray[np.bool_],
    test: npt.NDArray[np.bool_],
    window: int,
    season: int,
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
    """
    rows = len(series.values)
    starts = np.arange(0, rows - window, window, dtype=np.int64)
    member = {"train": ~validation & ~test, "validation": validation, "test": test}
    scaled = scale_series(series, member["train"])
    splits = {
        name: forecast_windows(scaled.x, scaled.y, scaled.observed & counts, starts, window)
        for name, counts in member.items()
    }
    fit_on = scaled.observed & member["train"]
    return _arrays(scaled, splits, range(rows), fit_on, season)


def _arrays(
    scaled: Scaled,
    splits: Mapping[str, Split],
    train: range,
    fit_on: npt.NDArray[np.bool_],
    season: int,
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
            "linear_autoregression": linear_autoregression(scaled.past, fit_on, train, rows, LAGS),
        },
    )
