"""Windows, their assignment to splits, scaling on train only, and the sets' own traps."""

import numpy as np
import pytest

from pfrnn.errors import DataError
from pfrnn.study.data.registry import dataset
from pfrnn.study.data.sets.gas import steps_of
from pfrnn.study.data.sets.lpa import resample
from pfrnn.study.data.sets.uid import UIDProtocol, cut_blocks, read, without_repeats
from pfrnn.study.data.windows import (
    Windows,
    assign_by_weight,
    cut_windows,
    deal_groups,
    deal_windows,
    join,
    robust_scale,
    scaled_splits,
)
from tests.study.data import class_raw


def scaled(parts, robust=False, clip=np.inf):
    return scaled_splits(parts, *(robust_scale(parts["train"]) if robust else ()), clip=clip)


def windows(count, seed, steps=4, inputs=2):
    random = np.random.default_rng(seed)
    return Windows(
        x=random.normal(5, 3, size=(count, steps, inputs)),
        y=random.integers(0, 2, count),
        rows=1000 * seed + np.arange(count * steps).reshape(count, steps),
    )


@pytest.mark.parametrize(("length", "stride"), [(1, 1), (4, 1), (4, 3), (7, 10), (20, 2), (21, 2)])
def test_windows_against_a_plain_loop(length, stride):
    values = np.random.default_rng(0).normal(size=(20, 3))
    labels, rows = np.arange(20) % 5, np.arange(100, 120)
    found = cut_windows(values, labels, rows, length, stride)
    expected = [
        (values[s : s + length], labels[s + length - 1], rows[s : s + length])
        for s in range(0, 20, stride)
        if s + length <= 20
    ]
    assert found.x.shape == (len(expected), length, 3)
    for i, (x, y, r) in enumerate(expected):
        np.testing.assert_array_equal(found.x[i], x)
        assert found.y[i] == y
        np.testing.assert_array_equal(found.rows[i], r)


def test_assign_reaches_every_share_with_whole_groups():
    weights = {f"g{i}": int(w) for i, w in enumerate(np.random.default_rng(1).integers(5, 130, 30))}
    total = sum(weights.values())
    for seed in range(20):
        sides = assign_by_weight(weights, 0.15, 0.25, seed)
        assert set(sides) == set(weights)
        for split, share in (("validation", 0.15), ("test", 0.25)):
            got = sum(weights[name] for name, side in sides.items() if side == split)
            assert share * total <= got + 1e-6
            assert got < share * total + max(weights.values())


def test_dealt_windows_keep_every_window_once():
    groups = {"a": windows(13, 1), "b": windows(7, 2)}
    parts = deal_windows(groups, 0.2, 0.3, seed=4)
    assert {name: len(part.y) for name, part in parts.items()} == {
        "train": 10, "validation": 4, "test": 6,
    }  # fmt: skip
    everything = join(list(groups.values()))
    again = join([parts[name] for name in ("train", "validation", "test")])
    assert sorted(again.rows[:, 0]) == sorted(everything.rows[:, 0])


def test_deal_groups_names_an_empty_split():
    groups = {"a": windows(3, 1), "b": windows(3, 2)}
    with pytest.raises(DataError, match="no window for the split validation"):
        deal_groups(groups, {"a": "train", "b": "test"})


@pytest.mark.parametrize("robust", [False, True])
def test_scaling_sees_train_only(robust):
    parts = {"train": windows(30, 1), "validation": windows(9, 2), "test": windows(9, 3)}
    first = scaled(parts, robust)
    changed = {**parts, "test": parts["test"]._replace(x=parts["test"].x * 100 + 7)}
    second = scaled(changed, robust)
    for split in ("train", "validation"):
        np.testing.assert_array_equal(first[split].x, second[split].x)
    train = parts["train"].x.reshape(-1, 2)
    if robust:
        scale = (np.quantile(train, 0.75, axis=0) - np.quantile(train, 0.25, axis=0)) / 1.349
        expected = (parts["test"].x - np.median(train, axis=0)) / scale
    else:
        expected = (parts["test"].x - train.mean(axis=0)) / train.std(axis=0)
    np.testing.assert_allclose(first["test"].x, expected, rtol=1e-5)


def test_robust_scaling_is_not_moved_by_spikes_and_clips_them():
    calm = {"train": windows(50, 1), "validation": windows(5, 2), "test": windows(5, 3)}
    spiked = {**calm, "train": calm["train"]._replace(x=calm["train"].x.copy())}
    spiked["train"].x[0, 0, 0] = 1e6
    plain = scaled(calm, True, 10)["test"].x
    moved = scaled(spiked, True, 10)
    np.testing.assert_allclose(moved["test"].x, plain, atol=0.1)
    assert moved["train"].x.max() == 10
    # The mean and deviation would be moved: the guard above can fail.
    naive = scaled_splits(spiked)["test"].x
    assert np.abs(naive - scaled_splits(calm)["test"].x).max() > 0.1


