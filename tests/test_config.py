from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from pfrnn.config import TIERS, Config, load_config, merge
from pfrnn.errors import ConfigError

ROOT = Path(__file__).parents[1]


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
    ],
)
def test_a_wrong_value_is_named(params: Path, patch: dict[str, object], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(params, "smoke", patch)
    for word in words:
        assert word in str(caught.value)


def test_all_faults_are_reported_at_once(params: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(params, "smoke", {"one": 1, "loss": {"two": 2}})
    assert "one: unknown key" in str(caught.value)
    assert "loss.two: unknown key" in str(caught.value)


def test_a_missing_key_is_named(params: Path) -> None:
    values = yaml.safe_load(params.read_text())
    del values["loss"]["beta"]
    params.write_text(yaml.safe_dump(values))
    with pytest.raises(ConfigError, match=r"loss\.beta: missing"):
        load_config(params, "smoke")


@pytest.mark.parametrize(
    ("text", "words"),
    [("a: [1", "not valid YAML"), ("- 1\n", "expected a mapping at the top, got list")],
)
def test_a_file_that_is_not_a_mapping(params: Path, text: str, words: str) -> None:
    params.write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_config(params, "smoke")


def test_an_unknown_tier_and_a_missing_file(params: Path) -> None:
    with pytest.raises(ConfigError, match=r"tier: expected one of smoke, .*got 'huge'"):
        load_config(params, "huge")
    with pytest.raises(ConfigError, match="no such file"):
        load_config(params.parent / "nothing.yaml")


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
