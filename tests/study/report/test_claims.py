"""Claims: the paper's own counts, verdicts on simulated results with a known order."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import simulated

from pfrnn.study.evaluate.paired import excluded_beyond, holm
from pfrnn.study.report.cells import MAZES
from pfrnn.study.report.claim_list import CLAIMS
from pfrnn.study.report.claims import (
    Judged,
    count,
    counted_claims,
    judge,
    shown_claims,
    tally,
)
from pfrnn.study.report.claims import tested as all_tests
from pfrnn.study.report.measures import PARTICLES, paper_score
from pfrnn.study.report.results import Results

BY_NAME = {claim.name: claim for claim in CLAIMS}


@pytest.mark.parametrize(
    ("name", "wins", "ties", "losses"),
    [
        ("pf-real", 17, 1, 2),
        ("pf-real-best", 17, 2, 1),
        ("pf-bayes", 15, 1, 4),
        ("ensemble-rnn", 13, 0, 7),
        ("sota-better", 6, 0, 0),
        ("sota-worse", 6, 0, 0),
    ],
)
def test_the_papers_own_counts(name: str, wins: int, ties: int, losses: int) -> None:
    assert count(BY_NAME[name].measure(paper_score)) == (wins, ties, losses)


def test_ensembles_by_cell() -> None:
    strata = BY_NAME["ensemble-rnn"].measure(paper_score)
    lstm = {label: d for label, d in strata.items() if "over lstm" in label}
    assert count(lstm)[0] == 8
    assert count({k: d for k, d in strata.items() if k not in lstm})[0] == 5


def test_bar_chart_claims_have_no_printed_number() -> None:
    for name in ("pf-maze", "pf-maze-best", "maze-growth"):
        assert tally(*count(BY_NAME[name].measure(paper_score))) == "prints no number"


def test_every_claim_names_its_section_and_numbers() -> None:
    assert len(BY_NAME) == len(CLAIMS)
    for claim in CLAIMS:
        assert claim.section
        assert claim.computed
        assert claim.table.partition("-")[0] in ("table", "localization")


def judged(
    tmp_path: Path,
    tier: str,
    variants: tuple[str, ...],
    factor: dict[str, float],
    datasets: tuple[str, ...] = simulated.DATASETS,
    repetitions: int = 6,
) -> tuple[dict[str, Any], Judged]:
    """Claims on results where each variant's error is ``factor`` times a common one."""
    plan = simulated.study(tier, datasets, variants)
    rows = []
    for dataset in datasets:
        for name in variants:
            for repetition in range(repetitions):
                noise = 1 + 0.02 * math.sin(17.0 * repetition + len(name) + 3 * len(rows))
                metric = simulated.reading_of(dataset).metric
                error = 20.0 * factor[name] * noise
                value = 100 - error if metric == "accuracy" else error
                rows.append(simulated.row(tier, dataset, name, "fixed", repetition, metric, value))
    found = judge(simulated.results_of(tmp_path, plan, rows))
    return {row.claim: row for row in found.claims.itertuples()}, found


def test_a_true_order_holds_and_a_false_one_does_not(tmp_path: Path) -> None:
    factor = {"lstm": 1.0, "gru": 1.0, "pf_lstm": 0.8, "pf_gru": 0.8}
    factor |= {"bayes_lstm": 0.6, "bayes_gru": 0.6}
    found, _ = judged(tmp_path, "paper", tuple(factor), factor)
    assert found["pf-real"].verdict == "holds"
    assert (found["pf-real"].wins, found["pf-real"].losses) == (20, 0)
    assert found["pf-bayes"].verdict == "doesn't hold"
    assert found["bayes-rnn"].verdict == "holds"
    assert found["pf-ensemble"].verdict == "not run"
    assert found["maze-growth"].verdict.startswith("undecided")


def test_a_verdict_on_a_part_of_a_claim_says_which(tmp_path: Path) -> None:
    """Two pairs on one maze of three don't say "consistently"."""
    better = {"lstm": 1.0, "gru": 1.0, "pf_lstm": 0.5, "pf_gru": 0.5}
    found, _ = judged(tmp_path / "up", "gpu", tuple(better), better, ("maze10",))
    assert found["pf-maze"].verdict == "holds (on 2 of its 6 comparisons)"
    worse = {"lstm": 0.5, "gru": 0.5, "pf_lstm": 1.0, "pf_gru": 1.0}
    found, _ = judged(tmp_path / "down", "gpu", tuple(worse), worse, ("maze10", "maze18"))
    assert found["pf-maze"].verdict == "doesn't hold (on 4 of its 6 comparisons)"
    found, _ = judged(tmp_path / "all", "gpu", tuple(better), better, MAZES)
    assert found["pf-maze"].verdict == "holds"


def test_no_difference_is_undecided_with_pairs_needed(tmp_path: Path) -> None:
    factor = {"lstm": 1.0, "pf_lstm": 0.999}
    found, _ = judged(tmp_path, "paper", tuple(factor), factor, ("air", "pm"))
    assert found["pf-real"].verdict.startswith("undecided (12 pairs")


def test_more_particles(tmp_path: Path) -> None:
    factor = {name: 1 / (1 + 0.1 * math.log2(k)) for name, k in PARTICLES.items()}
    found, _ = judged(tmp_path, "paper", tuple(factor), factor, ("air", "arem", "maze10"))
    assert found["particles"].verdict == "holds (on 3 of its 13 comparisons)"
    assert found["particles"].wins == 3
    assert found["particles"].paper_wins == 13


def test_a_reduced_tier_judges_nothing(tmp_path: Path) -> None:
    factor = {"lstm": 1.0, "pf_lstm": 0.5}
    found, judged_ = judged(tmp_path, "quick", tuple(factor), factor, ("air", "pm"))
    assert found["pf-real"].verdict == "not judged (reduced tier)"
    assert set(judged_.gains["verdict"]) == {"not judged (reduced tier)"}


