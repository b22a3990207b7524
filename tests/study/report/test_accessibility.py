"""axe-core's rules on the page in a headless Chromium, light and dark.

axe-core is not a dependency: `npm install --no-save axe-core` puts it into node_modules/, or
AXE_CORE names the file axe.min.js.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
import simulated
from test_browser import FLAGS, chromium

from pfrnn.study.report.report import write_report

pytestmark = pytest.mark.nightly
INSTALLED = Path(__file__).parents[3] / "node_modules" / "axe-core" / "axe.min.js"
RUN = """
<script>
axe.run(document, { resultTypes: ["violations"] }).then((found) => {
  const lines = found.violations.map((one) => [one.id, one.help, one.nodes.length,
    one.nodes.slice(0, 3).map((node) => node.html.slice(0, 200) + " " + node.failureSummary)]);
  document.title = "SEEN" + JSON.stringify({ lines, rules: found.passes.length }) + "NEES";
});
</script>
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    script = Path(os.environ.get("AXE_CORE", INSTALLED))
    if chromium() is None:
        pytest.skip("no Chromium here (Debian: chromium)")
    if not script.is_file():
        pytest.skip("no axe-core here (npm install --no-save axe-core, or set AXE_CORE)")
    folder = tmp_path_factory.mktemp("axe")
    plan = simulated.study("gpu", datasets=("maze10", "air", "arem", "mr"), missing={"air": "none"})
    results, prepared = simulated.write_tree(folder, plan, simulated.result_rows(plan, 3))
    path = write_report(results, prepared, plan, folder / "report")
    return with_axe(path, script)


def with_axe(path: Path, script: Path) -> Path:
    """A copy of the page that runs axe-core and leaves what it found in the title."""
    added = f"<script>{script.read_text(encoding='utf-8')}</script>{RUN}"
    probed = path.with_name("axe.html")
    text = path.read_text(encoding="utf-8")
    # "Play" and "Pause" are the page's own; the script's text must not end the element.
    probed.write_text(text.replace("</body>", added + "</body>"), encoding="utf-8")
    return probed


def violations(page: Path, tmp_path: Path, *flags: str) -> list[list[object]]:
    """Run axe-core; return its violations."""
    command = [str(chromium()), *FLAGS, *flags, f"--user-data-dir={tmp_path}"]
    command += ["--window-size=1280,900", "--virtual-time-budget=60000", "--dump-dom"]
    done = subprocess.run(
        [*command, page.as_uri()], capture_output=True, text=True, timeout=300, check=False
    )
    text = done.stdout.partition("SEEN")[2].partition("NEES")[0]
    assert text, done.stderr[-2000:]
    found = json.loads(text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert found["rules"] > 10  # it did look
    lines: list[list[object]] = found["lines"]
    return lines


@pytest.mark.parametrize("flags", [(), ("--force-dark-mode",)], ids=["light", "dark"])
def test_axe_finds_nothing(page: Path, tmp_path: Path, flags: tuple[str, ...]) -> None:
    assert violations(page, tmp_path, *flags) == []


def test_axe_would_find_a_fault(page: Path, tmp_path: Path) -> None:
    broken = page.with_name("broken.html")
    text = page.read_text(encoding="utf-8")
    broken.write_text(text.replace('<html lang="en">', "<html>", 1), encoding="utf-8")
    assert "html-has-lang" in [line[0] for line in violations(broken, tmp_path)]
