"""MR: movie-review sentences, positive or negative (Pang and Lee 2005)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from pfrnn.errors import DataError
from pfrnn.study.data.base import Address, Alternative, Arrays, Card, Dataset, RawFile
from pfrnn.study.data.raw import Table, read_lines
from pfrnn.study.data.text import Document, TextProtocol, split_words, text_arrays
from pfrnn.study.seeding import derive_seed

CLASSES = ("negative", "positive")
FOLDS = 10
# The TextGCN split's own copy of the sentences, the labels (0, 1), and its list of parts.
TEXTGCN = "textgcn_split"
POLARITY = {"rt-polarity.neg": 0, "rt-polarity.pos": 1}
RELEASE = "https://raw.githubusercontent.com/yao8839836/text_gcn/master/data"

CARD = Card(
    name="mr",
    title="MR",
    task="classification",
    origin=(
        "B. Pang and L. Lee, sentence polarity data set v1.0, "
        "https://www.cs.cornell.edu/people/pabo/movie-review-data/; fixed split by L. Yao, C. Mao "
        "and Y. Luo (TextGCN), https://github.com/yao8839836/text_gcn"
    ),
    citation=(
        "B. Pang and L. Lee: Seeing Stars: Exploiting Class Relationships for Sentiment "
        "Categorization with Respect to Rating Scales. ACL 2005. (Split: Yao, Mao, Luo: Graph "
        "Convolutional Networks for Text Classification. AAAI 2019.)"
    ),
    licence="none stated",
    redistributable=False,
    files=(
        RawFile(
            f"{TEXTGCN}/text_train.txt",
            ("489977e84cd6d57d0ab591b2ef733705ae48a959c7c736f57baca520a0894624",),
        ),
        RawFile(
            f"{TEXTGCN}/label_train.txt",
            ("907aa5c98d29cb760f81077d185ef27411cb1eac58be5eb5f564f8d23339a3ca",),
        ),
        RawFile(
            f"{TEXTGCN}/text_test.txt",
            ("aedd6f56eb6e48ba1ca5f960fbbf3c88dde0abddfb65bae7e13e39de69856676",),
        ),
        RawFile(
            f"{TEXTGCN}/label_test.txt",
            ("91d53aef668fc3c7168d9a75ed0d58223c70b6fdadb10d3776f9daa3ca94e2f8",),
        ),
        RawFile(
            "rt-polarity.pos",
            ("2da124ec187a9d5a29c9f04e91c540e02baed5af8868f550a26bd6fd4dbf8bf0",),
            optional=True,
        ),
        RawFile(
            "rt-polarity.neg",
            ("4ace77d558c3714723843f1d65b60c01e3417b208180f0728808d76ad0eeeaca",),
            optional=True,
        ),
    ),
    # The optional files' address first: fetching stops once all that is required is there.
    addresses=(
        Address(
            "https://www.cs.cornell.edu/people/pabo/movie-review-data/rt-polaritydata.tar.gz",
            {name: f"rt-polaritydata/{name}" for name in POLARITY},
        ),
        *(
            Address(f"{RELEASE}/mr/{name}", {f"{TEXTGCN}/{name}": ""})
            for name in ("text_train.txt", "label_train.txt", "text_test.txt", "label_test.txt")
        ),
    ),
    rows=10662,
    target="polarity of the sentence",
    unit="%",
    metric="accuracy",
    # Without and with the files of ``split: tenfold``.
    tables=(
        "db956bd0b3373871c9c2913d95bca8d34c211affe57de5cf63e84ffdf0ccda08",
        "1d41c573155a752614a8508c4b73c9cafa109943ea0b95019ef150cabdfc8144",
    ),
)


class MRProtocol(TextProtocol):
    """TextGCN's fixed split, or ten folds; docs/protocols.md names the source of each choice."""

    split: Literal["textgcn", "tenfold"] = Field(
        "textgcn", description="The fixed 7,108 / 3,554 split, or one of ten random folds as test."
    )
    fold: int = Field(0, ge=0, lt=FOLDS, description="tenfold: the fold used as test.")
    max_length: int = Field(60, ge=1, description="Words kept; the longest sentence has 59.")


