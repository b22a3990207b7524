"""PF-LSTM between the paper's text and the authors' release: rows, their plan, their hours."""

from __future__ import annotations

from typing import Any

import pytest

from pfrnn.kernels.dispatch import _switch_refusal
from pfrnn.nn.options import PRESETS
from pfrnn.study.cli.grid import FIDELITY_LINE, grid_counts
from pfrnn.study.config import Config, load_config
from pfrnn.study.files import digest_of
from pfrnn.study.plan import Plan, block_parameters, cell_parameters, load_plan
from pfrnn.study.track.attachments import planned_tags
from pfrnn.study.train.loss import LossWeights, loss_weights
from pfrnn.study.train.spec import filter_options
from pfrnn.study.variants import DROPOUT, FIDELITY, MOVES, VARIANTS, Variant, variant
from pfrnn.study.workload import dataset_sizes, kernels_run, workload

ROWS = list(FIDELITY)
FILTERS = [name for name, model in (VARIANTS | FIDELITY).items() if model.kind == "particle"]
FAMILY = {"study": {"datasets": ["maze10"], "variants": ["pf_lstm", *ROWS]}}


def plan_of(*patches: dict[str, Any], tier: str = "quick") -> Plan:
    from pfrnn.study.config import merge

    values: dict[str, Any] = FAMILY
    for patch in patches:
        values = merge(values, patch)
    return load_plan("params.yaml", tier, values)


def trained_as(config: Config, model: Variant) -> tuple[dict[str, Any], LossWeights, float]:
    """What a row's network, loss and dropout come to, in the places where training reads them."""
    own = config.for_variant(model)
    options = filter_options(own, model, 9)._asdict()
    return options, loss_weights(own.loss, model, own.filter.fidelity), own.network.dropout


def differing(one: Any, other: Any) -> set[str]:
    """Names of what differs between two rows."""
    options = {key for key in one[0] if one[0][key] != other[0][key]}
    loss = {key for key in ("release", "decay") if getattr(one[1], key) != getattr(other[1], key)}
    return options | loss | ({"dropout"} if one[2] != other[2] else set())


MOVED = {
    "loss": {"release", "decay"},
    "time_weights": {"decay"},
    "sums": {"release"},
}


@pytest.mark.parametrize("fidelity", ["paper", "authors_code"])
def test_each_row_moves_its_switch_and_nothing_else(fidelity: str) -> None:
    """Whatever the configuration's own fidelity is."""
    mine = {"filter": {"fidelity": fidelity, "switches": {"activation": "leaky_relu"}}}
    config = load_config("params.yaml", "quick", mine)
    text = trained_as(config, variant("pf_lstm_paper"))
    release = trained_as(config, variant("pf_lstm_release"))
    # Two members of the options aren't PF-LSTM's fidelity: gru_noise is PF-GRU's.
    everything = {move.switch for move in MOVES} - set(MOVED) | {"release", "decay", "gru_noise"}
    assert differing(text, release) == everything
    for move in MOVES:
        moved = trained_as(config, variant(f"pf_lstm_paper_{move.switch}"))
        assert differing(text, moved) == MOVED.get(move.switch, {move.switch})
        # To the release's very value.
        assert differing(release, moved) == everything - differing(text, moved)
        if move.back:
            back = trained_as(config, variant(f"pf_lstm_release_{move.switch}"))
            assert differing(release, back) == MOVED.get(move.switch, {move.switch})
            assert differing(text, back) == everything - differing(release, back)


def test_the_switches_values_are_those_of_the_presets() -> None:
    for move in MOVES:
        if move.switch in PRESETS["paper"]._fields:
            paper, release = (getattr(preset, move.switch) for preset in PRESETS.values())
            assert (move.paper, move.release) == ("none" if paper is None else paper, release)
    moved = {move.switch for move in MOVES}
    presets = zip(*(preset._asdict().items() for preset in PRESETS.values()), strict=True)
    assert {a[0] for a, b in presets if a != b} - moved == {"gru_noise"}
    assert float(next(m for m in MOVES if m.switch == "dropout").release) == DROPOUT


def test_names_are_apart_from_the_papers_variants() -> None:
    assert not set(FIDELITY) & set(VARIANTS)
    assert len({model.label for model in (VARIANTS | FIDELITY).values()}) == 18 + 14


# Recorded before the family was there: its coming may not ask for anybody's training again.
KNOWN = {
    "quick": (
        "search/maze10/lstm/h40-k0-b32-d337db6dce",
        "search/maze10/pf_lstm/h32-k10-b32-0da85c031c",
        "search/maze10/pf_gru/h32-k10-b32-bc2727d112",
        "final/maze10/lstm-fixed-3e8b3cc308",
        "final/maze10/pf_lstm-fixed-a96596e287",
    ),
    "gpu": (
        "search/maze10/lstm/h80-k0-b64-d448b20a94",
        "search/maze10/pf_lstm/h64-k30-b64-b6e8a446da",
        "search/maze10/bayes_lstm/h80-k0-b64-ed40269a57",
        "search/maze10/pf_lstm_noelbo/h64-k30-b64-a1251668c5",
        "final/maze10/pf_lstm-fixed-5a270f7cb3",
        "final/maze10/bayes_gru-fixed-7a784b1d3c",
    ),
}


