"""Metrics of the three tasks, each from per-sequence sums so that sequences can be resampled.

Every metric is a function of one table with a row a sequence (``Contributions``): its value on
the test set weighs every row once, a bootstrap replicate weighs row i as often as it was drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pfrnn.study.data.base import PreparedCard, Task

Floats = npt.NDArray[np.float64]

METRICS: dict[Task, tuple[str, ...]] = {
    "regression": ("rmse", "mae", "mse"),
    "classification": ("accuracy", "log_loss", "brier"),
    "localization": ("last_step_mse", "all_steps_mse", "median", "p90", "success"),
}

# Metrics that improve upwards; all others are errors.
HIGHER_IS_BETTER = frozenset({"accuracy", "success"})

# Localisation: the pose counts as found when its last-step error (mean over x and y of the squared
# error, map units squared) is below this.
SUCCESS_ERROR = 1.0


class Contributions(NamedTuple):
    """What each sequence adds to the metrics of its task.

    Attributes:
        task: the task.
        columns: name -> (N,) float64. Regression: ``squared``, ``absolute``, ``count`` (sums over
            observed steps and their number). Classification: ``correct``, ``log_loss``,
            ``brier``. Localisation: ``last`` (mean over x and y of the squared error at the last
            step, map units squared), ``squared`` (its sum over steps) and ``count``.
    """

    task: Task
    columns: Mapping[str, Floats]

    @property
    def sequences(self) -> int:
        """Number of sequences that count."""
        return len(next(iter(self.columns.values())))


def contributions(
    card: PreparedCard,
    prediction: npt.NDArray[Any],
    y: npt.NDArray[Any],
    mask: npt.NDArray[np.bool_],
) -> Contributions:
    """Compute what each sequence adds to its task's metrics, in the target's own unit.

    Args:
        card: the data set's card; ``target_mean`` and ``target_std`` undo the standardisation.
        prediction: regression and localisation (N, T, C), standardised; classification (N, C)
            logits.
        y: as ``Split.y``.
        mask: as ``Split.mask``, (N, T).

    Raises:
        ValueError: the shapes don't belong together.
    """
    if card.task == "classification":
        return _classification(np.asarray(prediction, np.float64), np.asarray(y))
    if prediction.shape != y.shape or mask.shape != y.shape[:2]:
        raise ValueError(
            f"prediction {prediction.shape}, y {y.shape} and mask {mask.shape}: expected "
            "(N, T, C), (N, T, C) and (N, T)"
        )
    scale = np.asarray(card.target_std, np.float64)
    # The mean cancels in a difference.
    error = (np.asarray(prediction, np.float64) - np.asarray(y, np.float64)) * scale
    error = np.where(mask[:, :, None], error, 0.0)
    if card.task == "localization":
        return _localization(error, mask)
    columns = {
        "squared": np.square(error).mean(-1).sum(1),
        "absolute": np.abs(error).mean(-1).sum(1),
        "count": mask.sum(1).astype(np.float64),
    }
    return Contributions("regression", columns)


def _classification(logits: Floats, labels: npt.NDArray[Any]) -> Contributions:
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(f"logits {logits.shape} and labels {labels.shape}: expected (N, C), (N,)")
    shifted = logits - logits.max(1, keepdims=True)
    log_probability = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    one_hot = np.eye(logits.shape[1])[labels]
    columns = {
        "correct": (log_probability.argmax(1) == labels).astype(np.float64),
        "log_loss": -(log_probability * one_hot).sum(1),
        "brier": np.square(np.exp(log_probability) - one_hot).sum(1),
    }
    return Contributions("classification", columns)


def _localization(error: Floats, mask: npt.NDArray[np.bool_]) -> Contributions:
    # Coordinates are x, y, sin, cos; the paper's metric leaves the heading out.
    position = np.square(error[..., :2]).mean(-1)
    steps = mask.shape[1] - 1 - np.argmax(mask[:, ::-1], axis=1)
    columns = {
        "last": position[np.arange(len(position)), steps],
        "squared": position.sum(1),
        "count": mask.sum(1).astype(np.float64),
    }
    return Contributions("localization", columns)


def average(passes: list[Contributions]) -> Contributions:
    """Average the contributions of several passes, sequence by sequence."""
    names = passes[0].columns
    columns = {name: np.mean([one.columns[name] for one in passes], axis=0) for name in names}
    return Contributions(passes[0].task, columns)


def metrics(table: Contributions, drawn: npt.NDArray[np.intp] | None = None) -> dict[str, float]:
    """Compute a task's metrics, in percent where they are shares.

    Args:
        table: the contributions.
        drawn: sequence numbers to use, with repetition (a bootstrap replicate); None uses each
            sequence once.
    """
    columns = table.columns
    if drawn is not None:
        columns = {name: values[drawn] for name, values in columns.items()}
    if table.task == "classification":
        return {
            "accuracy": 100.0 * float(columns["correct"].mean()),
            "log_loss": float(columns["log_loss"].mean()),
            "brier": float(columns["brier"].mean()),
        }
    total = float(columns["count"].sum())
    mse = float(columns["squared"].sum()) / total if total else float("nan")
    if table.task == "regression":
        mae = float(columns["absolute"].sum()) / total if total else float("nan")
        return {"rmse": mse**0.5, "mae": mae, "mse": mse}
    last = columns["last"]
    return {
        "last_step_mse": float(last.mean()),
        "all_steps_mse": mse,
        "median": float(np.median(last)),
        "p90": float(np.quantile(last, 0.9)),
        "success": 100.0 * float((last < SUCCESS_ERROR).mean()),
    }


def score(task: Task, values: Mapping[str, float]) -> float:
    """Selection score on validation data; lower is better.

    Regression: RMSE. Classification: errors in percent (ties go to the smaller validation loss,
    see ``selection``). Localisation: the error over all steps, because the last
    step's mean hangs on a few trajectories.
    """
    if task == "regression":
        return values["rmse"]
    if task == "classification":
        return 100.0 - values["accuracy"]
    return values["all_steps_mse"]
