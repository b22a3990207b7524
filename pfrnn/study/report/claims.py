"""The verdict on each claim, as frames; docs/statistics.md has the rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pfrnn.study.evaluate.paired import excluded_beyond, holm, n_needed, sign_flip_test
from pfrnn.study.report.claim_list import CLAIMS, PF, Claim
from pfrnn.study.report.gains import gains_frame
from pfrnn.study.report.measures import (
    PARTICLES,
    Strata,
    every_score,
    paper_score,
    scores_of,
)
from pfrnn.study.report.numbers import DASH, number, significant
from pfrnn.study.report.results import Ours, Results
from pfrnn.study.report.verdicts import REDUCED_TIERS

LEVEL = 0.05
HOLDS, FAILS, UNDECIDED = "holds", "doesn't hold", "undecided"
NOT_JUDGED, NOT_RUN = "not judged", "not run"
REDUCED = f"{NOT_JUDGED} (reduced tier)"
# "Roughly the same number of trainable parameters": within this share of the RNN's.
PARITY = 0.10


def count(strata: Strata) -> tuple[int, int, int]:
    """Count wins, ties and losses by the mean difference; a tie is within rounding of zero."""
    means = np.array([np.mean(d) for d in strata.values()])
    return (
        int(np.sum(means >= 1e-12)),
        int(np.sum(abs(means) < 1e-12)),
        int(np.sum(means <= -1e-12)),
    )


class Judged(NamedTuple):
    """What was tested, as frames: a row a claim, a row a stratum behind it, a row a gain."""

    claims: pd.DataFrame
    strata: pd.DataFrame
    gains: pd.DataFrame

    @property
    def p_values(self) -> list[float]:
        """P-values of all tests of the family: claims that ran and headline gains."""
        headline = self.gains[self.gains["headline"]]["p"]
        return [float(p) for p in [*self.claims["p"], *headline] if p == p]


def tested(results: Results) -> Judged:
    """Compute every claim and gain, without verdicts."""
    measured = [(claim, claim.measure(scores_of(results))) for claim in CLAIMS]
    strata = [
        (claim.name, label, len(d), float(np.mean(d)))
        for claim, own in measured
        for label, d in own.items()
    ]
    return Judged(
        pd.DataFrame([_claim_row(*one) for one in measured]),
        pd.DataFrame(strata, columns=["claim", "stratum", "n", "mean_difference"]),
        gains_frame(results),
    )


def judge(results: Results, others: Sequence[Results] = ()) -> Judged:
    """Judge every claim and headline gain; p-values are adjusted over the whole study.

    Args:
        results: the report's.
        others: of the study's other tiers: their tests belong to the family, too.
    """
    own = tested(results)
    family = own.p_values + [p for other in others for p in tested(other).p_values]
    adjusted = dict(zip(family, holm(family), strict=True))
    reduced = results.study.tier in REDUCED_TIERS
    for frame in (own.claims, own.gains):
        frame["p_holm"] = [adjusted.get(p, math.nan) for p in frame["p"]]
    own.claims["verdict"] = [
        NOT_RUN if not row.pairs else REDUCED if reduced else _verdict(row)
        for row in own.claims.itertuples()
    ]
    own.gains["verdict"] = [
        DASH
        if not row.headline or row.p != row.p
        else REDUCED
        if reduced
        else UNDECIDED
        if row.p_holm > LEVEL
        else "gain"
        if row.gain > 0
        else "loss"
        for row in own.gains.itertuples()
    ]
    return own


def _claim_row(claim: Claim, strata: Strata) -> dict[str, Any]:
    wins, ties, losses = count(strata)
    paper_wins, paper_ties, paper_losses = count(claim.measure(paper_score))
    row: dict[str, Any] = {
        "claim": claim.name,
        "sentence": claim.sentence,
        "section": claim.section,
        "computed": claim.computed,
        "table": claim.table,
        "verdict": "",
        "wins": wins,
        "ties": ties,
        "losses": losses,
        "paper_wins": paper_wins,
        "paper_ties": paper_ties,
        "paper_losses": paper_losses,
        "strata": len(strata),
        "named": len(claim.measure(every_score)),
        "pairs": 0,
        "sets": sorted({label.partition(" / ")[0] for label in strata}),
    }
    numbers = "statistic p mean_difference standardised_effect pairs_needed excluded".split()
    row |= dict.fromkeys(numbers, math.nan)
    if not strata:
        return row
    test = sign_flip_test(strata, "two-sided")
    effect = _standardised(strata)
    means = [float(np.mean(d)) for d in strata.values()]
    return row | {
        "pairs": test.pairs,
        "statistic": test.statistic,
        "p": test.p_value,
        "mean_difference": float(np.mean(means)),
        "standardised_effect": math.nan if effect is None else effect,
        "pairs_needed": (n_needed(abs(effect)) if effect else None) or math.nan,
        "excluded": excluded_beyond(means) if len(means) > 2 else math.nan,
    }


def _standardised(strata: Strata) -> float | None:
    """Mean / sd over all pairs of the differences, each stratum's scaled by its root mean square.

    None below two pairs or when they do not vary.
    """
    scaled: list[float] = []
    for d in strata.values():
        rms = math.sqrt(float(np.mean(np.square(d))))
        scaled += [x / rms if rms > 0 else 0.0 for x in d]
    sd = float(np.std(scaled, ddof=1)) if len(scaled) > 1 else 0.0
    return float(np.mean(scaled)) / sd if sd > 0 else None


def _verdict(row: Any) -> str:
    part = "" if row.strata == row.named else f" (on {row.strata} of its {row.named} comparisons)"
    if row.p_holm <= LEVEL:
        return (HOLDS if row.statistic > 0 else FAILS) + part
    said = [f"{row.pairs} pairs"]
    if not math.isnan(row.pairs_needed):
        said.append(f"about {row.pairs_needed:.0f} needed at the effect seen")
    if not math.isnan(row.excluded):
        said.append(f"a mean effect beyond a factor {math.exp(row.excluded):.2f} is excluded")
    return f"{UNDECIDED} ({'; '.join(said)})"


def signed(value: float) -> str:
    """Write a number with two digits and its sign."""
    return DASH if math.isnan(value) else ("+" if value > 0 else "") + number(value, 2)


def tally(wins: int, ties: int, losses: int) -> str:
    """Write wins of all, with ties and losses."""
    if wins + ties + losses == 0:
        return "prints no number"
    return (
        f"{wins} of {wins + ties + losses}, {ties} tie{'' if ties == 1 else 's'}, "
        f"{losses} loss{'' if losses == 1 else 'es'}"
    )


def shown_claims(frame: pd.DataFrame) -> pd.DataFrame:
    """Return claims as they are read, in Markdown and on the page."""
    rows = [
        {
            "claim": row.sentence,
            "section": row.section,
            "computed": row.computed,
            "ours": tally(row.wins, row.ties, row.losses) if row.pairs else NOT_RUN,
            "paper's own numbers": tally(row.paper_wins, row.paper_ties, row.paper_losses),
            "effect that decides": signed(row.statistic),
            "p (Holm)": significant(row.p_holm, 2) if row.pairs else DASH,
            "verdict": row.verdict,
        }
        for row in frame.itertuples()
    ]
    return pd.DataFrame(rows)


def counted_claims(results: Results) -> pd.DataFrame:
    """Judge the claims that are counted, not tested, on every data set that has what they need."""
    parameters = _ratios(results, "parameters")
    seconds = _ratios(results, "final_seconds")
    counts = [
        {ours.row["parameters"] for name in PARTICLES if (ours := results.get(dataset, name))}
        for dataset in results.sets
        if sum(results.get(dataset, name) is not None for name in PARTICLES) > 1
    ]
    rows = [
        (
            "... the PF-RNN and the RNN have roughly the same number of trainable parameters.",
            "Experiments",
            f"every pair within {100 * PARITY:.0f} % at fixed size",
            [abs(ratio - 1) <= PARITY for ratio in parameters],
            _range("; PF-RNN / RNN", parameters),
            "no pair has run",
        ),
        (
            "The number of particles thus does not affect the number of PF-RNN network parameters.",
            "Particle Filter Recurrent Neural Networks, Overview",
            "P1 to P30 have the same count on every set",
            [len(own) == 1 for own in counts],
            "",
            "no pair has run",
        ),
        (
            "They aim to learn a better belief representation from the same data, though at a "
            "greater computational cost.",
            "Introduction",
            "the final runs of every PF-RNN take longer than its RNN's, an epoch limit alike, each "
            "job with a card of its own",
            [ratio > 1 for ratio in seconds],
            _range("; seconds, PF-RNN / RNN", seconds),
            "no pair of jobs that had a card each to themselves",
        ),
    ]
    reduced = results.study.tier in REDUCED_TIERS
    return pd.DataFrame(
        [
            (
                sentence,
                section,
                rule,
                f"{sum(true)} of {len(true)}{said}" if true else none,
                NOT_RUN if not true else REDUCED if reduced else HOLDS if all(true) else FAILS,
            )
            for sentence, section, rule, true, said, none in rows
        ],
        columns=["counted claim", "section", "holds when", "found", "verdict"],
    )


def _ratios(results: Results, column: str) -> list[float]:
    """PF-RNN / RNN of a column, where both are known; seconds where a job had a card to itself."""
    found = []
    for dataset in results.sets:
        for pair in PF:
            mine, theirs = (results.get(dataset, name) for name in pair)
            if mine is None or theirs is None:
                continue
            alone = _alone(results, mine) and _alone(results, theirs)
            own, other = float(mine.row[column]), float(theirs.row[column])
            usable = 0 < own < math.inf and 0 < other < math.inf
            if usable and (alone or column != "final_seconds"):
                found.append(own / other)
    return found


def _alone(results: Results, ours: Ours) -> bool:
    """Whether a final is known not to have shared a GPU with another job."""
    machine = results.evidence.runs.get(ours.row["final_id"], {}).get("machine", {})
    on_a_gpu = str(machine.get("device", "")).startswith("cuda")
    return not on_a_gpu or machine.get("jobs_per_card") == 1


def _range(what: str, ratios: Sequence[float]) -> str:
    return f"{what} from {min(ratios):.2f} to {max(ratios):.2f}" if ratios else ""


def word_counts(judged: Judged, results: Results) -> dict[str, int]:
    """Count the verdicts on all claims, the counted ones included."""
    words = pd.concat([judged.claims["verdict"], counted_claims(results)["verdict"]])
    return words.str.partition(" (")[0].value_counts().sort_index().to_dict()
