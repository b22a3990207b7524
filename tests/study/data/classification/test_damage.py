"""Damaged raw files: a clear error, or, where the damage is harmless, the same table."""

import shutil
import zipfile

import class_raw
import numpy as np
import pytest

from pfrnn.errors import DataError
from pfrnn.study.data.archives import extract_member
from pfrnn.study.data.digests import arrays_digest
from pfrnn.study.data.registry import dataset

TABLES = ("lpa", "gas", "uid")
TEXTS = ("mr", "r52")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    return {name: class_raw.write(name, folder) for name in class_raw.SETS}


@pytest.fixture
def damaged(whole, tmp_path):
    """Copy a set's files and change the bytes of its main file (or another)."""

    def damage(name, change, file=None):
        folder = tmp_path / name
        shutil.copytree(whole[name], folder)
        path = folder / file if file else class_raw.main_file(name, folder)
        path.write_bytes(change(path.read_bytes()))
        return folder

    return damage


def digest(name, folder):
    return arrays_digest(dataset(name).read(folder))


def lines_of(raw):
    return raw.split(b"\n")


def drop_column(separator):
    def change(raw):
        kept = [separator.join(line.split(separator)[:-1]) for line in lines_of(raw)]
        return b"\n".join(kept)

    return change


def replace_cell(line, old, new):
    def change(raw):
        lines = lines_of(raw)
        assert old in lines[line]
        lines[line] = lines[line].replace(old, new, 1)
        return b"\n".join(lines)

    return change


def last_number(line, new):
    def change(raw):
        lines = lines_of(raw)
        place = max(lines[line].rfind(b" "), lines[line].rfind(b","))
        lines[line] = lines[line][: place + 1] + new
        return b"\n".join(lines)

    return change


HTML = b"<!DOCTYPE html>\n<html><body>503 Service Unavailable</body></html>\n"
EVERYWHERE = {
    "html": (lambda raw: HTML, "HTML page"),
    "empty": (lambda raw: b"\n \n", "empty"),
    "utf16": (lambda raw: raw.decode("latin-1").encode("utf-16"), "encoding|UTF-16"),
}


@pytest.mark.parametrize("name", class_raw.SETS)
@pytest.mark.parametrize("kind", EVERYWHERE)
def test_what_is_no_data_at_all_is_named(damaged, name, kind):
    change, message = EVERYWHERE[kind]
    with pytest.raises(DataError, match=message) as caught:
        digest(name, damaged(name, change))
    assert "fetch" in str(caught.value)


@pytest.mark.parametrize("name", class_raw.SETS)
def test_missing_file_names_the_cure(damaged, name):
    folder = damaged(name, lambda raw: raw)
    class_raw.main_file(name, folder).unlink()
    with pytest.raises(DataError, match="no such file; run `pfrnn fetch`"):
        digest(name, folder)


@pytest.mark.parametrize("name", class_raw.SETS)
@pytest.mark.parametrize("cut", [1, 3, 9, 20])
def test_a_file_cut_in_a_line_is_refused(damaged, name, cut):
    # R52 has no final line end; there a missing space behind the last word tells.
    def change(raw):
        short = raw.rstrip(b"\r\n")[:-cut] if name != "r52" else raw[:-cut]
        return short.rstrip(b" ")

    with pytest.raises(DataError, match=r"line \d+"):
        digest(name, damaged(name, change))


@pytest.mark.parametrize("name", class_raw.SETS)
def test_line_ends_make_no_difference(damaged, whole, name):
    def change(raw):
        if b"\r\n" in raw:
            return raw.replace(b"\r\n", b"\n")
        return raw.replace(b"\n", b"\r\n")

    assert digest(name, damaged(name, change)) == digest(name, whole[name])


@pytest.mark.parametrize("name", [*TABLES, "r52"])
def test_blank_lines_make_no_difference(damaged, whole, name):
    def change(raw):
        lines = lines_of(raw)
        return b"\n".join([b"", *lines[:3], b"", b"  ", *lines[3:], b""])

    assert digest(name, damaged(name, change)) == digest(name, whole[name])


@pytest.mark.parametrize(
    ("name", "separator"), [("lpa", b","), ("gas", b"  "), ("uid", b","), ("r52", b"\t")]
)
def test_a_missing_column_is_named(damaged, name, separator):
    with pytest.raises(DataError, match="line 1"):
        digest(name, damaged(name, drop_column(separator)))


