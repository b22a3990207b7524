"""A final's chosen repetition as a model that stands alone: plain state dicts and a description.

The folder holds ``model.json`` (configuration, card, variant, member), ``extra.npz`` (a maze's map)
and ``states/<i>.pt``, one plain ``state_dict`` a member: one file, or those of an ensemble.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from pfrnn.errors import RecordError
from pfrnn.study.config import Config
from pfrnn.study.data.base import PreparedCard, Split
from pfrnn.study.data.prepare import load_prepared
from pfrnn.study.evaluate.ensemble import combine, probabilities
from pfrnn.study.evaluate.record import read_rows
from pfrnn.study.files import atomic_path, read_json, write_json
from pfrnn.study.plan import Plan, Setting
from pfrnn.study.records import MEMBER_COLUMNS
from pfrnn.study.train.batches import to_device
from pfrnn.study.train.bayesian import BayesianPath
from pfrnn.study.train.evaluate import evaluate
from pfrnn.study.train.loss import loss_weights
from pfrnn.study.train.members import Member
from pfrnn.study.train.path import PlainPath
from pfrnn.study.train.places import Places
from pfrnn.study.train.population import Weights, split_state
from pfrnn.study.train.samples import in_unit
from pfrnn.study.train.spec import network_spec
from pfrnn.study.train.tables import read_best
from pfrnn.study.variants import variant

# Noise of the first test pass: the model repeats the predictions that were kept of it.
AXES = ("test", 0)
EXAMPLES = 2


class Served(NamedTuple):
    """A model ready to predict."""

    card: PreparedCard
    path: PlainPath
    weights: Weights
    members: list[Member]
    device: torch.device

    def predict(
        self, x: npt.NDArray[Any], length: npt.NDArray[Any] | None = None
    ) -> npt.NDArray[Any]:
        """Predict sequences.

        Args:
            x: (N, T, D) float inputs as prepared, or (N, T) token ids.
            length: (N,) valid steps, whole numbers from 1 to T; all T when None.

        Returns:
            (N, T, C) in the target's unit, or (N, C) class probabilities.

        Raises:
            ValueError: another number of lengths, or a length that isn't within 1 to T.

        Randomness: named by the member's seed and a sequence's place, so the same call gives the
        same numbers, and the test split in its order those of ``predictions.npz``.
        """
        count, steps = x.shape[:2]
        lengths = np.full(count, steps) if length is None else checked_lengths(length, count, steps)
        classes = self.card.task == "classification"
        # Targets in their form; the loss that they give is not looked at.
        sizes = (count,) if classes else (count, steps, len(self.card.target_mean))
        split = Split(
            x=x.astype(np.int32 if self.card.vocabulary else np.float32),
            length=lengths.astype(np.int32),
            y=np.zeros(sizes, np.int64 if classes else np.float32),
            mask=np.arange(steps) < lengths[:, None],
            rows=np.full((count, steps), -1, dtype=np.int64),
        )
        on_device = to_device(split, self.device)
        one = evaluate(self.path, self.weights, self.members, on_device, AXES)
        combined = combine(one.prediction, self.card.task)
        if classes:
            return probabilities(combined).astype(np.float32)
        return in_unit(self.card, combined)


def checked_lengths(length: Any, count: int, steps: int) -> npt.NDArray[np.int64]:
    """Return ``count`` sequences' lengths; raise where one isn't a whole number from 1 to T."""
    given = np.asarray(length, np.float64).reshape(-1)
    if len(given) != count:
        raise ValueError(f"length: expected one for each of {count} sequences, got {len(given)}")
    if not ((given >= 1) & (given <= steps) & (given == np.floor(given))).all():
        raise ValueError(f"length: expected whole numbers from 1 to {steps}, got {length}")
    return given.astype(np.int64)


def export(plan: Plan, final_id: str, places: Places, folder: Path) -> dict[str, npt.NDArray[Any]]:
    """Write a final's chosen repetition, the one with the best validation score.

    Returns:
        An example input: ``x`` and ``length`` of the first test sequences.

    Raises:
        KeyError: the plan has no such final.
        RecordError: the final or its data are not there.
    """
    cell = plan.cell(final_id)
    final = places.results / final_id
    prepared_folder = places.prepared / plan.prepared_id(cell.dataset)
    for needed in (final / "best.pt", prepared_folder / "arrays.npz"):
        if not needed.exists():
            raise RecordError(f"{needed}: missing; without it there is no model to log")
    prepared = load_prepared(prepared_folder)
    run, chosen = read_json(final / "run.json"), chosen_rows(final)
    _, saved = read_best(final)
    (folder / "states").mkdir(parents=True, exist_ok=True)
    for number, row in enumerate(chosen):
        one = saved.at(int(row["member"]))
        state = {**one.parameters, **one.buffers}
        with atomic_path(folder / "states" / f"{number}.pt") as temporary:
            torch.save(state, temporary)
    np.savez(folder / "extra.npz", **prepared.extra)  # type: ignore[arg-type]
    description = {
        "config": plan.config_of(cell.dataset, variant(cell.trained)).model_dump(mode="json"),
        "card": prepared.card.model_dump(mode="json"),
        "variant": cell.trained,
        "hidden_size": run["hidden_size"],
        "particles": run["particles"],
        "sequences": len(prepared.splits["train"].length),
        "members": [{"seed": int(row["seed"])} for row in chosen],
        "repetition": int(chosen[0]["repetition"]),
    }
    write_json(folder / "model.json", description)
    test = prepared.splits["test"]
    return {"x": test.x[:EXAMPLES], "length": test.length[:EXAMPLES]}


def chosen_rows(final: Path) -> list[dict[str, str]]:
    """Rows of members.csv of the repetition with the best validation score (their mean)."""
    rows = read_rows(final, "members.csv", MEMBER_COLUMNS)
    groups: dict[int, list[dict[str, str]]] = {}
    for row in rows:
        groups.setdefault(int(row["repetition"]), []).append(row)

    def score(repetition: int) -> tuple[float, int]:
        values = [float(row["val_score"] or "inf") for row in groups[repetition]]
        return sum(values) / len(values), repetition

    return groups[min(groups, key=score)]


def load_served(folder: Path, device: str = "cpu") -> Served:
    """Read what :func:`export` wrote."""
    described = read_json(folder / "model.json")
    config = Config.model_validate(described["config"])
    card = PreparedCard.model_validate(described["card"])
    with np.load(folder / "extra.npz") as stored:
        extra = {name: stored[name] for name in stored.files}
    model = variant(described["variant"])
    model = variant(model.single) if model.single else model
    spec = network_spec(
        config, card, model, described["hidden_size"], described["particles"], extra
    )
    weights = loss_weights(config.loss, model, config.filter.fidelity)
    # The plain path needs nothing but torch. Fused kernels draw other random numbers.
    path = PlainPath(spec, weights, config.training)
    if model.kind == "bayesian":
        settings, sequences = config.bayesian, described["sequences"]
        path = BayesianPath(spec, weights, config.training, settings, sequences)
    states = [
        torch.load(folder / "states" / f"{number}.pt", map_location="cpu", weights_only=True)
        for number in range(len(described["members"]))
    ]
    stacks = {name: torch.stack([state[name] for state in states]) for name in states[0]}
    members = [
        Member(number, Setting(0.0, 0.0, 0.0), described["repetition"], one["seed"], 0)
        for number, one in enumerate(described["members"])
    ]
    place = torch.device(device)
    return Served(card, path, split_state(path.build, stacks).to(place), members, place)
