"""The real files: states, counts, test sizes, known control levels, time and memory."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import class_raw
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from pfrnn.errors import DataError
from pfrnn.study.data.prepare import make_prepared
from pfrnn.study.data.rawstate import inspect_raw
from pfrnn.study.data.registry import dataset
from pfrnn.study.data.sets.uid import USERS, without_repeats

MIRROR = os.environ.get("PFRNN_DATA_MIRROR", "")
pytestmark = [
    pytest.mark.mirror,
    pytest.mark.skipif(not Path(MIRROR, "uid").is_dir(), reason="PFRNN_DATA_MIRROR is not set"),
]
ROWS = {"lpa": 57_623, "gas": 4_131, "uid": 149_332, "mr": 10_662, "r52": 9_100}
# The printed accuracies need at least so many test items (99.1, 97.5, ... % to one decimal).
TEST_SIZE = {"lpa": 770, "gas": 749, "uid": 800}


@pytest.fixture(scope="module")
def prepared():
    start = time.process_time()
    made = {}
    # As many threads as a user's BLAS may have: a card must not depend on them.
    with threadpool_limits(limits=2):
        for name in class_raw.SETS:
            found = dataset(name)
            made[name] = make_prepared(found, found.protocol(), 2020, Path(MIRROR))
    return made, time.process_time() - start


@pytest.mark.parametrize("name", class_raw.SETS)
def test_state_and_rows(name):
    found = dataset(name)
    state = inspect_raw(found, Path(MIRROR, name))
    assert state.state == ("excerpt" if name in ("lpa", "gas") else "whole")
    table = found.read(Path(MIRROR, name))
    assert {len(column) for column in table.values()} == {ROWS[name]}
    assert found.card.rows == ROWS[name] or state.state == "excerpt"


@pytest.mark.parametrize("name", TEST_SIZE)
def test_test_parts_are_large_enough_for_the_printed_precision(prepared, name):
    assert prepared[0][name].card.sequences["test"] >= TEST_SIZE[name]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", TEST_SIZE)
def test_test_parts_are_large_enough_for_any_seed(name, seed):
    found = dataset(name)
    arrays = found.prepare(Path(MIRROR, name), found.protocol(), seed)
    assert len(arrays.splits["test"].y) >= TEST_SIZE[name]


def test_controls_reach_their_known_levels(prepared):
    r52, mr = (prepared[0][name].card.controls for name in ("r52", "mr"))
    assert 94 <= r52["tfidf_linear_svc"]["accuracy"] <= 95.5
    assert 75.5 <= mr["tfidf_linear_svc"]["accuracy"] <= 77.5
    assert mr["majority"]["accuracy"] == 50
    for name in ("lpa", "gas", "uid"):
        controls = prepared[0][name].card.controls
        majority = controls["majority"]["accuracy"]
        assert max(c["accuracy"] for c in controls.values()) > majority + 20


SHOWN = {
    "lpa": {"majority": "37.5", "logistic_regression": "70.8", "random_forest": "84.6"},
    "gas": {"majority": "43.7", "logistic_regression": "86.5", "random_forest": "81.5"},
    "uid": {"majority": "14.9", "logistic_regression": "54.1", "random_forest": "68.5"},
    "mr": {"majority": "50.0", "tfidf_linear_svc": "76.0"},
    "r52": {"majority": "42.2", "tfidf_linear_svc": "95.0"},
}


@pytest.mark.parametrize("name", class_raw.SETS)
def test_numbers_of_the_protocol_page(prepared, name):
    """What docs/protocols.md prints of a set comes out of its default protocol."""
    page = (Path(__file__).parents[4] / "docs" / "protocols.md").read_text()
    (section,) = (part for part in page.split("\n## ") if part.startswith(f"{name.upper()}: "))
    measured = section.partition("\nMeasured")[2].partition("\n\n")[0]
    card = prepared[0][name].card
    assert set(card.controls) == set(SHOWN[name])
    for control, text in SHOWN[name].items():
        assert f"{card.controls[control]['accuracy']:.1f}" == text
        assert text in measured
    if name in TEST_SIZE:
        assert f"test {card.sequences['test']} windows" in measured
    else:
        assert f"{card.vocabulary - 2:,}" in section
        for share in re.findall(r"[\d.]+ %", card.notes[2]):
            assert share in section


def test_published_splits(prepared):
    made = prepared[0]
    assert made["r52"].card.sequences["test"] == 2568
    assert made["mr"].card.sequences["test"] == 3554
    # 6,532 less 8 equal to a test document, less 1 equal to a validation document once encoded.
    assert sum(made["r52"].card.sequences.values()) == 9100 - 9
    assert made["r52"].card.notes[0].startswith("8 training documents dropped")
    assert made["mr"].card.notes[0].startswith("1 training documents dropped")
    labels = np.concatenate([split.y for split in made["r52"].splits.values()])
    assert len(np.unique(labels)) == len(made["r52"].card.classes) == 52
    single = np.bincount(made["r52"].splits["train"].y, minlength=52)
    assert single.min() == 1


def test_uid_repeats():
    folder = Path(MIRROR, "uid")
    table = dataset("uid").read(folder)
    dropped = {
        user: int(np.sum(table["user"] == number))
        - len(without_repeats(table, number, folder / f"{user}.csv").rows)
        for number, user in enumerate(USERS)
    }
    assert {user: count for user, count in dropped.items() if count} == {"17": 256, "18": 192}
    for user in ("17", "18"):
        number = USERS.index(user)
        raw = table["time"][table["user"] == number]
        assert np.sum(np.diff(raw) < 0) == {"17": 4, "18": 3}[user]
        assert (np.diff(without_repeats(table, number, folder).time) > 0).all()


def test_lpa_file_runs_backwards_and_is_sorted():
    stamps = {}
    for line in Path(MIRROR, "lpa", "ConfLongDemo_JSI.txt").read_text().splitlines():
        cells = line.split(",")
        stamps.setdefault(cells[0], []).append(int(cells[2]))
    assert any(np.any(np.diff(values) < 0) for values in stamps.values())
    table = dataset("lpa").read(Path(MIRROR, "lpa"))
    for name in stamps:
        assert (np.diff(table["ticks"][table["sequence"] == name]) >= 0).all()


def test_gas_spikes_are_clipped(prepared):
    card = prepared[0]["gas"].card
    assert dataset("gas").read(Path(MIRROR, "gas"))["R5"].max() > 180
    assert max(np.abs(split.x).max() for split in prepared[0]["gas"].splits.values()) == 10
    assert any("clipped" in note for note in card.notes)


def test_leaky_windows_flatter_the_control():
    scores = {}
    for split in ("induction", "random_windows"):
        found = dataset("gas")
        made = make_prepared(found, found.protocol(split=split), 2020, Path(MIRROR))
        scores[split] = made.card.controls["random_forest"]["accuracy"]
    assert scores["random_windows"] > 98 > scores["induction"] + 5


@pytest.mark.parametrize("name", ["mr", "r52", "uid"])
def test_changed_line_ends_are_the_same_table_and_a_cut_file_is_refused(tmp_path, name):
    folder = tmp_path / name
    shutil.copytree(Path(MIRROR, name), folder)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    folder.chmod(0o755)
    path = class_raw.main_file(name, folder)
    raw = path.read_bytes()
    other = raw.replace(b"\r\n", b"\n") if b"\r\n" in raw else raw.replace(b"\n", b"\r\n")
    path.write_bytes(other)
    state = inspect_raw(dataset(name), folder)
    assert state.state == "whole"
    assert "the parsed table does not" in state.note
    # Whole lines are gone: the parser has nothing to object to, the digest has.
    path.write_bytes(b"\n".join(raw.split(b"\n")[:-3]) + b"\n")
    with pytest.raises(DataError, match="not the publisher's file"):
        inspect_raw(dataset(name), folder)


def test_all_sets_take_little_processor_time(prepared):
    assert prepared[1] < 180


PEAK = """
import sys
from pathlib import Path
from pfrnn.study.data.registry import dataset
from pfrnn.study.memory import peak_resident
for name in sys.argv[2:]:
    found = dataset(name)
    found.prepare(Path(sys.argv[1], name), found.protocol(), 2020)
print(peak_resident())
"""


@pytest.mark.slow
def test_all_sets_take_little_memory():
    command = [sys.executable, "-c", PEAK, MIRROR, *class_raw.SETS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 4 * 1024**3
