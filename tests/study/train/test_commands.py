"""The commands train, select, final, aggregate and grid, as a person or Snakemake calls them."""

from __future__ import annotations

import csv
import json
import shutil

import pytest
import yaml

from pfrnn.study.cli import build_parser, main
from pfrnn.study.plan import load_plan

from . import toys


@pytest.fixture
def line(tmp_path):
    """Common options, and a function that runs a command."""
    patch = {"study": {"datasets": ["maze10"], "variants": ["pf_gru"]}}
    overrides = tmp_path / "overrides.yaml"
    overrides.write_text(yaml.safe_dump(toys.SMALL | patch))
    params = f"{toys.ROOT / 'params.yaml'},{overrides}"
    plan = toys.study(patch)
    places = toys.prepared_places(plan, tmp_path)
    options = ["--tier", "smoke", "--params", params]

    def run(command: str, *arguments: str) -> int:
        more = {
            "grid": ["--prepared", str(places.prepared)],
            "train": ["--results", str(places.results), "--prepared", str(places.prepared)],
            "final": ["--results", str(places.results), "--prepared", str(places.prepared)],
        }.get(command, ["--results", str(places.results)])
        return main([command, *arguments, *options, *more])

    return run, places


def test_whole_line_by_command(line, capsys):
    run, places = line
    assert run("grid", "--json") == 0
    counts = json.loads(capsys.readouterr().out)
    assert counts["total"]["search_runs"] == 2
    for command, ids in (
        ("train", counts["block_ids"]),
        ("select", counts["selection_ids"]),
        ("final", counts["final_ids"]),
    ):
        assert len(ids) == 1
        assert run(command, *ids) == 0
    assert run("aggregate", "--strict") == 0
    with (places.results / "results.csv").open(newline="") as source:
        assert len(list(csv.DictReader(source))) == 2 * 5
    assert "validation score" in capsys.readouterr().out


def test_a_finished_job_is_not_trained_again(line, capsys, monkeypatch):
    run, places = line
    run("grid", "--json")
    (block,) = json.loads(capsys.readouterr().out)["block_ids"]
    assert run("train", f"{block}/") == 0
    assert capsys.readouterr().out == f"finished: {places.results / block}\n"
    record = (places.results / block / "run.json").read_bytes()
    assert run("train", block) == 0
    assert capsys.readouterr().out.startswith(f"finished before: {block}; to train it again, ")
    assert (places.results / block / "run.json").read_bytes() == record
    # Of other source it is trained again.
    monkeypatch.setattr("pfrnn.study.jobfolder.source_digest", lambda source: "other")
    assert run("train", block) == 0
    assert (places.results / block / "run.json").read_bytes() != record


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished line; a function that runs a command on a copy of it."""
    folder = tmp_path_factory.mktemp("done")
    patch = {"study": {"datasets": ["maze10"], "variants": ["gru"]}}
    overrides = folder / "overrides.yaml"
    overrides.write_text(yaml.safe_dump(toys.SMALL | patch))
    plan = toys.study(patch)
    places = toys.prepared_places(plan, folder)
    block, cell = plan.blocks[0], plan.cells[0]
    options = ["--tier", "smoke", "--params", f"{toys.ROOT / 'params.yaml'},{overrides}"]

    def run(results, command, *arguments):
        reads = command in ("train", "final", "report")
        more = ["--prepared", str(places.prepared)] if reads else []
        return main([command, *arguments, *options, "--results", str(results), *more])

    for command, job in (
        ("train", block.id),
        ("select", cell.selection_id),
        ("final", cell.final_id),
    ):
        assert run(places.results, command, job) == 0
    assert run(places.results, "aggregate") == 0
    return run, places.results, block, cell


# The file, the command that reads it, and the command that its message must name.
READ = {
    "a block's record": ("{block}/run.json", "select", "damaged"),
    "a block's members": ("{block}/members.csv", "select", "`pfrnn train {block}`"),
    "a selection": ("{selection}", "final", "`pfrnn select {selection} --tier smoke --params "),
    "a block's states": ("{block}/best.pt", "final", "`pfrnn train {block}`"),
    "a final's record": ("{final}/run.json", "report", "damaged"),
    "a final's scores": ("{final}/test.csv", "aggregate", "`pfrnn final {final}`"),
    "a final's history": ("{final}/history.csv", "aggregate", "`pfrnn final {final}`"),
    "a final's history in a report": ("{final}/history.csv", "report", "`pfrnn final {final}`"),
    "a final's members": ("{final}/members.csv", "report", "`pfrnn final {final}`"),
    "a final's selection": ("{selection}", "report", "`pfrnn select {selection}`"),
}


@pytest.mark.parametrize("damage", ["empty", "cut"])
@pytest.mark.parametrize("what", READ)
def test_a_damaged_file_is_named_with_its_cure(done, what, damage, tmp_path, capsys):
    run, whole, block, cell = done
    results = tmp_path / "results"
    shutil.copytree(whole, results)
    ids = {"block": block.id, "selection": cell.selection_id, "final": cell.final_id}
    name, command, cure = (text.format(**ids) for text in READ[what])
    path = results / name
    path.write_bytes(path.read_bytes()[:-20] if damage == "cut" else b"")
    if command == "final":
        shutil.rmtree(results / cell.final_id)
    arguments = {"select": [cell.selection_id], "final": [cell.final_id]}.get(command, [])
    capsys.readouterr()
    assert run(results, command, *arguments) == 1
    told = capsys.readouterr().err.splitlines()[-1]
    assert str(path) in told
    assert cure in told
    # Nothing was trained or written on the way.
    assert not (results / "report" / "index.html").exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [("learning_rate", 0.05), ("hidden_size", 99), ("block_id", "search/maze10/lstm/h1-k0-b1-0")],
)
def test_a_selection_of_what_was_never_searched_is_refused(done, field, value, tmp_path, capsys):
    run, whole, _, cell = done
    results = tmp_path / "results"
    shutil.copytree(whole, results)
    path = results / cell.selection_id
    selection = json.loads(path.read_text(encoding="utf-8"))
    selection["chosen"][field] = value
    path.write_text(json.dumps(selection), encoding="utf-8")
    capsys.readouterr()
    assert run(results, "final", cell.final_id) == 1
    told = capsys.readouterr().err.splitlines()[-1]
    assert str(value) in told
    assert f"`pfrnn select {cell.selection_id} --tier smoke --params " in told


def test_an_absent_final_that_cells_share_is_named_once(line, tmp_path, capsys):
    run, places = line
    more = tmp_path / "more.yaml"
    more.write_text("study: {variants: [pf_gru, pf_lstm, pf_lstm_paper]}\n")
    params = f"{toys.ROOT / 'params.yaml'},{tmp_path / 'overrides.yaml'},{more}"
    assert run("aggregate", "--missing", "maze10=no file") == 0
    plan = load_plan(params, "smoke")
    for command, ids in (
        ("train", [block.id for block in plan.blocks if block.variant == "pf_gru"]),
        ("select", [c.selection_id for c in plan.cells if c.variant == "pf_gru"]),
        ("final", [c.final_id for c in plan.cells if c.variant == "pf_gru"]),
    ):
        assert run(command, *ids) == 0
    capsys.readouterr()
    line = ["--tier", "smoke", "--params", params, "--results", str(places.results)]
    assert main(["aggregate", *line]) == 0
    shared = next(cell.final_id for cell in plan.cells if cell.variant == "pf_lstm_paper")
    assert capsys.readouterr().err == f"absent: {shared}\n"


def test_absent_finals_are_named_and_an_error_when_strict(line, capsys):
    run, _ = line
    assert run("aggregate") == 1
    assert "no finished final" in capsys.readouterr().err
    assert run("aggregate", "--missing", "maze10=no such file") == 0


def test_finished_finals_outside_the_plan_are_named(done, tmp_path, capsys):
    """As an own model's are for the command that doesn't name its study's file."""
    run, whole, _, cell = done
    results = tmp_path / "results"
    shutil.copytree(whole, results)
    capsys.readouterr()
    assert run(results, "aggregate") == 0
    assert "left out" not in capsys.readouterr().err
    table = (results / "results.csv").read_bytes()
    other = cell.final_id.replace("gru", "mgu")
    shutil.copytree(results / cell.final_id, results / other)
    assert run(results, "aggregate") == 0
    told = capsys.readouterr().err
    assert f"left out: {other}\n" in told
    assert "--params params.yaml,FILE" in told
    assert (results / "results.csv").read_bytes() == table
    shutil.rmtree(results / cell.final_id)
    assert run(results, "aggregate") == 1
    assert f"1 are here that the plan doesn't hold, {other} for one" in capsys.readouterr().err


