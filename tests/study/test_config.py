from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from pfrnn.errors import ConfigError
from pfrnn.study.config import TIERS, Config, load_config, merge
from pfrnn.study.data.registry import dataset
from pfrnn.study.plan import load_plan, shipped_protocols

ROOT = Path(__file__).parents[2]


@pytest.fixture
def params(tmp_path: Path) -> Path:
    """A copy of params.yaml with its tiers, to be changed by a test."""
    shutil.copytree(ROOT / "workflow" / "tiers", tmp_path / "workflow" / "tiers")
    shutil.copy(ROOT / "params.yaml", tmp_path)
    return tmp_path / "params.yaml"


@pytest.mark.parametrize("tier", TIERS)
def test_every_tier_is_valid(tier: str) -> None:
    assert load_config(ROOT / "params.yaml", tier).tier == tier


def test_the_base_file_names_the_default_tier(params: Path) -> None:
    assert load_config(params).tier == "gpu"


def test_a_tier_lies_over_the_base_and_overrides_over_the_tier(params: Path) -> None:
    smoke = load_config(params, "smoke")
    assert smoke.training.max_epochs == 2
    assert smoke.training.rmsprop_decay == load_config(params, "paper").training.rmsprop_decay
    changed = load_config(params, "smoke", {"training": {"max_epochs": 7}})
    assert (changed.training.max_epochs, changed.training.patience) == (7, smoke.training.patience)


