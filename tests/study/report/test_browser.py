"""The page in a headless Chromium, where there is one: scripts run, sort, filter, hover, fit."""

import itertools
import json
import shutil
import subprocess
from pathlib import Path

import pytest
import simulated

from pfrnn.study.report.report import write_report

pytestmark = [pytest.mark.slow, pytest.mark.nightly]
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
# Runs after the page's own script and leaves what it saw in the title.
PROBE = """
<script>
const seen = {};
const table = document.querySelector("#table-2 table");
const column = [...table.tHead.rows[0].cells].findIndex((cell) => cell.dataset.dataset === "arem");
const order = () => [...table.tBodies[0].rows].map((row) => row.cells[column].dataset.sort);
const click = () => table.tHead.rows[0].cells[column].querySelector("button").click();
click(); seen.ascending = order(); click(); seen.descending = order();
seen.sorted = table.tHead.rows[0].cells[column].getAttribute("aria-sort");
const number = document.querySelector("#table-2 td details");
number.open = true;
seen.opened = number.textContent;
const filter = document.querySelector("select[data-filter=dataset]");
filter.value = "arem"; filter.dispatchEvent(new Event("change"));
seen.hidden = getComputedStyle(document.querySelector("th[data-dataset=mr]")).display;
seen.shown = getComputedStyle(document.querySelector("th[data-dataset=arem]")).display;
filter.value = ""; filter.dispatchEvent(new Event("change"));
const slider = document.getElementById("maze-step");
slider.value = 7; slider.dispatchEvent(new Event("input"));
seen.time = document.getElementById("maze-time").textContent;
seen.width = document.documentElement.scrollWidth;
// A phone's width: the window can't be that narrow, a column can.
for (const element of document.querySelectorAll("body > *")) element.style.maxWidth = "390px";
const outside = (element) => !element.closest(".scroll, .skip, svg, script, style")
  && element.getBoundingClientRect().width > 0 && element.scrollWidth > 391;
seen.narrow = [...document.querySelectorAll("body *")].filter(outside)
  .map((element) => `${element.tagName} ${element.className} ${element.scrollWidth}`);
for (const element of document.querySelectorAll("body > *")) element.style.maxWidth = "";
seen.figures = [...document.querySelectorAll("figure svg")].filter((svg) => {
  const box = svg.getBoundingClientRect(); return box.width > 100 && box.height > 50; }).length;
seen.unlabelled = [...document.querySelectorAll("button, select, input, a")].filter((element) =>
  !(element.textContent.trim() || element.ariaLabel || element.labels?.length)).length;
seen.headings = [...document.querySelectorAll("h1, h2, h3")].map((h) => Number(h.tagName[1]));
seen.background = getComputedStyle(document.body).backgroundColor;
document.title = "SEEN" + JSON.stringify(seen) + "NEES";
</script>
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if chromium() is None:
        pytest.skip("no Chromium here (Debian: chromium)")
    folder = tmp_path_factory.mktemp("browser")
    plan = simulated.study(datasets=("maze10", "air", "arem"), missing={"air": "no network"})
    rows = simulated.result_rows(plan, 2)
    for row in rows:
        row["commit"] = "0123456789" * 4  # as long as a real one, with nowhere to break
    results, prepared = simulated.write_tree(folder, plan, rows)
    path = write_report(results, prepared, plan, folder / "report")
    probed = path.with_name("probed.html")
    text = path.read_text(encoding="utf-8")
    probed.write_text(text.replace("</body>", PROBE + "</body>"), encoding="utf-8")
    return probed


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("google-chrome")


def look(page: Path, tmp_path: Path, width: int, *flags: str) -> dict[str, object]:
    """Open the page; return what the probe saw; fail on any console message."""
    command = [str(chromium()), *FLAGS, *flags, f"--user-data-dir={tmp_path}"]
    command += [f"--window-size={width},900", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    # Chromium's own pages report there too (chrome://, "slow network" where there is none).
    messages = [
        line
        for line in done.stderr.splitlines()
        if ":CONSOLE" in line and "source: chrome://" not in line
    ]
    assert not messages, messages
    text = done.stdout.partition("SEEN")[2].partition("NEES")[0]
    found: dict[str, object] = json.loads(text)
    return found


@pytest.mark.parametrize("width", [1280, 500])  # headless Chromium opens no narrower window
def test_page_works_in_a_browser(page: Path, tmp_path: Path, width: int) -> None:
    seen = look(page, tmp_path, width)
    ascending = [float(str(value)) for value in seen["ascending"] if value]  # type: ignore[attr-defined]
    assert len(ascending) == 5
    assert ascending == sorted(ascending)
    descending = [value for value in seen["descending"] if value]  # type: ignore[attr-defined]
    assert [float(value) for value in descending] == ascending[::-1]
    assert seen["descending"][-1] == ""  # type: ignore[index]
    assert seen["sorted"] == "descending"
    assert "the runs" in str(seen["opened"])
    assert (seen["hidden"], seen["shown"]) == ("none", "table-cell")
    assert seen["time"] == "t = 7"
    assert int(str(seen["width"])) <= width  # the page itself never scrolls sideways
    assert seen["narrow"] == []
    assert int(str(seen["figures"])) >= 6
    assert seen["unlabelled"] == 0
    headings = seen["headings"]
    assert isinstance(headings, list)
    assert headings.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(headings))


def test_dark_and_light_differ(page: Path, tmp_path: Path) -> None:
    light = look(page, tmp_path / "light", 1280)
    dark = look(page, tmp_path / "dark", 1280, "--force-dark-mode")
    assert light["background"] == "rgb(255, 255, 255)"
    assert dark["background"] == "rgb(21, 24, 28)"