def test_finished_finals_of_a_missing_set_are_named(done, tmp_path, capsys):
    run, whole, *_ = done
    results = tmp_path / "results"
    shutil.copytree(whole, results)
    capsys.readouterr()
    assert run(results, "aggregate", "--missing", "maze10=no such file") == 0
    assert "left out: 1 finished finals of maze10 (--missing)" in capsys.readouterr().err


def test_unknown_id_is_a_usage_error_that_names_the_nearest(line, capsys):
    run, _ = line
    assert run("train", "search/maze10/pf_gru/h5-k4-b16-0000000000") == 2
    assert "the nearest is search/maze10/pf_gru/h5-k4-b16-" in capsys.readouterr().err


def test_order_of_the_line_is_explained(line, capsys):
    run, _ = line
    run("grid", "--json")
    counts = json.loads(capsys.readouterr().out)
    assert run("final", counts["final_ids"][0]) == 1
    assert "run `pfrnn select" in capsys.readouterr().err
    assert run("select", counts["selection_ids"][0]) == 1
    assert "has not finished" in capsys.readouterr().err


def test_data_of_another_protocol_in_the_plans_folder_are_refused(line, capsys):
    """Put there by hand, they would be another set under this one's name."""
    run, places = line
    run("grid", "--json")
    (block,) = json.loads(capsys.readouterr().out)["block_ids"]
    (path,) = places.prepared.glob("maze10-*/card.json")
    card = json.loads(path.read_text())
    path.write_text(json.dumps(card | {"protocol_digest": "0123456789"}))
    assert run("train", block) != 0
    told = capsys.readouterr().err
    assert "holds maze10-0123456789" in told
    assert "pfrnn prepare" in told


@pytest.mark.parametrize("command", ["train", "select", "final", "aggregate", "grid"])
def test_help_has_an_example(command, capsys):
    with pytest.raises(SystemExit) as stop:
        build_parser().parse_args([command, "--help"])
    assert stop.value.code == 0
    assert f"Example: pfrnn {command}" in capsys.readouterr().out


def test_table_of_the_grid_is_readable(line, capsys):
    run, _ = line
    assert run("grid") == 0
    out = capsys.readouterr().out
    assert "maze10" in out
    assert "total" in out
    assert "hours" in out.lower()


def test_cuda_without_a_gpu_is_a_configuration_error(line, capsys, monkeypatch):
    run, _ = line
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    run("grid", "--json")
    block = json.loads(capsys.readouterr().out)["block_ids"][0]
    assert run("train", block, "--device", "cuda") == 2
    assert "torch sees no CUDA device" in capsys.readouterr().err
