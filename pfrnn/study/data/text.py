"""Documents of the text sets: words, vocabulary, equal documents, arrays, controls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pfrnn.errors import DataError
from pfrnn.study.data.base import SPLITS, Arrays, Protocol, Split
from pfrnn.study.data.splits import sequence_keys, take
from pfrnn.study.seeding import derive_seed

PADDING, UNKNOWN, FIRST_WORD = 0, 1, 2


class TextProtocol(Protocol):
    """What both text sets share; docs/protocols.md names the source of each choice."""

    validation: float = Field(0.1, gt=0, lt=0.5, description="Share of train used for validation.")
    min_count: int = Field(2, ge=1, description="Words rarer than this in train are unknown.")
    max_length: int = Field(100, ge=1, description="Words kept of a document, from its start.")


class Document(NamedTuple):
    """One document: its number over all raw files, its class and its words."""

    row: int
    label: int
    words: tuple[str, ...]


def split_words(line: bytes) -> tuple[str, ...]:
    r"""Split at ASCII white space and decode as ISO-8859-1.

    ``bytes.split`` comes first: ``str.split`` would also split at the character 0x85.

    Example:
        >>> split_words(b"caf\xe9 wait\x85 what ")
        ('café', 'wait\x85', 'what')
    """
    return tuple(word.decode("latin-1") for word in line.split())


def equality_key(document: Document, max_length: int) -> tuple[str, ...]:
    """Return what makes two documents equal: the words a network reads, without punctuation."""
    words = ("".join(filter(str.isalnum, word)) for word in document.words[:max_length])
    return tuple(word for word in words if word)


def drop_equal(
    train: Sequence[Document], test: Sequence[Document], max_length: int
) -> tuple[list[Document], int]:
    """Drop the training documents that equal a test document; return the rest and their count."""
    tested = {equality_key(document, max_length) for document in test}
    kept = [document for document in train if equality_key(document, max_length) not in tested]
    return kept, len(train) - len(kept)


def split_validation(
    train: Sequence[Document], share: float, max_length: int, seed: int
) -> tuple[list[Document], list[Document]]:
    """Take a random part of train for validation, class by class, equal documents on one side.

    A class gives the rounded share of its documents, so one with fewer than 1 / (2 share)
    documents gives none. A group of equal documents counts for the class of its first one.

    Randomness:
        one permutation of the groups of each class, from ``numpy.random.default_rng(seed)``.

    Returns:
        The remaining training documents and the validation documents, each in file order.
    """
    groups: dict[tuple[str, ...], list[Document]] = {}
    for document in train:
        groups.setdefault(equality_key(document, max_length), []).append(document)
    by_class: dict[int, list[list[Document]]] = {}
    for group in groups.values():
        by_class.setdefault(group[0].label, []).append(group)
    random = np.random.default_rng(seed)
    chosen: set[int] = set()
    for label in sorted(by_class):
        members = by_class[label]
        wanted = int(sum(len(group) for group in members) * share + 0.5)
        taken = 0
        for index in random.permutation(len(members)):
            # A large group of equal documents must not overfill the part.
            if taken + len(members[index]) <= wanted:
                chosen.update(document.row for document in members[index])
                taken += len(members[index])
    rest = [document for document in train if document.row not in chosen]
    return rest, [document for document in train if document.row in chosen]


def build_vocabulary(train: Iterable[Document], min_count: int) -> dict[str, int]:
    """Number the words of the training documents from 2, the most frequent first.

    0 is padding, 1 is every word outside the vocabulary; with ``min_count`` 2 the words seen once
    train the embedding of the unknown word.
    """
    counts = Counter(word for document in train for word in document.words)
    known = [word for word, count in counts.items() if count >= min_count]
    known.sort(key=lambda word: (-counts[word], word))
    return {word: FIRST_WORD + index for index, word in enumerate(known)}


def encode(documents: Sequence[Document], vocabulary: Mapping[str, int], steps: int) -> Split:
    """Turn documents into token ids (N, steps), padded with 0 behind the last word."""
    count = len(documents)
    x = np.full((count, steps), PADDING, dtype=np.int32)
    rows = np.full((count, steps), -1, dtype=np.int64)
    length = np.zeros(count, dtype=np.int32)
    for index, document in enumerate(documents):
        ids = [vocabulary.get(word, UNKNOWN) for word in document.words[:steps]]
        x[index, : len(ids)] = ids
        rows[index, : len(ids)] = document.row
        length[index] = len(ids)
    mask = np.arange(steps) == length[:, None] - 1
    y = np.array([document.label for document in documents], dtype=np.int64)
    return Split(x=x, length=length, y=y, mask=mask, rows=rows)


def text_arrays(
    train: Sequence[Document],
    test: Sequence[Document],
    classes: tuple[str, ...],
    protocol: TextProtocol,
    seed: int,
) -> Arrays:
    """Make the arrays of a published split: drop leaks, take a validation part, number the words.

    Args:
        train: the published training documents; row numbers are unique over train and test.
        test: the published test documents; they stay as they are.
        classes: class names in label order.
        protocol: shares, vocabulary and length.
        seed: of the validation part.
    """
    cut = protocol.max_length
    kept, dropped = drop_equal(train, test, cut)
    rest, validation = split_validation(
        kept, protocol.validation, cut, derive_seed(seed, "validation")
    )
    if not rest or not validation or not test:
        raise DataError(
            f"{len(train)} training and {len(test)} test documents are too few for a validation "
            f"part of {protocol.validation:g}; fetch the whole files"
        )
    vocabulary = build_vocabulary(rest, protocol.min_count)
    longest = min(cut, max(len(document.words) for document in (*kept, *test)))
    parts = {"train": rest, "validation": validation, "test": test}
    encoded = {name: encode(documents, vocabulary, longest) for name, documents in parts.items()}
    splits = _without_equal(encoded)
    equal = sum(len(encoded[name].y) - len(splits[name].y) for name in parts)
    return Arrays(
        splits=splits,
        classes=classes,
        vocabulary=FIRST_WORD + len(vocabulary),
        predictions=text_controls(kept, test),
        notes=(
            f"{dropped} training documents dropped because they equal a test document "
            f"(first {cut} words, punctuation ignored); equal training documents stand on one "
            f"side of the validation split. {equal} more dropped that equal another side's once "
            "rare words are unknown.",
            f"Cut after {cut} words: {_share_cut(kept, cut)} of train and validation, "
            f"{_share_cut(test, cut)} of test.",
            f"Words outside the vocabulary: {_share_unknown(splits['train'])} of train's, "
            f"{_share_unknown(splits['test'])} of test's.",
            "The control tfidf_linear_svc reads whole documents, of train and validation together.",
        ),
    )


def _without_equal(splits: Mapping[str, Split]) -> dict[str, Split]:
    """Drop sequences of validation that stand in test, and of train that stand in either."""
    result = {"test": splits["test"]}
    for name in ("validation", "train"):
        seen = {key for split in result.values() for key in sequence_keys(split)}
        keys = sequence_keys(splits[name])
        result[name] = take(splits[name], [i for i, key in enumerate(keys) if key not in seen])
    return {name: result[name] for name in SPLITS}


def _share_cut(documents: Sequence[Document], limit: int) -> str:
    count = sum(len(document.words) > limit for document in documents)
    return f"{100 * count / len(documents):.1f} %"


def _share_unknown(split: Split) -> str:
    return f"{100 * np.mean(split.x[split.rows >= 0] == UNKNOWN):.1f} %"


def text_controls(
    train: Sequence[Document], test: Sequence[Document]
) -> dict[str, npt.NDArray[np.int64]]:
    """Predict the test documents by the majority class and by TF-IDF with a linear SVM.

    Both read whole documents, not the first ``max_length`` words.

    Args:
        train: documents to learn from; sets give train and validation together, since nothing
            is chosen on validation here.
        test: documents to label.

    Returns:
        Control -> labels (N,).
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.svm import LinearSVC

    labels = np.array([document.label for document in train])
    # Words as split_words gives them; scikit-learn's own pattern would drop short ones.
    vectorizer = TfidfVectorizer(lowercase=False, token_pattern=r"[^ ]+")
    features = vectorizer.fit_transform(_plain(train))
    model = LinearSVC(random_state=0).fit(features, labels)
    predicted = model.predict(vectorizer.transform(_plain(test)))
    return {
        "majority": np.full(len(test), np.bincount(labels).argmax(), dtype=np.int64),
        "tfidf_linear_svc": predicted.astype(np.int64),
    }


def _plain(documents: Sequence[Document]) -> list[str]:
    return [" ".join(document.words) for document in documents]