@pytest.mark.parametrize("name", TABLES)
def test_one_short_and_one_long_line_are_named(damaged, name):
    for change in (
        lambda raw: b"\n".join(
            line.rsplit(b"," if b"," in line else None, 1)[0] if i == 4 else line
            for i, line in enumerate(lines_of(raw))
        ),
        lambda raw: b"\n".join(
            line + (b",1" if b"," in line else b"  1") if i == 4 else line
            for i, line in enumerate(lines_of(raw))
        ),
    ):
        folder = damaged(name, change)
        with pytest.raises(DataError, match=r"line 5: expected \d+ fields .* got \d+"):
            digest(name, folder)
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", class_raw.SETS)
def test_an_extra_title_line_is_refused(damaged, name):
    folder = damaged(name, lambda raw: b"Title of the data\n" + raw)
    with pytest.raises(DataError, match=r"line 1|labels"):
        digest(name, folder)


@pytest.mark.parametrize(
    ("name", "old", "new"), [("lpa", b",", b";"), ("gas", b"  ", b","), ("uid", b",", b"\t"),
                             ("r52", b"\t", b",")]
)  # fmt: skip
def test_another_separator_is_refused(damaged, name, old, new):
    with pytest.raises(DataError, match="line 1"):
        digest(name, damaged(name, lambda raw: raw.replace(old, new)))


@pytest.mark.parametrize("name", ["gas", "uid"])
@pytest.mark.parametrize("text", [b"NaN", b"nan", b"inf", b"-", b"1_0", b"1.2.3"])
def test_text_in_place_of_a_number_is_named(damaged, name, text):
    folder = damaged(name, last_number(2, text))
    with pytest.raises(DataError, match=r"line 3, column \d+ \(\w+\): expected a number"):
        digest(name, folder)


def test_lpa_names_a_bad_number_and_a_bad_name(damaged):
    cells = class_raw.TAGS[0].encode()
    for change, column in (
        (replace_cell(0, b",walking", b",flying"), r"column 8 \(activity\)"),
        (replace_cell(0, cells, b"010-000-024-034"), r"column 2 \(tag\)"),
        (replace_cell(0, b"A01", b"patient"), r"column 1 \(sequence\)"),
    ):
        folder = damaged("lpa", change)
        with pytest.raises(DataError, match=f"row 1, {column}: expected"):
            digest("lpa", folder)
        shutil.rmtree(folder)

    def no_x(raw):
        lines = lines_of(raw)
        parts = lines[2].split(b",")
        lines[2] = b",".join([*parts[:4], b"NaN", *parts[5:]])
        return b"\n".join(lines)

    with pytest.raises(DataError, match=r"line 3, column 5 \(x\): expected a number, got 'NaN'"):
        digest("lpa", damaged("lpa", no_x))


@pytest.mark.parametrize("name", ["lpa", "gas"])
@pytest.mark.parametrize("pair", [(10, 11), (5, 60)])
def test_swapped_rows_give_the_same_table(damaged, whole, name, pair):
    def change(raw):
        lines = lines_of(raw)
        a, b = pair
        lines[a], lines[b] = lines[b], lines[a]
        return b"\n".join(lines)

    assert digest(name, damaged(name, change)) == digest(name, whole[name])


@pytest.mark.parametrize("pair", [(10, 11), (5, 60), (0, 100), (300, 499)])
def test_uid_refuses_swapped_rows(damaged, pair):
    def change(raw):
        lines = lines_of(raw)
        a, b = pair
        lines[a], lines[b] = lines[b], lines[a]
        return b"\n".join(lines)

    found = dataset("uid")
    with pytest.raises(DataError, match="out of order"):
        found.prepare(damaged("uid", change), found.protocol(), 1)


def test_gas_refuses_a_renamed_header(damaged):
    with pytest.raises(DataError, match="line 1: expected the header id time R1"):
        digest("gas", damaged("gas", replace_cell(0, b"R5", b"R9")))


def test_gas_refuses_a_header_without_rows(damaged):
    with pytest.raises(DataError, match="line 2: expected rows below the header"):
        digest("gas", damaged("gas", lambda raw: raw.split(b"\n")[0] + b"\n"))


