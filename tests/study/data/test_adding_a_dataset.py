"""docs/adding_a_dataset.md, followed to the letter: its code is the file that is added."""

from __future__ import annotations

import datetime as dt
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

import pfrnn.study.data.sets
from pfrnn.study.cli import main
from pfrnn.study.data.audit import shared_rows
from pfrnn.study.data.store import load_prepared
from pfrnn.study.plan import load_plan

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "adding_a_dataset.md"


def raw_file(rows: int = 600) -> str:
    draw = np.random.default_rng(0)
    lines = ["time,level,wind"]
    start = dt.datetime(2020, 1, 1)
    for hour in range(rows):
        level = 200 * np.sin(2 * np.pi * hour / 12.4) + draw.normal(0, 5)
        shown = "-" if hour % 50 == 7 else f"{level:.1f}"
        lines.append(
            f"{start + dt.timedelta(hours=hour):%Y-%m-%d %H:%M},{shown},{draw.gamma(2, 3):.1f}"
        )
    return "\n".join(lines) + "\n"


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's file beside the other sets, and its raw file in data/raw."""
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code is not None
    folder = tmp_path / "sets"
    folder.mkdir()
    (folder / "tides.py").write_text(code.group(1))
    monkeypatch.setattr(
        pfrnn.study.data.sets, "__path__", [*pfrnn.study.data.sets.__path__, str(folder)]
    )
    (tmp_path / "data/raw/tides").mkdir(parents=True)
    (tmp_path / "data/raw/tides/tides.csv").write_text(raw_file())
    monkeypatch.delenv("PFRNN_DATA_MIRROR", raising=False)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("pfrnn.study.data.sets.tides", None)


def test_the_page(added: Path, capsys: pytest.CaptureFixture[str]) -> None:
    params = str(ROOT / "params.yaml")
    assert main(["fetch", "tides"]) == 0
    assert "tides: unverified" in capsys.readouterr().out
    assert main(["prepare", "tides", "--out", "out", "--params", params]) == 0

    prepared = load_prepared("out")
    assert prepared.card.state == "unverified"
    assert shared_rows(prepared.splits) == []
    controls = prepared.card.controls
    assert controls["linear_autoregression"]["rmse"] < controls["persistence"]["rmse"] / 2

    study = {"study": {"datasets": ["tides"]}}
    plan = load_plan(params, "quick", study)
    assert {cell.dataset for cell in plan.cells} == {"tides"}
    assert len(plan.cells) >= 4
    other = load_plan(params, "quick", {**study, "datasets": {"tides": {"window": 12}}})
    assert plan.prepared_id("tides") != other.prepared_id("tides")


@pytest.mark.nightly
def test_it_stands_in_the_tables(added: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Trained, selected, tested and reported as any other set, by the same commands."""
    (added / "mine.yaml").write_text(
        "study: {datasets: [tides], variants: [gru]}\n"
        "datasets: {tides: {max_train: 32, max_validation: 8, max_test: 8}}\n"
    )
    options = ["--params", f"{ROOT / 'params.yaml'},mine.yaml", "--tier", "smoke"]
    plan = load_plan(ROOT / "params.yaml", "smoke", yaml.safe_load(Path("mine.yaml").read_text()))
    (cell,) = plan.cells
    assert main(["fetch", "tides"]) == 0
    assert main(["prepare", "tides", *options]) == 0
    for block in plan.blocks:
        assert main(["train", block.id, *options]) == 0
    assert main(["select", cell.selection_id, *options]) == 0
    assert main(["final", cell.final_id, *options]) == 0
    assert main(["aggregate", *options]) == 0
    assert main(["report", *options]) == 0
    text = (added / "results/smoke/report/index.html").read_text()
    table = text.partition('<section id="further">')[2].partition("</section>")[0]
    assert "tides, rmse" in table
    assert "data: unverified" in table
    assert "control: persistence" in table
    assert 'id="figure-data-tides"' in text


def test_the_pages_commands_exist() -> None:
    """Every ``pfrnn`` command on the page has its module."""
    used = set(re.findall(r"^pfrnn (\w+)", PAGE.read_text(), re.MULTILINE))
    assert used == {"datasets", "fetch", "prepare"}
    for command in used:
        assert (ROOT / "pfrnn/study/cli" / f"{command}.py").is_file()


def test_a_broken_file_disables_its_own_set_only(
    added: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (added / "sets/tides.py").write_text("DATASET = 1 / 0\n")
    params = ["--params", str(ROOT / "params.yaml")]
    assert main(["datasets", *params, "--tier", "quick"]) == 0
    shown = capsys.readouterr().out
    assert "tides: error: data set tides: pfrnn.study.data.sets.tides: ZeroDivisionError" in shown
    assert "maze10" in shown
    assert main(["fetch", "maze10"]) == 0
    assert load_plan(ROOT / "params.yaml", "quick").cells
    assert main(["fetch", "tides"]) != 0