Sentence = tuple[int, tuple[str, ...]]


def read_textgcn(folder: Path, part: str) -> list[Sentence]:
    """Parse one part of the TextGCN split: a sentence a line, its label in a file beside it.

    Raises:
        DataError: the two files don't fit together, or hold something else.
    """
    sentences = _read_sentences(folder / TEXTGCN / f"text_{part}.txt")
    labels = [line.strip() for line in read_lines(folder / TEXTGCN / f"label_{part}.txt")]
    if len(labels) != len(sentences) or not {b"0", b"1"}.issuperset(labels):
        raise DataError(
            f"{folder / TEXTGCN}: {len(sentences):,} sentences in text_{part}.txt need as many "
            f"labels 0 or 1 in label_{part}.txt; get both files again"
        )
    return [(int(label), words) for label, words in zip(labels, sentences, strict=True)]


def read_polarity(folder: Path) -> list[Sentence]:
    """Parse rt-polarity.neg and rt-polarity.pos, negative sentences first."""
    return [
        (label, words)
        for name, label in POLARITY.items()
        for words in _read_sentences(folder / name)
    ]


def _read_sentences(path: Path) -> list[tuple[str, ...]]:
    sentences = [split_words(line) for line in read_lines(path)]
    if () in sentences:
        raise DataError(
            f"{path}: line {sentences.index(()) + 1}: expected a sentence, got a blank line, which "
            "would shift the labels; get the publisher's file"
        )
    return sentences


def read(folder: Path) -> Table:
    """Return part, label and text of the default split's sentences, train's first.

    Where their files are there, polarity_label and polarity_text are those that ``split: tenfold``
    reads.
    """
    parts = {part: read_textgcn(folder, part) for part in ("train", "test")}
    sentences = [(part, *sentence) for part, found in parts.items() for sentence in found]
    table: Table = {
        "part": np.array([part for part, _, _ in sentences], dtype=object),
        "label": np.array([label for _, label, _ in sentences], dtype=np.int64),
        "text": np.array([" ".join(words) for _, _, words in sentences], dtype=object),
    }
    if all((folder / name).is_file() for name in POLARITY):
        polarity = read_polarity(folder)
        texts = [" ".join(words) for _, words in polarity]
        table["polarity_label"] = np.array([label for label, _ in polarity], dtype=np.int64)
        table["polarity_text"] = np.array(texts, dtype=object)
    return table


def prepare(folder: Path, protocol: MRProtocol, seed: int) -> Arrays:
    """Make the arrays; rows count train's sentences, then test's (tenfold: negative, positive)."""
    if protocol.split == "textgcn":
        train, test = (read_textgcn(folder, part) for part in ("train", "test"))
        documents = [Document(row, *pair) for row, pair in enumerate(train + test)]
        return text_arrays(
            documents[: len(train)], documents[len(train) :], CLASSES, protocol, seed
        )
    documents = [Document(row, *pair) for row, pair in enumerate(read_polarity(folder))]
    # All folds of a study come from one shuffle, so they are disjoint and cover the set.
    order = np.random.default_rng(derive_seed(seed, "mr", "folds")).permutation(len(documents))
    tested = set(np.array_split(order, FOLDS)[protocol.fold].tolist())
    return text_arrays(
        [document for document in documents if document.row not in tested],
        [document for document in documents if document.row in tested],
        CLASSES,
        protocol,
        seed,
    )


ALTERNATIVES = (
    Alternative(
        "tenfold", {"split": "tenfold"},
        "The first of ten folds as test: 1,066 sentences, as the printed digits suggest.",
    ),
)  # fmt: skip

DATASET = Dataset(CARD, MRProtocol, prepare, read, ALTERNATIVES)