def test_constant_column_stays_finite():
    parts = {"train": windows(5, 1), "validation": windows(5, 2), "test": windows(5, 3)}
    for part in parts.values():
        part.x[:, :, 1] = 3.0
    for robust in (False, True):
        assert (scaled(parts, robust)["test"].x[:, :, 1] == 0).all()


def test_lpa_resampling_holds_the_last_reading_of_each_tag_and_never_looks_ahead():
    random = np.random.default_rng(3)
    ticks = np.sort(random.choice(20_000_000, 80, replace=False)).astype(np.int64)
    tag = np.concatenate([[0, 1, 2, 3], random.integers(0, 4, 76)])
    position = random.normal(size=(80, 3))
    values, newest = resample(ticks, tag, position, period=0.1)
    seconds = (ticks - ticks[0]) / 1e7
    start = seconds[3]
    for step, row in enumerate(values):
        now = start + 0.1 * step + 1e-9
        for number in range(4):
            seen = [i for i in range(80) if tag[i] == number and seconds[i] <= now]
            np.testing.assert_array_equal(row[3 * number : 3 * number + 3], position[seen[-1]])
        assert newest[step] == max(i for i in range(80) if seconds[i] <= now)
    assert len(values) == int((seconds[-1] - start) / 0.1 + 1e-9) + 1
    # Later readings don't change earlier steps.
    half = int(newest[len(values) // 2])
    fewer, _ = resample(ticks[: half + 1], tag[: half + 1], position[: half + 1], 0.1)
    np.testing.assert_array_equal(fewer, values[: len(fewer)])


@pytest.mark.parametrize("persons", ["AB", "ABCDE"])
def test_lpa_leaves_whole_persons_out(tmp_path, persons):
    folder = tmp_path / "lpa"
    folder.mkdir()
    class_raw.lpa(folder, persons=persons, sequences=3, readings=300)
    found = dataset("lpa")
    letters = np.array([name[0] for name in found.read(folder)["sequence"]])
    tested = set()
    for seed in range(4):
        splits = found.prepare(folder, found.protocol(split="person"), seed).splits
        seen = {name: set(letters[split.rows[:, 0]]) for name, split in splits.items()}
        assert len(seen["test"]) == 1
        assert not seen["test"] & (seen["train"] | seen["validation"])
        if len(persons) > 2:
            assert len(seen["validation"]) == 1
            assert not seen["validation"] & seen["train"]
        tested |= seen["test"]
    assert len(tested) > 1


def test_lpa_names_a_silent_tag():
    with pytest.raises(DataError, match="tag chest was never read"):
        resample(np.arange(6), np.array([0, 1, 3, 0, 1, 3]), np.zeros((6, 3)), 0.1)


def test_gas_steps_are_means_around_the_mark():
    # Minute marks as the file rounds them: 29 minutes stand as 0.483333 h, just below.
    time = np.array([0.0, 0.016667, 0.366667, 0.483333, 0.483333 + 10 / 3600])
    values = np.array([[1.0], [2.0], [3.0], [4.0], [6.0]])
    steps, means, last = steps_of(time, values, 60.0)
    assert steps.tolist() == [0, 1, 22, 29]
    assert means[:, 0].tolist() == [1, 2, 3, 5]
    assert last.tolist() == [0, 1, 2, 4]


def test_uid_drops_a_buffer_written_again_and_then_runs_on(tmp_path):
    folder = class_raw.write("uid", tmp_path)
    lines = class_raw.uid_lines(17)
    repeated = [*lines[:128], *lines[64:128], *lines[64:128], *lines[128:]]
    (folder / "17.csv").write_text("".join(repeated))
    recording = without_repeats(read(folder), 16)
    assert len(recording.time) == len(lines)
    assert (np.diff(recording.time) > 0).all()
    assert np.isin(recording.rows - 16 * 500, np.r_[0:128, 256:628]).all()
    blocks = cut_blocks(recording, 16, UIDProtocol(window=20, stride=10))
    rows = [np.unique(block.rows) for block in blocks]
    assert len(np.unique(np.concatenate(rows))) == sum(len(block) for block in rows)


def test_uid_windows_stop_at_long_gaps(tmp_path):
    folder = class_raw.write("uid", tmp_path)
    lines = class_raw.uid_lines(3, readings=150)
    later = class_raw.uid_lines(3, readings=350, start=20.0)
    (folder / "3.csv").write_text("".join(lines + later))
    recording = without_repeats(read(folder), 2)

    def longest(**changes):
        blocks = cut_blocks(recording, 2, UIDProtocol(window=20, stride=5, blocks=3, **changes))
        return max(np.diff(recording.time[b.rows - 2 * 500], axis=1).max() for b in blocks)

    assert longest() < 0.5 < longest(max_gap=100)
