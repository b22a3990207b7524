"""Claims about parameters and cost: counted, not tested; rules in docs/statistics.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from pfrnn.study.report.cells import Lookup, Ours
from pfrnn.study.report.claims import FAILS, HOLDS, NOT_JUDGED, NOT_RUN
from pfrnn.study.report.measures import PARTICLES
from pfrnn.study.report.verdicts import REDUCED_TIERS

# "Roughly the same number of trainable parameters": within this share of the RNN's.
PARITY = 0.10
PAIRS = (("pf_lstm", "lstm"), ("pf_gru", "gru"))


class CountedClaim(NamedTuple):
    """A sentence that is true or false of counted numbers.

    Attributes:
        sentence: the paper's words.
        section: where it stands.
        rule: when it holds.
        found: what was counted.
        verdict: holds, doesn't hold, not run, or not judged.
    """

    sentence: str
    section: str
    rule: str
    found: str
    verdict: str


def counted_claims(lookup: Lookup) -> list[CountedClaim]:
    """Judge the counted claims on every data set that has what they need."""
    tier = lookup.evidence.study.tier
    sets = sorted(set(lookup.evidence.results["dataset"]))
    parameters = _ratios(lookup, sets, "parameters")
    seconds = _ratios(lookup, sets, "final_seconds")
    return [
        _claim(
            tier,
            "... the PF-RNN and the RNN have roughly the same number of trainable parameters.",
            "Experiments",
            f"every pair within {100 * PARITY:.0f} % at fixed size",
            [abs(ratio - 1) <= PARITY for ratio in parameters],
            _range("PF-RNN / RNN", parameters),
        ),
        _claim(
            tier,
            "The number of particles thus does not affect the number of PF-RNN network parameters.",
            "Particle Filter Recurrent Neural Networks, Overview",
            "P1 to P30 have the same count on every set",
            _same_count(lookup, sets),
            "",
        ),
        _claim(
            tier,
            "They aim to learn a better belief representation from the same data, though at a "
            "greater computational cost.",
            "Introduction",
            "the final runs of every PF-RNN take longer than its RNN's, an epoch limit alike, each "
            "job with a card of its own",
            [ratio > 1 for ratio in seconds],
            _range("seconds, PF-RNN / RNN", seconds),
            "no pair of jobs that had a card each to themselves",
        ),
    ]


def _claim(
    tier: str,
    sentence: str,
    section: str,
    rule: str,
    true: Sequence[bool],
    found: str,
    none: str = "no pair has run",
) -> CountedClaim:
    counted = f"{sum(true)} of {len(true)}" + (f"; {found}" if found else "")
    if not true:
        return CountedClaim(sentence, section, rule, none, NOT_RUN)
    if tier in REDUCED_TIERS:
        return CountedClaim(sentence, section, rule, counted, f"{NOT_JUDGED} (reduced tier)")
    return CountedClaim(sentence, section, rule, counted, HOLDS if all(true) else FAILS)


def _ratios(lookup: Lookup, sets: Sequence[str], column: str) -> list[float]:
    found = []
    for name in sets:
        for pf, rnn in PAIRS:
            mine, theirs = lookup.ours(name, pf), lookup.ours(name, rnn)
            if mine is None or theirs is None:
                continue
            if column == "final_seconds" and not (_alone(lookup, mine) and _alone(lookup, theirs)):
                continue
            own, other = float(mine.row[column]), float(theirs.row[column])
            if 0 < own < math.inf and 0 < other < math.inf:
                found.append(own / other)
    return found


def _alone(lookup: Lookup, cell: Ours) -> bool:
    """Whether a final is known not to have shared a GPU with another job."""
    machine = lookup.evidence.runs.get(cell.row["final_id"], {}).get("machine", {})
    shared = str(machine.get("device", "")).startswith("cuda")
    return not shared or machine.get("jobs_per_card") == 1


def _same_count(lookup: Lookup, sets: Sequence[str]) -> list[bool]:
    found = []
    for name in sets:
        ours = [lookup.ours(name, variant) for variant in PARTICLES]
        counts = [one.row["parameters"] for one in ours if one and one.row["parameters"] > 0]
        if len(counts) > 1:
            found.append(len(set(counts)) == 1)
    return found


def _range(what: str, ratios: Sequence[float]) -> str:
    return f"{what} from {min(ratios):.2f} to {max(ratios):.2f}" if ratios else ""


def counted_markdown(claims: Sequence[CountedClaim]) -> str:
    """Return the counted claims as a Markdown table."""
    lines = ["| counted claim | section | holds when | found | verdict |", "|---|---|---|---|---|"]
    lines += ["| " + " | ".join(claim) + " |" for claim in claims]
    return "\n".join([*lines, ""])