def test_gas_metadata_are_checked(damaged, whole):
    file = "HT_Sensor_metadata.dat"
    for change, message in (
        (replace_cell(2, b"wine", b"beer"), r"column 3 \(class\): expected one of"),
        (replace_cell(2, b"1\t07", b"0\t07"), "stands twice"),
        (lambda raw: b"\n".join(lines_of(raw)[:4]) + b"\n", "is not in HT_Sensor_metadata.dat"),
        (replace_cell(0, b"class", b"label"), "line 1: expected the header"),
    ):
        folder = damaged("gas", change, file)
        with pytest.raises(DataError, match=message):
            digest("gas", folder)
        shutil.rmtree(folder)
    # A double tab after the date, or none, is the same white space.
    folder = damaged("gas", lambda raw: raw.replace(b"\t\t", b"\t"), file)
    assert digest("gas", folder) == digest("gas", whole["gas"])


def test_mr_refuses_what_would_shift_labels_or_words(damaged):
    for change, file, message in (
        (lambda raw: raw.replace(b"\n", b"\n\n", 1), None, "line 2: expected a sentence, got a bl"),
        (lambda raw: raw.split(b"\n", 1)[1], None, "79 sentences, but label_train.txt has 80"),
        (lambda raw: raw.decode("latin-1").encode(), None, "UTF-8, but the publisher's"),
        (replace_cell(3, b"1", b"NaN"), "textgcn_split/label_train.txt", "line 4: expected 0 or 1"),
    ):
        folder = damaged("mr", change, file)
        with pytest.raises(DataError, match=message):
            digest("mr", folder)
        shutil.rmtree(folder)


def test_mr_refuses_unequal_polarity_files(damaged):
    found = dataset("mr")
    folder = damaged("mr", lambda raw: b"Title\n" + raw, "rt-polarity.pos")
    with pytest.raises(DataError, match=r"rt-polarity.neg 50 and rt-polarity.pos 51"):
        found.prepare(folder, found.protocol(split="tenfold"), 1)


def test_r52_refuses_other_labels_and_letters(damaged):
    for change, message in (
        (replace_cell(0, b"earn", b"Earn"), "line 1, column 1: expected one of the 52 labels"),
        (
            lambda raw: raw.replace(b" ", b" caf\xe9 ", 1),
            r"line 1, column \d+: expected lower-case",
        ),
        (lambda raw: raw.replace(b" ", b" NaN ", 1), "expected lower-case letters"),
        (lambda raw: raw.replace(b" ", b"\t", 1), "expected lower-case letters"),
    ):
        folder = damaged("r52", change)
        with pytest.raises(DataError, match=message):
            digest("r52", folder)
        shutil.rmtree(folder)


def test_gas_archive_holds_an_archive(whole, tmp_path):
    card = dataset("gas").card
    members = card.addresses[0].members
    inner = tmp_path / "HT_Sensor_dataset.zip"
    with zipfile.ZipFile(inner, "w") as opened:
        opened.write(whole["gas"] / "HT_Sensor_dataset.dat", "HT_Sensor_dataset.dat")
    outer = tmp_path / "outer.zip"
    with zipfile.ZipFile(outer, "w") as opened:
        opened.write(inner, inner.name)
        opened.write(whole["gas"] / "HT_Sensor_metadata.dat", "HT_Sensor_metadata.dat")
    for file, member in members.items():
        extract_member(outer, member, tmp_path / "out" / file)
    assert digest("gas", tmp_path / "out") == digest("gas", whole["gas"])
    with zipfile.ZipFile(outer, "w") as opened:
        opened.write(inner, inner.name)
    with pytest.raises(DataError, match=r"has no member 'HT_Sensor_metadata\.dat'"):
        extract_member(outer, members["HT_Sensor_metadata.dat"], tmp_path / "again")


def test_uid_cuts_a_restarted_recording(damaged, whole):
    found = dataset("uid")
    again = "".join(class_raw.uid_lines(7, readings=400)).encode()
    folder = damaged("uid", lambda raw: raw + again.replace(b",", b"1,", 1))
    arrays = found.prepare(folder, found.protocol(), 1)
    number = found.card.files.index(next(f for f in found.card.files if f.name == "7.csv"))
    first = 6 * 500
    for split in arrays.splits.values():
        own = split.rows[split.y == number] - first
        # No window holds readings from both sides of the restart.
        assert not ((own.min(axis=1) < 500) & (own.max(axis=1) >= 500)).any()
        assert (np.diff(own, axis=1) == 1).all()
