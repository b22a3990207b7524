"""Small samples of test predictions and beliefs for the report's figures.

predictions.npz: ``index`` (n,) sequence numbers, ``length`` (n,), ``repetition`` (R,), and

- regression, localisation: ``prediction`` (R, n, T, C), ``truth`` (n, T, C), ``mask`` (n, T), in
  the target's unit;
- classification: ``probability`` (R, n, C), ``label`` (n,).

belief.npz (first repetition of a particle filter): ``index`` (n,), ``length`` (n,), ``particles``
(n, T, K, C) every particle's predicted target, ``log_weights`` (n, T, K), ``prediction``
(n, T, C) of the belief's mean, ``truth`` (n, T, C), ``mask`` (n, T), in the target's unit.
Classification keeps the last valid step only (T = 1), as logits, with ``label`` (n,).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pfrnn.study.data.base import PreparedCard, Split
from pfrnn.study.evaluate.ensemble import probabilities
from pfrnn.study.files import atomic_path
from pfrnn.study.train.batches import rows_on, to_device
from pfrnn.study.train.choose import particle_path
from pfrnn.study.train.members import Member
from pfrnn.study.train.path import PlainPath
from pfrnn.study.train.population import Weights

PREDICTIONS = 24
BELIEFS = 6


def spread(count: int, wanted: int) -> npt.NDArray[np.int64]:
    """Sequence numbers spread evenly over the split."""
    return np.unique(np.linspace(0, count - 1, min(count, wanted)).round().astype(np.int64))


def in_unit(card: PreparedCard, values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Undo the standardisation of a target's coordinates (last axis)."""
    scale = np.asarray(card.target_std)
    result: npt.NDArray[np.float32] = (values * scale + np.asarray(card.target_mean)).astype(
        np.float32
    )
    return result


def save_arrays(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Write a compressed npz atomically."""
    with atomic_path(path) as temporary, temporary.open("wb") as target:
        np.savez_compressed(target, allow_pickle=False, **arrays)


def write_predictions(
    path: Path,
    card: PreparedCard,
    split: Split,
    prediction: npt.NDArray[Any],
    repetitions: Sequence[int],
) -> None:
    """Write predictions.npz from all predictions (R, N, ...) of one pass."""
    rows = spread(len(split.length), PREDICTIONS)
    arrays: dict[str, npt.NDArray[Any]] = {
        "index": rows,
        "length": split.length[rows],
        "repetition": np.asarray(repetitions),
    }
    chosen = prediction[:, rows]
    if card.task == "classification":
        arrays |= {"probability": probabilities(chosen).astype(np.float32), "label": split.y[rows]}
    else:
        arrays |= {
            "prediction": in_unit(card, chosen),
            "truth": in_unit(card, split.y[rows]),
            "mask": split.mask[rows],
        }
    save_arrays(path, arrays)


def write_belief(
    path: Path,
    card: PreparedCard,
    split: Split,
    compute: PlainPath,
    weights: Weights,
    members: Sequence[Member],
) -> None:
    """Write belief.npz: the first repetition's particles on some test sequences."""
    device = next(iter(weights.parameters.values())).device
    spec = compute.spec._replace(keep_particles=True)
    keeping = particle_path(spec, compute.weights, compute.training, device)
    # Trajectories of a maze are independent draws: the first have the exact posterior's draws, too.
    count, first = len(split.length), card.task == "localization"
    rows = np.arange(min(count, BELIEFS)) if first else spread(count, BELIEFS)
    few = to_device(Split._make(array[rows] for array in split), device)
    index = rows_on(np.arange(len(rows))[None, :], device)
    output = keeping.predict(weights.only(0), members[:1], few, index, ("belief",)).output
    if output.particles is None or output.log_weights is None:
        raise ValueError("expected particles from a particle filter, got none")
    # (T', M = 1, n, ...) -> (n, T', ...)
    particles, log_weights, prediction = (
        value[:, 0].transpose(0, 1).float().cpu().numpy()
        for value in (output.particles, output.log_weights, output.prediction)
    )
    arrays = {"index": rows, "length": split.length[rows], "log_weights": log_weights}
    if card.task == "classification":
        arrays |= {"particles": particles, "prediction": prediction, "label": split.y[rows]}
    else:
        steps = particles.shape[1]
        arrays |= {
            "particles": in_unit(card, particles),
            "prediction": in_unit(card, prediction),
            "truth": in_unit(card, split.y[rows, :steps]),
            "mask": split.mask[rows, :steps],
        }
    save_arrays(path, arrays)
