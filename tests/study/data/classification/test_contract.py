"""What every classification set promises: shapes, no leaks, seeds, explicit parameters."""

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import class_raw
import numpy as np
import pytest
import yaml

from pfrnn.errors import DataError
from pfrnn.study.data.audit import check_contract, duplicate_sequences, leaks
from pfrnn.study.data.base import SPLITS
from pfrnn.study.data.controls import control_scores
from pfrnn.study.data.digests import arrays_digest, parse_digest
from pfrnn.study.data.rawstate import inspect_raw
from pfrnn.study.data.registry import dataset, protocol
from pfrnn.study.data.store import named_arrays

SENSORS = ("lpa", "gas", "uid")
ROOT = Path(__file__).parents[4]


@cache
def raw(name):
    return class_raw.write(name, mkdtemp())


@cache
def prepared(name, seed=2020, **changes):
    found = dataset(name)
    return found.prepare(raw(name), found.protocol(**changes), seed)


@pytest.mark.parametrize("name", class_raw.SETS)
def test_arrays_keep_the_contract(name):
    arrays = prepared(name)
    check_contract(arrays, "classification")
    assert tuple(arrays.splits) == SPLITS
    for split in arrays.splits.values():
        assert (split.mask.sum(axis=1) == 1).all()
        assert split.mask[np.arange(len(split.y)), split.length - 1].all()
        assert (split.rows[split.mask] >= 0).all()


@pytest.mark.parametrize("name", class_raw.SETS)
def test_nothing_leaks(name):
    arrays = prepared(name)
    assert leaks(arrays.splits) == []
    assert duplicate_sequences(arrays.splits) == []


@pytest.mark.parametrize("name", SENSORS)
def test_random_windows_leak_and_say_so(name):
    values = dataset(name).protocol(split="random_windows")
    assert values.leaky
    assert not dataset(name).protocol().leaky
    arrays = prepared(name, split="random_windows")
    assert len(leaks(arrays.splits)) == 3
    assert any(note.startswith("LEAKY ON PURPOSE") for note in arrays.notes)
    assert not any("LEAKY" in note for note in prepared(name).notes)


@pytest.mark.parametrize("name", class_raw.SETS)
def test_same_seed_same_bytes_and_another_seed_another_split(name):
    found = dataset(name)
    first = prepared(name)
    again = found.prepare(raw(name), found.protocol(), 2020)
    other = found.prepare(raw(name), found.protocol(), 2021)
    digests = [arrays_digest(named_arrays(a.splits, a.extra)) for a in (first, again, other)]
    assert digests[0] == digests[1] != digests[2]
    for control, labels in first.predictions.items():
        np.testing.assert_array_equal(labels, again.predictions[control])
    assert first.notes == again.notes


@pytest.mark.parametrize("name", class_raw.SETS)
def test_controls_are_accuracies_in_percent(name):
    arrays = prepared(name)
    scores = control_scores(arrays.predictions, arrays.splits["test"], (), ())
    assert set(scores) >= {"majority"}
    assert len(scores) >= 2
    for score in scores.values():
        assert 0 <= score["accuracy"] <= 100
    assert dataset(name).card.metric == "accuracy"
    assert dataset(name).card.unit == "%"


@pytest.mark.parametrize("name", SENSORS)
def test_train_is_standardised(name):
    x = prepared(name).splits["train"].x.astype(np.float64)
    flat = x.reshape(-1, x.shape[-1])
    if name == "gas":
        np.testing.assert_allclose(np.median(flat, axis=0), 0, atol=1e-6)
    else:
        np.testing.assert_allclose(flat.mean(axis=0), 0, atol=1e-5)
        np.testing.assert_allclose(flat.std(axis=0), 1, atol=1e-5)


@pytest.mark.parametrize("name", class_raw.SETS)
def test_params_file_states_every_default(name):
    values = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))["datasets"][name]
    caps = {"max_train", "max_validation", "max_test"}
    model = dataset(name).protocol
    assert set(values) == set(model.model_fields) - caps
    assert protocol(name, values) == model()


@pytest.mark.parametrize("name", class_raw.SETS)
def test_card_is_complete(name):
    card = dataset(name).card
    assert card.name == name
    assert all([card.origin, card.citation, card.licence, card.target])
    for accepted in [*(d for f in card.files for d in f.sha256), *card.tables]:
        kind, digits = parse_digest(accepted)
        assert len(digits) == {"sha256": 64, "md5": 32, "sha1": 40}[kind]
        assert int(digits, 16) > 0
    for address in card.addresses:
        assert set(address.members) <= {file.name for file in card.files}


@pytest.mark.parametrize("name", class_raw.SETS)
def test_an_unknown_file_is_refused_unless_allowed(name):
    with pytest.raises(DataError, match="not the publisher's file"):
        inspect_raw(dataset(name), raw(name))
    assert inspect_raw(dataset(name), raw(name), allow_unverified=True).state == "unverified"
