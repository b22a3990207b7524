"""The full report: 20,000 tidy rows in 1 GiB, and small enough to commit.

Its time is not asserted (a busy machine would decide); the child prints it.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

# A process of its own: the peak of this one is that of whatever tests ran before.
CHILD = """
import json, sys, time
from pathlib import Path
sys.path[:0] = [{root!r}, {here!r}]
import simulated
from pfrnn.study.memory import peak_resident
from pfrnn.study.report.report import write_report

plan = simulated.study("gpu", variants=tuple(simulated.VARIANTS), size_rules=("fixed", "best"))
rows = simulated.result_rows(plan, 28)
folder = Path({folder!r})
results, prepared = simulated.write_tree(folder, plan, rows)
used = time.process_time()
page = write_report(results, prepared, plan, folder / "report")
print(json.dumps({{
    "rows": len(rows),
    "seconds": time.process_time() - used,
    "bytes": peak_resident(),
    "page": page.stat().st_size,
}}))
"""


@pytest.mark.slow
def test_twenty_thousand_rows(tmp_path: Path) -> None:
    here = Path(__file__).parent
    code = CHILD.format(root=str(here.parents[2]), here=str(here), folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    print(found)
    assert found["rows"] >= 20_000
    assert found["bytes"] < 1024**3
    assert found["page"] < 15_000_000