def test_further_files_lie_over_the_tier_in_turn(params: Path) -> None:
    for name, epochs in (("one", 5), ("two", 6)):
        path = params.parent / f"{name}.yaml"
        path.write_text(f"training: {{max_epochs: {epochs}}}\n")
    one, two = params.parent / "one.yaml", params.parent / "two.yaml"
    assert load_config(f"{params},{one}", "smoke").training.max_epochs == 5
    assert load_config(f"{params},{one},{two}", "smoke").training.max_epochs == 6


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"trainig": {}}, ["trainig", "did you mean 'training'"]),
        ({"training": {"patiens": 3}}, ["training.patiens", "did you mean 'patience'"]),
        ({"sizes": {"other": {"pff": 3}}}, ["sizes.other.pff", "did you mean 'pf'"]),
        ({"loss": {"zzz": 3}}, ["loss.zzz", "known keys: prediction, beta"]),
        ({"training": {"patience": 0}}, ["training.patience", "got 0"]),
        ({"training": {"patience": "many"}}, ["training.patience", "'many'"]),
        ({"filter": {"alpha": 1.5}}, ["filter.alpha", "1.5"]),
        ({"filter": {"alpha": float("nan")}}, ["filter.alpha"]),
        ({"filter": {"resampling": "hard"}}, ["filter.resampling", "'hard'"]),
        ({"grid": {"learning_rate": []}}, ["grid.learning_rate"]),
        ({"study": {"size_rules": ["largest"]}}, ["study.size_rules.0", "'largest'"]),
        ({"study": {"variants": []}}, ["study.variants", "at least 1 item"]),
        ({"study": {"datasets": []}}, ["study.datasets", "at least 1 item"]),
        ({"sizes": {"best": {"pf": []}}}, ["sizes.best.pf", "at least 1 item"]),
        ({"grid": {"batch_size": [32, 0]}}, ["grid.batch_size.1", "got 0"]),
        # Its rows would count twice, and every interval be too narrow.
        ({"study": {"datasets": ["air", "air"]}}, ["study.datasets", "each value once", "air"]),
        ({"study": {"variants": ["gru", "lstm", "gru"]}}, ["study.variants", "got gru more than"]),
        ({"study": {"size_rules": ["fixed", "fixed"]}}, ["study.size_rules", "each value once"]),
        ({"grid": {"learning_rate": [1e-3, 1e-3]}}, ["grid.learning_rate", "0.001 more than once"]),
        ({"sizes": {"best": {"pf": [8, 8]}}}, ["sizes.best.pf", "each value once"]),
        ({"grid": {"clip": [0.0]}}, ["grid.clip.0", "greater than 0"]),
        # What pydantic would convert without a word.
        ({"training": {"patience": True}}, ["training.patience: expected a number", "True"]),
        ({"training": {"patience": "3"}}, ["training.patience: expected a whole number", "'3'"]),
        ({"training": {"patience": 3.0}}, ["training.patience: expected a whole number"]),
        ({"grid": {"batch_size": [True]}}, ["grid.batch_size: expected a number", "[True]"]),
        ({"filter": {"alpha": True}}, ["filter.alpha: expected a number", "True"]),
    ],
)
def test_a_wrong_value_is_named(params: Path, patch: dict[str, object], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(params, "smoke", patch)
    for word in words:
        assert word in str(caught.value)


def test_text_is_read_as_a_number_where_yaml_takes_a_number_for_text(params: Path) -> None:
    assert yaml.safe_load("1e-4") == "1e-4"
    config = load_config(params, "smoke", {"grid": {"learning_rate": ["1e-4"]}})
    assert config.grid.learning_rate == (1e-4,)


def test_a_fault_is_reported_under_the_file_that_has_it(params: Path) -> None:
    mine, tier = params.parent / "mine.yaml", params.parent / "workflow" / "tiers" / "smoke.yaml"
    mine.write_text("training: {patiens: 1, patience: 0}\n")
    tier.write_text(tier.read_text() + "filtr: {}\n")
    text = params.read_text()
    params.write_text(text.replace("  bptt: 100", "  bpt: 100"))
    with pytest.raises(ConfigError) as caught:
        load_config(f"{params},{mine}", "smoke", {"loss": {"beta": -1}}, "the command line")
    parts = {part.split(":\n")[0]: part for part in str(caught.value).split("\n/")}
    named = {key.lstrip("/"): part for key, part in parts.items()}
    assert "training.patiens: unknown key" in named[str(mine).lstrip("/")]
    assert "training.patience: " in named[str(mine).lstrip("/")]
    assert "filtr: unknown key; did you mean 'filter'" in named[str(tier).lstrip("/")]
    assert "training.bpt: unknown key" in named[str(params).lstrip("/")]
    assert "the command line:\n  loss.beta: " in str(caught.value)


def test_a_key_that_stands_twice_is_refused_with_its_lines(params: Path) -> None:
    mine = params.parent / "mine.yaml"
    mine.write_text("seed: 1\ntraining:\n  patience: 3\n  bptt: 5\n  patience: 4\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml: line 5: the key 'patience' .* in line 3"):
        load_config(f"{params},{mine}", "smoke")
    mine.write_text("base: &base {patience: 3}\ntraining: {<<: *base, patience: 4}\n")
    with pytest.raises(ConfigError, match="base: unknown key"):  # not twice: YAML's own merging
        load_config(f"{params},{mine}", "smoke")


def test_a_tier_named_by_a_file_on_top(params: Path) -> None:
    """As Snakemake: --configfile's tier wins over params.yaml's, --config's over both."""
    mine = params.parent / "mine.yaml"
    mine.write_text("tier: smoke\n")
    assert load_config(params).tier == "gpu"
    smoke = load_config(f"{params},{mine}")
    assert (smoke.tier, smoke.training.max_epochs) == ("smoke", 2)
    assert load_config(f"{params},{mine}", "quick").tier == "quick"
    assert load_config(params, overrides={"tier": "quick"}).tier == "quick"
    mine.write_text("tier: smok\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml: tier: expected one of smoke, .*got 'smok'"):
        load_config(f"{params},{mine}")
    tier = params.parent / "workflow" / "tiers" / "smoke.yaml"
    tier.write_text("tier: gpu\n")
    with pytest.raises(ConfigError, match=r"smoke\.yaml: tier: the file's name says it"):
        load_config(params, "smoke")


def test_all_faults_are_reported_at_once(params: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(params, "smoke", {"one": 1, "loss": {"two": 2}})
    assert "one: unknown key" in str(caught.value)
    assert "loss.two: unknown key" in str(caught.value)


def test_the_defaults_are_what_params_yaml_ships(params: Path) -> None:
    shipped = yaml.safe_load(params.read_text())
    default = Config().model_dump(mode="json")
    assert Config.model_validate(shipped).model_dump(mode="json") == default | {
        "datasets": shipped["datasets"]
    }
    for name, protocol in shipped_protocols().items():
        given = dataset(name).protocol.model_validate(shipped["datasets"].get(name, {}))
        assert given.model_dump(mode="json") == protocol


@pytest.mark.parametrize(
    ("tier", "old", "new", "name"),
    [
        ("gpu", "max_epochs: 200", "max_epochs: 777", "training.max_epochs: 777"),
        ("smoke", "max_epochs: 200", "max_epochs: 777", "training.max_epochs: 777"),
        ("gpu", "variants: [lstm, gru, pf_lstm, pf_gru]", "variants: [gru]", "study.variants: "),
        ("quick", "    steps: 80", "    steps: 70", "datasets.maze10.steps: 70"),
    ],
)
def test_a_changed_value_that_the_tier_replaces_is_an_error(
    params: Path, tier: str, old: str, new: str, name: str
) -> None:
    load_plan(params, tier)
    params.write_text(params.read_text().replace(old, new, 1))
    with pytest.raises(ConfigError, match=re.escape(name)) as caught:
        load_plan(params, tier)
    assert f"workflow/tiers/{tier}.yaml has " in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"a: [1", "not valid YAML"),
        (b"- 1\n", "expected a mapping at the top, got list"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_file_that_is_not_a_mapping(params: Path, text: bytes, words: str) -> None:
    params.write_bytes(text)
    with pytest.raises(ConfigError, match=words):
        load_config(params, "smoke")


def test_an_unknown_tier_and_a_missing_file(params: Path) -> None:
    with pytest.raises(ConfigError, match=r"tier: expected one of smoke, .*got 'huge'"):
        load_config(params, "huge")
    with pytest.raises(ConfigError, match=r"nothing.yaml: no such file; expected the base file"):
        load_config(params.parent / "nothing.yaml")
    with pytest.raises(ConfigError, match=r"nothing.yaml: no such file; name one that is there"):
        load_config(f"{params},{params.parent / 'nothing.yaml'}", "smoke")
    with pytest.raises(ConfigError, match="a folder; expected a YAML file"):
        load_config(params.parent)


def test_a_parameter_file_that_lies_elsewhere(
    params: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place of the command isn't at fault, and the message doesn't say so."""
    mine = tmp_path / "elsewhere" / "mine.yaml"
    mine.parent.mkdir()
    mine.write_text("seed: 3\n")
    cure = f"over the repository's parameters, write --params params.yaml,{mine}"
    told = {
        "smoke": "smoke.yaml: no such file; the tiers' files lie in",
        None: "names none; to lay",
    }
    for tier, words in told.items():
        with pytest.raises(ConfigError, match=words) as caught:
            load_config(mine, tier)
        assert str(caught.value).endswith(cure)
        assert "run from" not in str(caught.value)
    # As the message says.
    assert load_config(f"{params},{mine}", "smoke").seed == 3
    # Without any file named, it is the place.
    monkeypatch.chdir(mine.parent)
    with pytest.raises(ConfigError, match=r"^params.yaml: no such file; run from the repository"):
        load_config(tier="smoke")


def test_overrides_of_a_data_set_go_through_the_same_models(params: Path) -> None:
    config = load_config(params, "smoke", {"overrides": {"air": {"training": {"patience": 9}}}})
    assert config.for_dataset("air").training.patience == 9
    assert config.for_dataset("air").training.max_epochs == config.training.max_epochs
    assert config.for_dataset("maze10") is config
    wrong = load_config(params, "smoke", {"overrides": {"air": {"training": {"patienc": 9}}}})
    with pytest.raises(ConfigError, match=r"overrides\.air:\s+training\.patienc: unknown key"):
        wrong.for_dataset("air")


def test_a_configuration_is_frozen() -> None:
    config = load_config(ROOT / "params.yaml", "smoke")
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 1  # type: ignore[misc]
    assert isinstance(config, Config)


def test_merge_replaces_lists_whole_and_mappings_by_key() -> None:
    base = {"a": {"x": 1, "y": [1, 2]}, "b": 1}
    assert merge(base, {"a": {"y": [3]}}) == {"a": {"x": 1, "y": [3]}, "b": 1}
    assert merge(base, {"a": 5}) == {"a": 5, "b": 1}
    assert base == {"a": {"x": 1, "y": [1, 2]}, "b": 1}