def test_many_small_gains_decide_against_one_large_loss(tmp_path: Path) -> None:
    """The test counts each set alike: what is shown is the effect that decides, not the mean."""
    plan = simulated.study("gpu", variants=("lstm", "pf_lstm"))
    rows = []
    for dataset in plan.datasets:
        metric = simulated.reading_of(dataset).metric
        for repetition in range(6):
            error = 1.0 + 0.02 * math.sin(17.0 * repetition)
            factors = {"lstm": 1.0, "pf_lstm": 50.0 if dataset == "pm" else 0.97}
            for name, factor in factors.items():
                value = 100 - factor * error if metric == "accuracy" else factor * error
                rows.append(simulated.row("gpu", dataset, name, "fixed", repetition, metric, value))
    claims = judge(simulated.results_of(tmp_path, plan, rows)).claims.set_index("claim")
    assert claims.loc["pf-real", "verdict"] == "holds (on 10 of its 20 comparisons)"
    assert claims.loc["pf-real", "mean_difference"] < 0 < claims.loc["pf-real", "statistic"]
    shown = shown_claims(claims.reset_index())
    assert shown["effect that decides"][3] == "+0.80"


def test_one_family_over_all_tiers(tmp_path: Path) -> None:
    """Holm's factor counts the claims and headline gains of every tier."""
    plan = simulated.study("gpu", ("air", "pm"), ("lstm", "pf_lstm"))
    one, other = (
        simulated.results_of(tmp_path / str(seed), plan, simulated.result_rows(plan, 6, seed))
        for seed in (0, 1)
    )
    alone, both = judge(one), judge(one, [other])
    assert len(alone.p_values) == 1 + 2  # one claim ran, on two sets
    family = alone.p_values + all_tests(other).p_values
    for found, wanted in ((alone, holm(alone.p_values)), (both, holm(family)[:3])):
        adjusted = pd.concat([found.claims["p_holm"], found.gains["p_holm"]]).dropna()
        assert adjusted.tolist() == pytest.approx(wanted)
    assert both.gains["p_holm"].min() > alone.gains["p_holm"].min()


def test_gains_say_what_is_found_and_what_is_excluded(tmp_path: Path) -> None:
    plan = simulated.study("gpu", ("air", "pm", "aep"), ("lstm", "pf_lstm"))
    rows = []
    noise = [0.0, 0.01, -0.012, 0.004, -0.006, 0.008]
    for dataset, factor in (("air", 0.8), ("pm", 1.25), ("aep", 1.0)):
        metric = simulated.reading_of(dataset).metric
        for r, shift in enumerate(noise):
            pairs = (("lstm", 20.0), ("pf_lstm", 20.0 * factor * math.exp(shift)))
            for name, value in pairs:
                rows.append(simulated.row("gpu", dataset, name, "fixed", r, metric, value))
    gains = judge(simulated.results_of(tmp_path, plan, rows)).gains.set_index("dataset")
    assert gains["verdict"].to_dict() == {"air": "gain", "pm": "loss", "aep": "undecided"}
    assert gains.loc["air", "gain"] == pytest.approx(math.log(1.25), abs=0.01)
    assert gains.loc["aep", "excluded"] == pytest.approx(excluded_beyond(noise), abs=1e-9)
    assert gains.loc["aep", "excluded"] < 0.01  # no effect larger than one per cent
    assert gains.loc["air", "paper"] == pytest.approx(math.log(18.34 / 13.12))


def test_counted_claims(tmp_path: Path) -> None:
    def verdicts(tier: str, variants: tuple[str, ...], **changes: float) -> list[str]:
        plan = simulated.study(tier, ("air", "pm"), variants)
        rows = [
            row | (changes if row["variant"] == "pf_gru" else {})
            for row in simulated.result_rows(plan, 2)
        ]
        folder = tmp_path / f"{tier}{len(variants)}{sorted(changes)}"
        return list(counted_claims(simulated.results_of(folder, plan, rows))["verdict"])

    main = ("lstm", "gru", "pf_lstm", "pf_gru")
    # 41,537 against 46,720 parameters is 11 % less: not "roughly the same" within 10 %
    assert verdicts("paper", main) == ["doesn't hold", "not run", "holds"]
    assert verdicts("paper", ("gru", "pf_gru"), parameters=46000)[0] == "holds"
    assert verdicts("paper", main, final_seconds=50)[2] == "doesn't hold"
    assert verdicts("paper", tuple(PARTICLES))[1] == "holds"
    assert set(verdicts("quick", main)) == {"not judged (reduced tier)", "not run"}


@pytest.mark.parametrize(
    ("machine", "verdict"),
    [
        ({"device": "cpu"}, "holds"),
        ({"device": "cuda:0", "jobs_per_card": 1}, "holds"),
        ({"device": "cuda:0", "jobs_per_card": 4}, "not run"),
        ({"device": "cuda:0"}, "not run"),  # recorded before it was: nobody knows
    ],
)
def test_cost_is_not_judged_on_jobs_that_shared_a_card(
    tmp_path: Path, machine: dict[str, object], verdict: str
) -> None:
    plan = simulated.study("paper", ("air",), ("gru", "pf_gru"))
    evidence = simulated.results_of(tmp_path, plan, simulated.result_rows(plan, 2)).evidence
    runs = {final: {"machine": machine} for final in set(evidence.results["final_id"])}
    cost = counted_claims(Results(evidence._replace(runs=runs))).iloc[2]
    assert cost["verdict"] == verdict
    assert ("no pair of jobs that had a card" in cost["found"]) == (verdict == "not run")
