"""From verified raw files to prepared arrays with their card."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from pfrnn.errors import DataError
from pfrnn.study.data.audit import check_contract, equal_sequences, shared_rows
from pfrnn.study.data.base import (
    SPLITS,
    Arrays,
    Dataset,
    Prepared,
    PreparedCard,
    Protocol,
    protocol_digest,
)
from pfrnn.study.data.controls import control_scores
from pfrnn.study.data.digests import arrays_digest
from pfrnn.study.data.registry import dataset as registered
from pfrnn.study.data.splits import cap_index, take
from pfrnn.study.data.state import RawState, check_recorded, inspect_raw
from pfrnn.study.data.store import load_card, load_prepared, named_arrays, save_prepared

__all__ = ["load_card", "load_prepared", "make_prepared", "prepare"]


def prepare(
    name: str, protocol: Protocol, seed: int, raw_dir: Path | str, out_dir: Path | str
) -> PreparedCard:
    """Prepare a data set and write ``arrays.npz`` and ``card.json`` to ``out_dir``.

    Args:
        name: a registered data set.
        protocol: its validated protocol.
        seed: the study's base seed.
        raw_dir: parent of the raw folders.
        out_dir: folder of the result.

    Raises:
        MissingDataError: a raw file is not there.
        DataError: a raw file is damaged, unknown or not the one that was fetched, or the arrays
            break their contract or leak.
    """
    prepared = make_prepared(registered(name), protocol, seed, Path(raw_dir))
    save_prepared(prepared, Path(out_dir))
    return prepared.card


def make_prepared(dataset: Dataset, protocol: Protocol, seed: int, raw_dir: Path) -> Prepared:
    """Do the work of ``prepare`` in memory."""
    folder = raw_dir / dataset.card.name
    state = inspect_raw(dataset, folder)
    check_recorded(dataset.card, folder, state.sha256)
    # BLAS adds in an order that depends on its threads; a control's last test item hung on that.
    with threadpool_limits(limits=1):
        arrays = dataset.prepare(folder, protocol, seed)
    check_contract(arrays, dataset.card.task)
    audit = _audit(arrays, protocol, dataset)
    kept = {
        name: cap_index(name, len(split.length), protocol, seed)
        for name, split in arrays.splits.items()
    }
    splits = {name: take(arrays.splits[name], kept[name]) for name in SPLITS}
    predictions = {
        name: np.asarray(values)[kept["test"]] for name, values in arrays.predictions.items()
    }
    scores = control_scores(predictions, splits["test"], arrays.target_mean, arrays.target_std)
    controls = {name: dict(values) for name, values in arrays.controls.items()} | scores
    whole = {name: len(split.length) for name, split in arrays.splits.items()}
    arrays = arrays._replace(splits=splits, controls=controls, notes=(*arrays.notes, *audit))
    card = _card(dataset, protocol, seed, state, arrays, whole)
    return Prepared(card, splits, arrays.extra)


def _audit(arrays: Arrays, protocol: Protocol, dataset: Dataset) -> tuple[str, ...]:
    """Raise for source rows in two splits; name equal windows, which chance alone can make."""
    equal = tuple(equal_sequences(arrays.splits))
    found = shared_rows(arrays.splits)
    if found and not protocol.leaky:
        raise DataError(
            f"{dataset.card.name}: the protocol leaks: {'; '.join(found)}; correct its splits"
        )
    return tuple(f"LEAKY ON PURPOSE: {sentence}." for sentence in found) + equal


def _card(
    dataset: Dataset,
    protocol: Protocol,
    seed: int,
    state: RawState,
    arrays: Arrays,
    whole: dict[str, int],
) -> PreparedCard:
    card = dataset.card
    train = arrays.splits["train"]
    return PreparedCard(
        name=card.name,
        title=card.title,
        task=card.task,
        state=state.state,
        state_note=state.note,
        target=card.target,
        unit=card.unit,
        metric=card.metric,
        licence=card.licence,
        redistributable=card.redistributable,
        raw_sha256=state.sha256,
        protocol=protocol.model_dump(mode="json"),
        protocol_digest=protocol_digest(card.name, protocol, seed),
        arrays_digest=arrays_digest(named_arrays(arrays.splits, arrays.extra)),
        sequences={name: len(split.length) for name, split in arrays.splits.items()},
        capped={
            name: whole[name] - len(split.length)
            for name, split in arrays.splits.items()
            if len(split.length) < whole[name]
        },
        max_length=max(split.mask.shape[1] for split in arrays.splits.values()),
        inputs=0 if arrays.vocabulary else train.x.shape[-1],
        vocabulary=arrays.vocabulary,
        features=tuple(arrays.features),
        classes=tuple(arrays.classes),
        target_mean=tuple(float(value) for value in arrays.target_mean),
        target_std=tuple(float(value) for value in arrays.target_std),
        controls={name: dict(values) for name, values in arrays.controls.items()},
        notes=tuple(arrays.notes),
    )
