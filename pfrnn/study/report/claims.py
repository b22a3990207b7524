"""The verdict on each claim; the rules are fixed in docs/statistics.md."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pfrnn.study.evaluate.paired import SignFlip, holm, n_needed, sign_flip_test
from pfrnn.study.report.cells import Lookup
from pfrnn.study.report.claim_list import CLAIMS, Claim
from pfrnn.study.report.measures import Strata
from pfrnn.study.report.numbers import DASH, number, significant
from pfrnn.study.report.scores import EveryScore, OurScores, PaperScores
from pfrnn.study.report.verdicts import REDUCED_TIERS

LEVEL = 0.05
SMALLEST_N = 10  # repetitions below which one data set alone is not tested
HOLDS, FAILS, UNDECIDED = "holds", "doesn't hold", "undecided"
NOT_JUDGED, NOT_RUN = "not judged", "not run"


class Count(NamedTuple):
    """Strata in which the claimed side wins, ties, loses, by the mean difference."""

    wins: int
    ties: int
    losses: int

    @property
    def text(self) -> str:
        """Wins of all, with ties and losses."""
        total = sum(self)
        if total == 0:
            return "prints no number"
        ties = "1 tie" if self.ties == 1 else f"{self.ties} ties"
        losses = "1 loss" if self.losses == 1 else f"{self.losses} losses"
        return f"{self.wins} of {total}, {ties}, {losses}"


class ClaimResult(NamedTuple):
    """A claim with everything computed for it.

    Attributes:
        claim: the sentence.
        strata: our differences.
        ours: our count.
        paper: the count of the printed numbers.
        up: test in the claimed direction; None when nothing ran.
        p_up: its p-value, adjusted over all claims.
        p_down: the opposite direction's, adjusted.
        effect: mean over strata of the difference in log error or logit accuracy.
        standardised: mean / sd of the scaled differences over all pairs; None below two pairs.
        needed: pairs needed at that effect; None when it points the other way or is unknown.
        verdict: holds, doesn't hold, undecided, not judged or not run, with a reason.
    """

    claim: Claim
    strata: Strata
    ours: Count
    paper: Count
    up: SignFlip | None
    p_up: float
    p_down: float
    effect: float
    standardised: float | None
    needed: int | None
    verdict: str


class StratumResult(NamedTuple):
    """One data set and pair of a claim on its own."""

    claim: str
    stratum: str
    n: int
    mean: float
    p_value: float | None
    verdict: str


def count(strata: Strata) -> Count:
    """Count strata by the sign of their mean difference; a tie is within rounding of zero."""
    means = [float(np.mean(d)) for d in strata.values()]
    ties = sum(abs(mean) < 1e-12 for mean in means)
    wins = sum(mean >= 1e-12 for mean in means)
    return Count(wins, ties, len(means) - wins - ties)


def judge_claims(lookup: Lookup, claims: Sequence[Claim] = CLAIMS) -> list[ClaimResult]:
    """Compute every claim; p-values are adjusted over all claims that have data."""
    ours, paper = OurScores(lookup), PaperScores()
    measured = [(claim, claim.measure(ours), count(claim.measure(paper))) for claim in claims]
    ups = [sign_flip_test(strata) if strata else None for _, strata, _ in measured]
    downs = [
        sign_flip_test({k: [-x for x in d] for k, d in strata.items()}) if strata else None
        for _, strata, _ in measured
    ]
    p_up = iter(holm([test.p_value for test in ups if test is not None]))
    p_down = iter(holm([test.p_value for test in downs if test is not None]))
    tier = lookup.evidence.study.tier
    results = []
    for (claim, strata, printed), up in zip(measured, ups, strict=True):
        if up is None:
            results.append(_not_run(claim, printed))
            continue
        p_values = (next(p_up), next(p_down))
        results.append(_result(tier, claim, strata, printed, up, p_values))
    return results


def _not_run(claim: Claim, printed: Count) -> ClaimResult:
    nothing = Count(0, 0, 0)
    return ClaimResult(claim, {}, nothing, printed, None, 1.0, 1.0, 0.0, None, None, NOT_RUN)


def _result(
    tier: str,
    claim: Claim,
    strata: Strata,
    printed: Count,
    up: SignFlip,
    p_values: tuple[float, float],
) -> ClaimResult:
    standardised = standardised_effect(strata)
    needed = n_needed(standardised) if standardised is not None else None
    effect = float(np.mean([np.mean(d) for d in strata.values()]))
    if tier in REDUCED_TIERS:
        verdict = f"{NOT_JUDGED} (reduced tier)"
    elif p_values[0] <= LEVEL:
        verdict = HOLDS + _part_text(claim, strata)
    elif p_values[1] <= LEVEL:
        verdict = FAILS + _part_text(claim, strata)
    else:
        verdict = f"{UNDECIDED} ({_needed_text(up.pairs, needed)})"
    return ClaimResult(
        claim, strata, count(strata), printed, up, *p_values, effect, standardised, needed, verdict
    )


def _part_text(claim: Claim, strata: Strata) -> str:
    """Say how much of the claim has run, where that is not all of it."""
    named = len(claim.measure(EveryScore()))
    return "" if len(strata) == named else f" (on {len(strata)} of its {named} comparisons)"


def _needed_text(pairs: int, needed: int | None) -> str:
    if needed is None:
        return f"{pairs} pairs; the effect seen does not point the claimed way"
    return f"{pairs} pairs; about {needed} needed at the effect seen"


def standardised_effect(strata: Strata) -> float | None:
    """Mean / sd over all pairs of the differences, each stratum's scaled by its root mean square.

    None below two pairs or when they do not vary.
    """
    scaled: list[float] = []
    for d in strata.values():
        rms = math.sqrt(float(np.mean(np.square(d))))
        scaled += [x / rms if rms > 0 else 0.0 for x in d]
    sd = float(np.std(scaled, ddof=1)) if len(scaled) > 1 else 0.0
    return float(np.mean(scaled)) / sd if sd > 0 else None


def judge_strata(results: Sequence[ClaimResult], tier: str) -> list[StratumResult]:
    """Test each stratum alone where n allows; p-values adjusted over all that are tested."""
    rows = [
        (result.claim.name, label, d, sign_flip_test({label: d}, "two-sided").p_value)
        for result in results
        for label, d in result.strata.items()
    ]
    adjusted = iter(holm([p for _, _, d, p in rows if len(d) >= SMALLEST_N]))
    found = []
    for name, label, d, _ in rows:
        mean = float(np.mean(d))
        if tier in REDUCED_TIERS:
            found.append(
                StratumResult(name, label, len(d), mean, None, f"{NOT_JUDGED} (reduced tier)")
            )
        elif len(d) < SMALLEST_N:
            found.append(StratumResult(name, label, len(d), mean, None, "undecided, n too small"))
        else:
            p = next(adjusted)
            word = UNDECIDED if p > LEVEL else HOLDS if mean > 0 else FAILS
            found.append(StratumResult(name, label, len(d), mean, p, word))
    return found


def ratio_text(effect: float) -> str:
    """Write a mean difference of log errors (or logits) as a ratio of errors (or odds)."""
    return f"{number(math.exp(-effect), 2)} times the error"


def claims_csv(results: Sequence[ClaimResult]) -> str:
    """Return all claims as CSV."""
    header = (
        "claim", "sentence", "section", "computed", "verdict", "wins", "ties", "losses",
        "paper_wins", "paper_ties", "paper_losses", "strata", "pairs", "statistic", "p_holm",
        "p_holm_opposite", "mean_difference", "standardised_effect", "pairs_needed",
    )  # fmt: skip
    rows = []
    for one in results:
        up = one.up
        tested = (
            (up.sets, up.pairs, f"{up.statistic:.6g}", f"{one.p_up:.6g}", f"{one.p_down:.6g}")
            if up
            else (0, 0, "", "", "")
        )
        effect = f"{one.effect:.6g}" if up else ""
        standardised = "" if one.standardised is None else f"{one.standardised:.6g}"
        needed = "" if one.needed is None else one.needed
        claim = one.claim
        words = (claim.name, claim.sentence, claim.section, claim.computed, one.verdict)
        rows.append((*words, *one.ours, *one.paper, *tested, effect, standardised, needed))
    return _csv(header, rows)


def strata_csv(results: Sequence[StratumResult]) -> str:
    """Return all strata as CSV."""
    rows = [
        (r.claim, r.stratum, r.n, f"{r.mean:.6g}", "" if r.p_value is None else f"{r.p_value:.6g}",
         r.verdict)
        for r in results
    ]  # fmt: skip
    return _csv(("claim", "stratum", "n", "mean_difference", "p_holm", "verdict"), rows)


def _csv(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return buffer.getvalue()


def claims_markdown(results: Sequence[ClaimResult], note: str) -> str:
    """Return all claims as Markdown."""
    lines = ["# Claims", "", note, ""]
    lines.append("| claim | section | computed | ours | paper's own numbers | p (Holm) | verdict |")
    lines.append("|---|---|---|---|---|---|---|")
    for one in results:
        p = significant(one.p_up, 2) if one.up else DASH
        ours = one.ours.text if one.up else "not run"
        cells = (one.claim.sentence, one.claim.section, one.claim.computed, ours, one.paper.text)
        lines.append("| " + " | ".join((*cells, p, one.verdict)) + " |")
    return "\n".join([*lines, "", "Rules: docs/statistics.md.", ""])
