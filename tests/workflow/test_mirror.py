"""Real data sets through the workflow, from the raw-data mirror."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from _copy import Copy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.mirror,
    pytest.mark.skipif(
        "PFRNN_DATA_MIRROR" not in os.environ, reason="PFRNN_DATA_MIRROR is not set"
    ),
]
CAPS = "max_train: 16, max_validation: 16, max_test: 16"
SETTINGS = f"""
study: {{datasets: [air, arem], variants: [lstm]}}
datasets:
  air: {{window: 24, {CAPS}}}
  arem: {{{CAPS}}}
"""
ONE_SET = {"train": 1, "select": 1, "finalise": 1, "aggregate": 1, "mlflow_import": 1, "report": 1}

# A proxy that refuses every connection stands for a machine without network.
NOTHING = {"https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9", "no_proxy": ""}


def test_airs_window_replans_airs_jobs_alone(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    mirror = {"PFRNN_DATA_MIRROR": os.environ["PFRNN_DATA_MIRROR"]}
    (tmp_path / "mine.yaml").write_text(SETTINGS)
    done = copy.snakemake("--cores", "2", "--configfile", "mine.yaml", **mirror)
    assert done.returncode == 0, done.stdout
    assert copy.plan("--configfile", "mine.yaml", **mirror) == {}
    with copy.changed("mine.yaml", "window: 24", "window: 12"):
        assert copy.plan("--configfile", "mine.yaml", **mirror) == {"prepare": 1} | ONE_SET
    with copy.appended("pfrnn/study/data/sets/arem.py", "\nEDITED = True\n"):
        assert copy.plan("--configfile", "mine.yaml", **mirror) == {"prepare": 1} | ONE_SET
    # The raw files are on disk now: without the mirror nothing is missing.
    assert copy.plan("--configfile", "mine.yaml") == {}
    # Prepared sets need no raw files: nothing is missing, and nothing is done again.
    (tmp_path / "data" / "raw").rename(tmp_path / "aside")
    assert copy.plan("--configfile", "mine.yaml", **NOTHING) == {}
