"""docs/own_model.md, followed to the letter: its cell, its edits, its study, up to the report."""

from __future__ import annotations

import csv
import importlib
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import pfrnn.study.train.own
from pfrnn.errors import ConfigError
from pfrnn.nn import PFGRUCell
from pfrnn.study import variants
from pfrnn.study.cli import main
from pfrnn.study.evaluate.selection import select_cell
from pfrnn.study.plan import load_plan
from pfrnn.study.provenance import PACKAGE_ROOT, source_closure
from pfrnn.study.train import own
from pfrnn.study.train.block import train_block
from pfrnn.study.train.final import run_final
from pfrnn.study.variants import Variant

from . import toys

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "own_model.md").read_text(encoding="utf-8")
CODE, NAMING, VARIANT = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(STUDY,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.search(r"```sh\n(.*?)```", PAGE, re.DOTALL)[1]


def edits() -> dict[Path, tuple[str, str]]:
    """The lines that the page has changed, as they stand and as they become."""
    importing, _, cells = NAMING.strip().partition("\n\n")
    found = {}
    for path, line in (("study/train/own.py", cells), ("study/variants.py", VARIANT.strip())):
        start = line.partition(" = ")[0]
        (before,) = re.findall(
            rf"^{re.escape(start)} = .*$", (PACKAGE_ROOT / path).read_text(), re.M
        )
        found[Path(path)] = (before, line)
    before, after = found[Path("study/train/own.py")]
    found[Path("study/train/own.py")] = (before, f"{importing}\n\n{after}")
    return found


@pytest.fixture
def added(tmp_path, monkeypatch):
    """The page's cell and variant, registered."""
    folder = tmp_path / "train"
    folder.mkdir()
    (folder / "mgu.py").write_text(CODE)
    monkeypatch.setattr(pfrnn.study.train, "__path__", [*pfrnn.study.train.__path__, str(folder)])
    cell = importlib.import_module("pfrnn.study.train.mgu").MGUCell
    monkeypatch.setitem(own.CELLS, "mgu", cell)
    (model,) = eval(VARIANT.partition(" = ")[2], {"Variant": Variant})
    monkeypatch.setitem(variants.OWN, "mgu", model)
    (tmp_path / "mine.yaml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    yield cell
    sys.modules.pop("pfrnn.study.train.mgu", None)


def test_no_own_model_is_committed():
    """Else the page's edits would meet other lines; and its reader starts from none."""
    assert own.CELLS == variants.OWN == {}
    (nn_before, _), (variants_before, _) = edits().values()
    assert nn_before.endswith("= {}")
    assert variants_before.endswith("= ()")


def test_the_edits_make_the_cell_part_of_every_trainings_source(tmp_path):
    root = tmp_path / "pfrnn"
    shutil.copytree(PACKAGE_ROOT, root, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "study" / "train" / "mgu.py").write_text(CODE)
    for path, (before, after) in edits().items():
        text = (root / path).read_text()
        (root / path).write_text(text.replace(before, after))
    for entry in ("pfrnn.study.train.block", "pfrnn.study.train.final"):
        assert (
            source_closure(entry, root)["pfrnn.study.train.mgu"]
            == root / "study" / "train" / "mgu.py"
        )


def loop(cell, x, valid):
    """The unit by its equations, one sequence and one step at a time."""
    units, steps = cell.hidden_size, x.shape[0]
    out = np.zeros((*x.shape[:2], units))
    weight_in, bias = cell.weight_input.detach().numpy(), cell.bias.detach().numpy()
    gate_in, candidate_in = weight_in[:, :units], weight_in[:, units:]
    gate_h, candidate_h = (w.detach().numpy() for w in (cell.weight_gate, cell.weight_candidate))
    for n in range(x.shape[1]):
        h = np.zeros(units)
        for t in range(steps):
            if valid[t, n]:
                f = 1 / (1 + np.exp(-(h @ gate_h + x[t, n] @ gate_in + bias[:units])))
                c = np.tanh((f * h) @ candidate_h + x[t, n] @ candidate_in + bias[units:])
                h = (1 - f) * h + f * c
            out[t, n] = h
    return out


def test_the_cell_is_its_equations_alone_and_stacked(added):
    cells = [added(3, 5, dtype=torch.float64) for _ in "ab"]
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    valid = torch.tensor([[True, True], [True, True], [True, False], [True, False]])
    alone = [cell.unroll(x, valid=valid).hidden.detach() for cell in cells]
    for cell, got in zip(cells, alone, strict=True):
        np.testing.assert_allclose(got, loop(cell, x.numpy(), valid.numpy()), atol=1e-12)
    stacked = {
        name: torch.stack([dict(cell.named_parameters())[name] for cell in cells])
        for name, _ in cells[0].named_parameters()
    }
    wide = (torch.stack([x, x], 1), torch.stack([valid, valid], 1))
    cells[0].forward = lambda x, valid: cells[0].unroll(x, valid=valid).hidden
    together = torch.func.functional_call(cells[0], stacked, wide)
    torch.testing.assert_close(together.movedim(1, 0), torch.stack(alone), atol=1e-12, rtol=0)


@pytest.mark.slow
def test_the_page_up_to_the_report(added, capsys, monkeypatch):
    monkeypatch.delenv("PFRNN_DATA_MIRROR", raising=False)
    params = f"{ROOT / 'params.yaml'},mine.yaml"
    options = ["--params", params, "--tier", "smoke"]
    assert main(["grid", *options]) == 0
    (line,) = (row for row in capsys.readouterr().out.splitlines() if row.startswith("own models"))
    assert line.split()[2:4] == ["1", "1"]
    plan = load_plan(params, "smoke")
    assert [cell.variant for cell in plan.cells] == yaml.safe_load(STUDY)["study"]["variants"]
    assert main(["prepare", "maze10", *options]) == 0
    for block in plan.blocks:
        assert main(["train", block.id, *options]) == 0
    for cell in plan.cells:
        assert main(["select", cell.selection_id, *options]) == 0
        assert main(["final", cell.final_id, *options]) == 0
    assert main(["aggregate", *options]) == 0
    assert main(["report", *options]) == 0
    with open("results/smoke/results.csv", newline="") as source:
        rows = list(csv.DictReader(source))
    for metric in {row["metric"] for row in rows}:
        pairs = {
            name: [
                (row["repetition"], row["seed"], row["data_digest"])
                for row in rows
                if row["variant"] == name and row["metric"] == metric
            ]
            for name in ("gru", "mgu")
        }
        assert len(pairs["mgu"]) == 2
        assert pairs["mgu"] == pairs["gru"]
    text = Path("results/smoke/report/index.html").read_text()
    table = text.partition('<section id="own">')[2].partition("</section>")[0]
    for words in ("Own models", "MGU", "GRU", "PF-GRU", "maze10", "control: "):
        assert words in table
    assert "not run" not in table
    # The commands shown name the study's file.
    mgu = plan.cells[-1].final_id
    ids = "|".join({cell.final_id for cell in plan.cells})
    asked = rf"--configfile mine\.yaml --config tier=smoke -- results/smoke/(?:{ids})/test\.csv"
    assert re.search(asked, text)
    assert re.search(rf"pfrnn final (?:{ids}) --tier smoke --params params\.yaml,mine\.yaml", text)
    # Without it the plan holds another study's finals; those of this one are named.
    capsys.readouterr()
    main(["aggregate", "--tier", "smoke", "--params", str(ROOT / "params.yaml")])
    assert mgu in capsys.readouterr().err


def test_the_pages_commands_exist():
    assert set(re.findall(r"^(\w+)", COMMANDS, re.MULTILINE)) == {"pfrnn", "snakemake"}
    assert re.findall(r"^pfrnn (\w+)", COMMANDS, re.MULTILINE) == ["grid"]
    for path in re.findall(r"`((?:pfrnn|tests)/[\w/]+(?:\.py|/))`", PAGE):
        assert (ROOT / path).exists() or path == "pfrnn/study/train/mgu.py", path


def test_sizes_and_kinds_of_the_plan(added, monkeypatch):
    monkeypatch.setitem(variants.OWN, "mgu_e", variants.OWN["mgu"]._replace(
        name="mgu_e", label="MGU-E", kind="ensemble", single="mgu"))  # fmt: skip
    study = {"study": {"variants": ["gru", "mgu", "mgu_e"], "size_rules": ["fixed", "best"]}}
    plan = load_plan(ROOT / "params.yaml", "smoke", study)
    sizes = {
        (cell.variant, cell.size_rule): [block.hidden_size for block in cell.blocks]
        for cell in plan.cells
    }
    for rule in ("fixed", "best"):
        assert sizes["mgu", rule] == sizes["gru", rule] == sizes["mgu_e", rule]
    ids = {block.id for block in plan.blocks}
    assert len(ids) == 2 * len(set(sizes["gru", "best"]) | set(sizes["gru", "fixed"]))


class Halved(PFGRUCell):
    """A particle cell of one's own: PF-GRU on half the input."""

    def project(self, x):
        return super().project(x / 2)


def test_a_particle_filter_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.setitem(own.CELLS, "halved", Halved)
    model = variants.VARIANTS["pf_gru"]._replace(name="halved", label="Halved", own="halved")
    monkeypatch.setitem(variants.OWN, "halved", model)
    plan = toys.study({"study": {"variants": ["pf_gru", "halved"]}, "training": {"max_epochs": 1}})
    places = toys.prepared_places(plan, tmp_path)
    assert len({cell.final_id for cell in plan.cells}) == 2
    scores = []
    for cell in plan.cells:
        for block in cell.blocks:
            train_block(plan, block.id, places)
        select_cell(plan, cell.selection_id, places.results)
        run_final(plan, cell.final_id, places)
        scores.append((places.results / cell.final_id / "test.csv").read_text())
    assert scores[0] != scores[1]


def test_what_fits_no_cell_is_refused(monkeypatch):
    with pytest.raises(ConfigError, match=r"unknown own cell 'mgu' .*own.py, CELLS\); none is th"):
        own.plain_cell("gru", "mgu")
    monkeypatch.setitem(own.CELLS, "halved", Halved)
    with pytest.raises(ConfigError, match=r"unknown own cell 'halve' .*did you mean 'halved'"):
        own.particle_cell("gru", "halve")
    with pytest.raises(
        ConfigError, match=r"'halved': its variant.s kind needs a PlainCell, got Halv"
    ):
        own.plain_cell("gru", "halved")
