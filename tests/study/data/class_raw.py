"""Invented raw files in the publishers' formats, small enough for a test."""

import datetime as dt
from pathlib import Path

import numpy as np

SETS = ("lpa", "gas", "uid", "mr", "r52")
TAGS = ("010-000-024-033", "010-000-030-096", "020-000-033-111", "020-000-032-221")
GAS_HEADER = (
    "id time       R1         R2         R3         R4         R5         R6         R7        R8"
    "        Temp.      Humidity\n"
)


def write(name, folder):
    """Write a set's files into ``folder/name`` and return that folder."""
    target = Path(folder) / name
    target.mkdir(parents=True)
    {"lpa": lpa, "gas": gas, "uid": uid, "mr": mr, "r52": r52}[name](target)
    return target


def main_file(name, folder):
    """The file that damage is done to."""
    return (
        folder
        / {
            "lpa": "ConfLongDemo_JSI.txt",
            "gas": "HT_Sensor_dataset.dat",
            "uid": "7.csv",
            "mr": "textgcn_split/text_train.txt",
            "r52": "r52-train-all-terms.txt",
        }[name]
    )


def lpa(folder, persons="AB", sequences=5, readings=450):
    random = np.random.default_rng(1)
    lines = []
    start = 633790226051280000
    for person in persons:
        for number in range(1, sequences + 1):
            tags = np.concatenate([[0, 1, 2, 3], random.integers(0, 4, readings - 4)])
            ticks = start + np.cumsum(random.integers(200_000, 340_000, readings))
            start = int(ticks[-1]) + 10**9
            places = random.normal(size=(readings, 3)).cumsum(axis=0) * 0.02 + tags[:, None]
            for i in range(readings):
                moment = dt.datetime(1, 1, 1) + dt.timedelta(microseconds=int(ticks[i]) // 10)
                date = moment.strftime("%d.%m.%Y %H:%M:%S:") + f"{moment.microsecond // 1000:03d}"
                x, y, z = places[i]
                activity = ("walking", "falling", "lying")[3 * i // readings]
                lines.append(
                    f"{person}{number:02d},{TAGS[tags[i]]},{ticks[i]},{date},"
                    f"{x:.7f},{y:.7f},{z:.7f},{activity}\n"
                )
    (folder / "ConfLongDemo_JSI.txt").write_text("".join(lines))


def gas(folder, inductions=18, minutes=30):
    random = np.random.default_rng(2)
    lines = [GAS_HEADER]
    meta = ["id\tdate\t\tclass\tt0\tdt\n"]
    for number in range(inductions):
        kind = ("banana", "wine", "background")[number % 3]
        meta.append(f"{number}\t07-{number + 1:02d}-15\t{kind}\t13.49\t{minutes / 60:.2f} \n")
        # From 10 minutes before the stimulus to 10 minutes after it, a reading each 30 s.
        seconds = np.arange(-600, 60 * minutes + 601, 30) + random.uniform(-3, 3)
        values = 12 + random.normal(size=(len(seconds), 10)).cumsum(axis=0) * 0.1 + number % 3
        for time, row in zip(seconds / 3600, values, strict=True):
            cells = "  ".join(f"{value:.4f}" for value in row)
            lines.append(f"{number}  {time:.6f}  {cells}\n")
    (folder / "HT_Sensor_dataset.dat").write_text("".join(lines))
    (folder / "HT_Sensor_metadata.dat").write_text("".join(meta))


def uid_lines(user, readings=500, start=0.0):
    random = np.random.default_rng(100 + user)
    time = start + np.cumsum(random.uniform(0.028, 0.034, readings))
    values = random.normal(size=(readings, 3)) + user / 4
    return [f"{t:.5g},{x:.5g},{y:.5g},{z:.5g}\n" for t, (x, y, z) in zip(time, values, strict=True)]


def uid(folder):
    for user in range(1, 23):
        (folder / f"{user}.csv").write_text("".join(uid_lines(user)))


def sentences(count, seed, words=40):
    """Random sentences of 3 to 12 words out of 40 invented ones (letters only)."""
    letters = np.array(list("bcdfgklmnprst"))
    pool = np.random.default_rng(0)
    known = ["".join(pool.choice(letters, 5)) for _ in range(words)]
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(known, random.integers(3, 13))) for _ in range(count)]


def mr(folder, train=80, test=40):
    split = folder / "textgcn_split"
    split.mkdir()
    for part, count, seed in (("train", train, 3), ("test", test, 4)):
        # One sentence with the byte 0x85 inside and an accented letter, as in the real files.
        texts = [*sentences(count - 1, seed), f"caf\xe9 {part} wait\x85 what ?"]
        (split / f"text_{part}.txt").write_bytes(
            "".join(f"{text} \r\n" for text in texts).encode("latin-1")
        )
        labels = "".join(f"{i % 2}\r\n" for i in range(count))
        (split / f"label_{part}.txt").write_bytes(labels.encode())
    for kind, seed in (("pos", 5), ("neg", 6)):
        texts = [*sentences(49, seed), f"wait\x85 what {kind} ?"]
        (folder / f"rt-polarity.{kind}").write_bytes(
            "".join(f"{text} . \n" for text in texts).encode("latin-1")
        )


def r52(folder, train=90, test=30):
    for part, count, seed in (("train", train, 7), ("test", test, 8)):
        labels = ["earn", "acq", "crude"]
        texts = sentences(count, seed)
        lines = [f"{labels[i % 3]}\t{text} " for i, text in enumerate(texts)]
        if part == "train":
            lines[5] = "trade\tonly one of its class "
        (folder / f"r52-{part}-all-terms.txt").write_text("\n".join(lines))
