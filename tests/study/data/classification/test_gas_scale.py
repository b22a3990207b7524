"""GAS at its full size: a simulated file in the publisher's format, 929,000 readings."""

import json
import subprocess
import sys

import class_raw
import numpy as np
import pytest

pytestmark = pytest.mark.slow
READINGS, INDUCTIONS = 929_000, 100
RUN = """
import json, sys, time
from pathlib import Path
from pfrnn.study.data.registry import dataset
from pfrnn.study.memory import peak_resident
found = dataset("gas")
arrays = found.prepare(Path(sys.argv[1]), found.protocol(), 2020)
windows = {name: len(split.y) for name, split in arrays.splits.items()}
print(json.dumps([windows, time.process_time(), peak_resident()]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    target = tmp_path_factory.mktemp("gas")
    random = np.random.default_rng(0)
    each = READINGS // INDUCTIONS
    meta = ["id\tdate\t\tclass\tt0\tdt\n"]
    with (target / "HT_Sensor_dataset.dat").open("w") as file:
        file.write(class_raw.GAS_HEADER)
        for number in range(INDUCTIONS):
            kind = ("banana", "wine", "background")[number % 3]
            meta.append(f"{number}\t07-04-15\t{kind}\t13.49\t0.75 \n")
            hours = -1 + np.arange(each) / 3600
            values = 12 + random.normal(size=(each, 10)).cumsum(axis=0) * 0.01
            rows = np.column_stack([np.full(each, number), hours, values])
            np.savetxt(file, rows, fmt=["%d", "%.6f"] + ["%.4f"] * 10, delimiter="  ")
    (target / "HT_Sensor_metadata.dat").write_text("".join(meta))
    return target


def test_full_size_takes_under_two_minutes_and_three_gibibytes(folder):
    command = [sys.executable, "-c", RUN, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    windows, seconds, peak = json.loads(done.stdout)
    # 45 minutes of stimulus give 46 marks and 37 windows of ten minutes.
    assert sum(windows.values()) == INDUCTIONS * 37
    assert seconds < 120
    assert peak < 3 * 1024**3
