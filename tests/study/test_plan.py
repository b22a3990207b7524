"""The plan against the paper's own arithmetic, on invented data sets of the paper's names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pfrnn.study.plan
import pfrnn.study.workload
from pfrnn.errors import ConfigError
from pfrnn.study.cli.grid import grid_counts
from pfrnn.study.config import load_config, merge
from pfrnn.study.data.base import Card, Dataset, Protocol
from pfrnn.study.plan import Plan, load_plan, make_plan
from pfrnn.study.variants import VARIANTS, variant
from pfrnn.study.workload import Sizes, dataset_sizes, describe, workload

ROOT = Path(__file__).parents[2]
SETS = "maze10 maze18 maze27 nasdaq aep air pm lpa arem gas uid mr r52".split()


class Windowed(Protocol):
    window: int = 10


def _nothing(*_: Any) -> Any:
    raise NotImplementedError


def _dataset(name: str) -> Dataset:
    if name not in SETS:
        raise ConfigError(f"unknown data set {name!r}")
    task = "localization" if name.startswith("maze") else "regression"
    card = Card(name, "", task, "", "", "", True, 1000, "", "", "rmse")  # type: ignore[arg-type]
    return Dataset(card, Windowed, _nothing)


@pytest.fixture(autouse=True)
def _sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pfrnn.study.plan, "dataset", _dataset)
    monkeypatch.setattr(pfrnn.study.workload, "dataset", _dataset)
    monkeypatch.setattr(
        pfrnn.study.plan, "protocol", lambda name, values: _dataset(name).protocol(**values)
    )


PAPER = {
    "study": {"datasets": SETS, "variants": list(VARIANTS), "size_rules": ["fixed", "best"]},
}


def plan_of(overrides: dict[str, Any], tier: str = "paper") -> Plan:
    config = load_config(ROOT / "params.yaml", tier, merge(PAPER, overrides))
    # The invented sets have protocols of their own.
    own = {"datasets": overrides.get("datasets", {}), "overrides": overrides.get("overrides", {})}
    return make_plan(config.model_copy(update=own), "params.yaml")


def ids(plan: Plan) -> set[str]:
    return {block.id for block in plan.blocks}


def test_the_papers_grid_has_the_size_derived_from_its_text() -> None:
    """Fixed sizes 64/80/86 are listed among the searched ones, so `fixed` lies inside `best`."""
    plan = plan_of({})
    points = 3 * 2 * 2
    blocks_of_a_set = 2 * 3 * 6 + 2 * 3 * 6 + 2 * 3 + 3 * 8
    assert len(plan.blocks) == 13 * blocks_of_a_set == 1326
    assert sum(len(block.settings) for block in plan.blocks) == 1326 * points == 15912
    # 18 variants at fixed size and four at the best.
    assert len(plan.cells) == 13 * (len(VARIANTS) + 4)


def test_matched_sizes_replace_the_printed_ones_at_the_fixed_size_only() -> None:
    printed, matched = plan_of({}), plan_of({"sizes": {"parity": "matched"}})
    for before, after in zip(printed.cells, matched.cells, strict=True):
        sizes = {block.hidden_size for block in after.blocks}
        if variant(before.variant).kind == "particle" or before.size_rule == "best":
            assert before == after
        else:
            cell = variant(before.variant).cell
            assert sizes == {74 if cell == "lstm" else 78}


def test_grid_command_prints_the_papers_counts() -> None:
    counts = grid_counts(plan_of({}), dict.fromkeys(SETS, Sizes(1000, 100, 100, 50)))
    assert counts["grid_points"] == {"fixed": [36], "best": [216]}
    total = counts["total"]
    assert (total["search_runs"], total["search_blocks"]) == (15912, 1326)
    # 247 finals of 6 repetitions, and 26 ensembles of 30 or 20 members.
    assert total["blocks"] == 1326 + 247 + 26 == 1599
    assert total["final_runs"] == 247 * 6 + 2 * (3 * 30 + 10 * 20) == 1482 + 580
    assert total["runs"] == 17974
    parts = counts["datasets"].values()
    assert sum(part["blocks"] for part in parts) == 1599
    assert sum(part["steps"] for part in parts) == total["steps"]


def test_variants_that_fix_only_the_particles_share_the_main_variants_blocks() -> None:
    plan = plan_of({})
    blocks = {(cell.dataset, cell.variant, cell.size_rule): set(cell.blocks) for cell in plan.cells}
    # maze: K = 30 is the fixed number there; elsewhere it is 20.
    assert blocks["maze10", "pf_lstm_p30", "fixed"] == blocks["maze10", "pf_lstm", "fixed"]
    assert blocks["air", "pf_lstm_p20", "fixed"] == blocks["air", "pf_lstm", "fixed"]
    assert blocks["air", "pf_lstm_p30", "fixed"] < blocks["air", "pf_lstm", "best"]
    assert blocks["air", "lstm_ensemble", "fixed"] == blocks["air", "lstm", "fixed"]
    assert not blocks["air", "pf_lstm_noelbo", "fixed"] & blocks["air", "pf_lstm", "best"]


def test_ids_are_unique_and_found_again() -> None:
    plan = plan_of({})
    assert len(ids(plan)) == len(plan.blocks)
    for block in plan.blocks[::97]:
        assert plan.block(block.id) == block
    for cell in plan.cells[::31]:
        assert plan.cell(cell.final_id) == plan.cell(cell.selection_id) == cell
    # P20 and P30 are the main variant at one of its two numbers of particles: on each set one of
    # them shares the main variant's final.
    assert len({cell.final_id for cell in plan.cells}) == len(plan.cells) - 13 == 273
    for cell in plan.cells:
        found = plan.cell(cell.final_id)
        assert found.blocks == cell.blocks
        assert found.digest == cell.digest
    with pytest.raises(KeyError):
        plan.block("search/air/lstm/h1-k0-b1-0000000000")


@pytest.mark.parametrize(
    "change",
    [
        {"training": {"patience": 21}},
        {"network": {"dropout": 0.1}},
        {"loss": {"beta": 0.5}},
        {"seed": 1},
        {"grid": {"learning_rate": [1e-4]}},
    ],
)
def test_a_parameter_of_all_models_changes_every_block(change: dict[str, Any]) -> None:
    assert not ids(plan_of({})) & ids(plan_of(change))


@pytest.mark.parametrize(
    ("change", "affected"),
    [
        ({"filter": {"alpha": 0.4}}, lambda block: VARIANTS[block.variant].batch_norm_relu
         or VARIANTS[block.variant].kind == "particle"),
        ({"execution": {"precision": "ieee"}},
         lambda block: VARIANTS[block.variant].kind == "particle"),
        ({"bayesian": {"prior_pi": 0.5}}, lambda block: block.variant.startswith("bayes")),
        ({"datasets": {"air": {"window": 11}}}, lambda block: block.dataset == "air"),
        ({"overrides": {"pm": {"training": {"patience": 5}}}}, lambda block: block.dataset == "pm"),
    ],
)  # fmt: skip
def test_a_parameter_of_some_models_changes_theirs_alone(
    change: dict[str, Any], affected: Any
) -> None:
    before, after = plan_of({}), plan_of(change)
    stay = ids(before) & ids(after)
    assert stay == {block.id for block in before.blocks if not affected(block)}
    assert len(stay) < len(ids(before))


@pytest.mark.parametrize(
    "change",
    [
        {"execution": {"threads": 7, "device": "cpu", "checkpoint_minutes": 1}},
        {"evaluation": {"confidence": 0.9, "bootstrap": 500}},
    ],
)
def test_how_jobs_run_and_how_intervals_are_drawn_change_no_path(change: dict[str, Any]) -> None:
    before, after = plan_of({}), plan_of(change)
    assert before.cells == after.cells


def test_repetitions_change_finals_and_not_blocks() -> None:
    before, after = plan_of({}), plan_of({"evaluation": {"repetitions": 7}})
    assert ids(before) == ids(after)
    assert not {cell.final_id for cell in before.cells} & {cell.final_id for cell in after.cells}


def test_protocols_are_validated_and_sets_are_known() -> None:
    with pytest.raises(ConfigError, match="unknown data set 'airr'"):
        plan_of({"study": {"datasets": ["airr"]}})
    with pytest.raises(ConfigError, match="unknown variant 'lstmm'"):
        plan_of({"study": {"variants": ["lstmm"]}})


def test_workload_counts_by_hand(tmp_path: Path) -> None:
    plan = plan_of(
        {
            "study": {"datasets": ["air"], "variants": ["lstm"], "size_rules": ["fixed"]},
            "grid": {"batch_size": [32, 64]},
            "training": {"max_epochs": 10},
            "evaluation": {"repetitions": 6},
            "execution": {"steps_per_second": 5},
        }
    )
    load = workload(plan, {"air": Sizes(train=1000, validation=80, test=80, steps=48)})
    steps = 10 * (32 + 16) + 10 * 32
    assert load == (2, 1, 2 * 12 + 6, steps, pytest.approx(steps / 5 / 3600))
    sizes = dataset_sizes(plan, tmp_path)
    # Not prepared: a window at every row that the publisher states.
    assert sizes == {"air": Sizes(1000, 250, 250, 10)}
    assert "2 blocks, 1 finals, 30 runs, at most 800 steps; at 5 steps" in describe(plan)


def test_workload_takes_the_prepared_cards_count(tmp_path: Path) -> None:
    plan = plan_of({"study": {"datasets": ["air", "pm"]}})
    card = tmp_path / plan.prepared_id("air") / "card.json"
    card.parent.mkdir()
    card.write_text('{"sequences": {"train": 77, "validation": 8, "test": 9}, "max_length": 48}')
    assert dataset_sizes(plan, tmp_path)["air"] == (77, 8, 9, 48)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"datasets": {"airr": {"window": 3}}},
            "datasets.airr: unknown data set; did you mean 'air'",
        ),
        (
            {"overrides": {"nope": {"training": {"patience": 3}}}},
            "overrides.nope: unknown data set",
        ),
    ],
)
def test_a_section_for_no_data_set_is_refused(values: dict[str, Any], said: str) -> None:
    """It would change nothing, silently."""
    with pytest.raises(ConfigError, match=said):
        load_plan(ROOT / "params.yaml", "smoke", values)