@pytest.mark.parametrize("tier", KNOWN)
def test_the_other_variants_ids_are_what_they_were(tier: str) -> None:
    plan = load_plan("params.yaml", tier)
    ids = {block.id for block in plan.blocks} | {cell.final_id for cell in plan.cells}
    assert set(KNOWN[tier]) <= ids


def shared_with_main(plan: Plan) -> set[str]:
    main = next(cell for cell in plan.cells if cell.variant == "pf_lstm")
    return {
        cell.variant
        for cell in plan.cells
        if (cell.final_id, cell.blocks) == (main.final_id, main.blocks)
    } - {"pf_lstm"}


@pytest.mark.parametrize(
    ("change", "shares"),
    [
        ({}, {"pf_lstm_paper"}),
        ({"loss": {"reduction": "paper"}}, {"pf_lstm_paper"}),
        ({"loss": {"reduction": "authors_code"}}, {"pf_lstm_paper_loss"}),
        ({"filter": {"switches": {"batch_norm": "particle_slot"}}}, {"pf_lstm_paper_batch_norm"}),
        # Dropout is the tier's own where a row doesn't move it.
        ({"filter": {"fidelity": "authors_code"}}, {"pf_lstm_release_dropout"}),
        (
            {"filter": {"fidelity": "authors_code"}, "network": {"dropout": 0.5}},
            {"pf_lstm_release", "pf_lstm_release_dropout"},
        ),
    ],
)
def test_a_row_that_is_the_main_variant_shares_its_training(
    change: dict[str, Any], shares: set[str]
) -> None:
    plan = plan_of(change)
    assert shared_with_main(plan) == shares
    others = {c.variant: c.final_id for c in plan.cells if c.variant not in {"pf_lstm", *shares}}
    # With dropout in the tier, a row without it is another's twin; else all are apart.
    assert len(set(others.values())) == len(others)
    for cell in plan.cells:
        assert digest_of(cell_parameters(plan, cell)) == cell.digest
        for block in cell.blocks:
            assert digest_of(block_parameters(plan, block)) == block.digest


def test_rows_know_their_own_configuration_after_a_data_sets() -> None:
    own = {"overrides": {"maze10": {"filter": {"alpha": 0.3}, "training": {"max_epochs": 3}}}}
    plan = plan_of(own)
    config = plan.config_of("maze10", variant("pf_lstm_paper_loss"))
    assert (config.filter.alpha, config.training.max_epochs) == (0.3, 3)
    assert config.loss.reduction == "authors_code"
    assert plan.config_of("maze10", variant("pf_lstm_paper")) == plan.config.for_dataset("maze10")


def test_labels_and_tags_name_what_a_row_trained() -> None:
    plan = plan_of()
    tags = planned_tags(plan)
    cells = {cell.variant: cell for cell in plan.cells}
    found = {name: tags[cell.final_id]["fidelity"] for name, cell in cells.items()}
    assert found["pf_lstm"] == found["pf_lstm_paper"] == "paper"
    assert found["pf_lstm_paper_initial_state"] == "paper with initial_state=uniform"
    assert found["pf_lstm_paper_time_weights"] == "paper, loss of paper_decayed"
    assert found["pf_lstm_release"] == "authors_code, dropout 0.5"
    assert found["pf_lstm_release_loss"] == "authors_code, loss of paper, dropout 0.5"
    assert tags[cells["pf_lstm"].final_id]["cells"] == (
        "maze10/pf_lstm-fixed, maze10/pf_lstm_paper-fixed"
    )


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("fidelity", ["paper", "authors_code"])
def test_the_prediction_knows_what_the_kernels_refuse(name: str, fidelity: str) -> None:
    model = variant(name)
    config = load_config("params.yaml", "gpu", {"filter": {"fidelity": fidelity}})
    own = config.for_variant(model)
    switches = filter_options(own, model, 9).switches()
    assert kernels_run(own, model) == (_switch_refusal(switches, model.cell == "gru") is None)


def test_tier_gpu_has_the_family_on_the_one_maze_that_the_release_has() -> None:
    plan = load_plan("params.yaml", "gpu")
    rows = [cell for cell in plan.cells if cell.variant in FIDELITY]
    assert [cell.variant for cell in rows] == ROWS
    assert {cell.dataset for cell in rows} == {"maze10"}
    ours = plan.config.for_dataset("maze10").study.variants
    assert ours == (*plan.config.study.variants, *ROWS)
    sizes = dataset_sizes(plan)
    counts = grid_counts(plan, sizes)["tables"]
    assert counts[FIDELITY_LINE]["blocks"] == 28
    # Its own: the text's row is PF-LSTM, which the tables need anyway.
    less = plan._replace(cells=tuple(cell for cell in plan.cells if cell not in rows))
    hours = workload(plan, sizes).hours - workload(less, sizes).hours
    assert 0.8 < hours < 1.2
    assert (
        counts["tables 3 and 5, ablations"]
        == (grid_counts(less, sizes)["tables"]["tables 3 and 5, ablations"])
    )
    assert FIDELITY_LINE not in grid_counts(less, sizes)["tables"]
