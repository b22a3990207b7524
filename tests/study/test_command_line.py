"""What the commands share: their options, and a cure in every refusal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pfrnn.study.cli import build_parser, main
from pfrnn.study.records import RESULT_COLUMNS

ROOT = Path(__file__).parents[2]

# As after `pip install pfrnn`: torch is there, the study's extras are not.
WITHOUT_EXTRAS = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
from pfrnn.study.cli import main
sys.exit(main({arguments!r}))
"""


@pytest.mark.parametrize(
    ("names", "arguments"),
    [
        (["pydantic", "yaml", "numpy"], ["datasets"]),
        (["pydantic"], ["--help"]),
    ],
)
def test_without_the_extras_the_cure_is_named(tmp_path, names, arguments) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS.format(names=set(names), arguments=arguments)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "pip install 'pfrnn[workflow]'" in done.stderr
    assert any(f"'{name}'" in done.stderr for name in names)
    assert "Traceback" not in done.stderr


def test_so_it_is_when_a_command_runs(monkeypatch, capsys) -> None:
    def needy(parsed):
        raise ModuleNotFoundError("No module named 'pandas'", name="pandas.core")

    monkeypatch.setattr("pfrnn.study.cli.datasets.run", needy)
    assert main(["datasets"]) == 2
    assert "'pandas'" in capsys.readouterr().err


def test_a_missing_module_of_our_own_is_no_matter_of_extras(monkeypatch) -> None:
    def broken(parsed):
        raise ModuleNotFoundError("No module named 'pfrnn.gone'", name="pfrnn.gone")

    monkeypatch.setattr("pfrnn.study.cli.datasets.run", broken)
    with pytest.raises(ModuleNotFoundError, match=r"pfrnn\.gone"):
        main(["datasets"])


@pytest.mark.parametrize("command", ["train", "final"])
@pytest.mark.parametrize("device", ["foo", "cuda:", "cuda:x", "mps"])
def test_an_unknown_device_is_a_usage_error(command, device, capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        build_parser().parse_args([command, "an/id", "--device", device])
    assert stop.value.code == 2
    assert f"expected auto, cpu, cuda or cuda:NUMBER, got '{device}'" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:1"])
def test_known_devices_are_taken_as_they_are(device) -> None:
    assert build_parser().parse_args(["train", "an/id", "--device", device]).device == device


def test_a_cuda_device_that_the_machine_lacks(monkeypatch) -> None:
    from pfrnn.errors import ConfigError
    from pfrnn.study.config import load_config
    from pfrnn.study.train.device import open_device

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    execution = load_config(ROOT / "params.yaml", "smoke").execution
    assert open_device(execution, "cuda:1").index == 1
    with pytest.raises(ConfigError, match="'cuda:2': torch sees 2 CUDA devices"):
        open_device(execution, "cuda:2")


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("foo=no such file", "unknown data set 'foo'"),
        ("mase10=no such file", "did you mean 'maze10'"),
    ],
)
def test_a_missing_set_must_be_one(missing, words, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    options = ["--tier", "smoke", "--results", str(tmp_path), "--missing", missing]
    assert main(["aggregate", *options]) == 2
    assert words in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["aggregate", "--missing", "maze10"])
    assert "expected SET=REASON, got 'maze10'" in capsys.readouterr().err


def test_a_results_folder_that_is_named_must_be_there(tmp_path, capsys) -> None:
    asked = ["report", "--tier", "smoke", "--results", str(tmp_path / "smok")]
    assert main([*asked, "--out", str(tmp_path / "out")]) == 2
    assert "no such folder; name a tier's results" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("table", [None, ",".join(RESULT_COLUMNS) + "\n"])
def test_a_report_without_results_says_so(tmp_path, capsys, table) -> None:
    results = tmp_path / "results"
    results.mkdir()
    if table is not None:
        (results / "results.csv").write_text(table)
    assert main(["report", "--tier", "smoke", "--results", str(results)]) == 0
    said = capsys.readouterr().out
    assert "so nothing has run in this report" in said
    assert "`pfrnn aggregate --tier smoke` writes it from finished jobs" in said
    assert ("no row below its header" in said) == (table is not None)


def test_a_report_needs_a_folder_that_can_be_made(tmp_path, capsys) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "results").mkdir()
    asked = ["report", "--tier", "smoke", "--results", str(tmp_path / "results")]
    assert main([*asked, "--out", str(tmp_path / "file" / "out")]) == 2
    assert "can't be made (Not a directory); name another" in capsys.readouterr().err


def test_check_needs_the_readme_that_it_is_told(tmp_path, capsys) -> None:
    assert main(["check", "--reports", str(tmp_path), "--readme", str(tmp_path / "R.md")]) == 2
    assert "R.md: no such file" in capsys.readouterr().err


def test_a_file_in_place_of_a_prepared_folder_is_refused(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    (tmp_path / "arrays").write_text("mine")
    assert main(["prepare", "maze10", "--tier", "smoke", "--out", str(tmp_path / "arrays")]) == 2
    assert "arrays: expected a folder, got a file; name another" in capsys.readouterr().err
    assert (tmp_path / "arrays").read_text() == "mine"


def test_the_readme_that_a_report_shall_write_must_be_there(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    arguments = ["--tier", "quick", "--out", str(tmp_path / "out")]
    assert main(["report", *arguments, "--readme", str(tmp_path / "none.md")]) == 2
    assert "none.md: no such file" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_interrupt_while_modules_load_is_a_sentence(monkeypatch, capsys) -> None:
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr("pfrnn.study.cli.build_parser", interrupted)
    assert main(["datasets"]) == 130
    assert capsys.readouterr().err == "pfrnn: interrupted\n"
