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
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from pfrnn.study.data.base import PreparedCard, Split
from pfrnn.study.files import atomic_path
from pfrnn.study.train.batches import gather, to_device
from pfrnn.study.train.choose import particle_path
from pfrnn.study.train.path import PlainPath
from pfrnn.study.train.population import Population

if TYPE_CHECKING:
    from pfrnn.study.train.job import Trained

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


def _softmax(logits: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    result: npt.NDArray[np.float32] = (powers / powers.sum(-1, keepdims=True)).astype(np.float32)
    return result


def _save(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
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
        arrays |= {"probability": _softmax(chosen), "label": split.y[rows]}
    else:
        arrays |= {
            "prediction": in_unit(card, chosen),
            "truth": in_unit(card, split.y[rows]),
            "mask": split.mask[rows],
        }
    _save(path, arrays)


def write_belief(path: Path, split: Split, trained: Trained, population: Population) -> None:
    """Write belief.npz: the first repetition's particles on some test sequences."""
    card, spec = trained.prepared.card, trained.path.spec
    keeping = particle_path(
        PlainPath(spec._replace(keep_particles=True), trained.path.weights, trained.path.training),
        population.device,
    )
    # Trajectories of a maze are independent draws: the first have the exact posterior's draws, too.
    count, first = len(split.length), card.task == "localization"
    rows = np.arange(min(count, BELIEFS)) if first else spread(count, BELIEFS)
    # These alone: the whole split may be too large for the device.
    few = to_device(Split._make(array[rows] for array in split), population.device)
    batch = gather(few, np.arange(len(rows))[None, :])
    one = population.take([0])
    member = [trained.trainer.members[one.members[0]]]
    with torch.no_grad():
        output = keeping.predict(one, member, batch, ("belief",), True).output
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
    _save(path, arrays)
