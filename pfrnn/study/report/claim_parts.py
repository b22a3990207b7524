"""The sections on claims and on equal parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pfrnn.study.report.cells import Lookup
from pfrnn.study.report.claims import (
    FAILS,
    HOLDS,
    NOT_JUDGED,
    NOT_RUN,
    UNDECIDED,
    ClaimResult,
    StratumResult,
    ratio_text,
)
from pfrnn.study.report.counted_claims import PAIRS, PARITY, CountedClaim
from pfrnn.study.report.figures.style import label
from pfrnn.study.report.matrices import significant_count
from pfrnn.study.report.numbers import DASH, number, significant
from pfrnn.study.report.verdicts import REDUCED_TIERS
from pfrnn.study.report.views import Part, PlainRow, PlainTable, Tile


def claim_tiles(results: Sequence[ClaimResult], tier: str) -> list[Tile]:
    """Return the summary's counts of claims."""
    if tier in REDUCED_TIERS:
        return []
    verdicts = [result.verdict.partition(" (")[0] for result in results]
    return [
        Tile(f"{verdicts.count(word)} of {len(results)}", f"claims: {word}")
        for word in (HOLDS, FAILS, UNDECIDED, NOT_RUN)
    ]


def claims_part(
    results: Sequence[ClaimResult],
    strata: Sequence[StratumResult],
    counted: Sequence[CountedClaim],
    lookup: Lookup,
) -> Part:
    """Return the claims, and the data sets behind them one by one."""
    rows = tuple(_claim_row(result, lookup) for result in results)
    header = (
        "claim",
        "section of the paper",
        "computed",
        "verdict",
        "ours: wins",
        "the paper's own numbers",
        "mean effect",
        "p (Holm)",
        "numbers",
    )
    details = tuple(
        PlainRow(
            (
                one.stratum,
                one.claim,
                str(one.n),
                ratio_text(one.mean),
                significant(one.p_value, 2) if one.p_value is not None else DASH,
                one.verdict,
            ),
            one.stratum.partition(" / ")[0] if " against " not in one.stratum else "",
            links=((1, f"#claim-{one.claim}"),),
        )
        for one in strata
    )
    tables = [PlainTable("What the paper claims, and whether it holds here.", header, rows)]
    names = ("claim", "section of the paper", "holds when", "found", "verdict")
    plain = tuple(PlainRow((f"“{one.sentence}”", *one[1:])) for one in counted)
    tables.append(PlainTable("Claims that are counted, not tested.", names, plain))
    if details:
        columns = ("data set / pair", "claim", "n", "mean effect", "p (Holm)", "verdict alone")
        tables.append(PlainTable("Data sets behind the claims, one by one.", columns, details))
    return Part(
        "claims",
        "Claims",
        (
            "Each claim is one stratified sign-flip test over all paired repetitions; p-values are "
            "adjusted over all claims. Effects are ratios: 0.80 times the error means a fifth less "
            "(for accuracies: of the odds of a wrong class). The test counts each data set alike; "
            "the mean effect counts each by its size. The first column quotes the paper, the "
            "second says where it stands.",
            "A data set alone is tested from 10 repetitions on: with fewer no test can reach "
            "significance after adjustment.",
        ),
        tuple(tables),
    )


def _claim_row(result: ClaimResult, lookup: Lookup) -> PlainRow:
    ran = result.up is not None
    claim = result.claim
    sets = {label.partition(" / ")[0] for label in result.strata}
    excerpts = sorted(name for name in sets if lookup.state(name) == "excerpt")
    excerpted = f"; excerpts: {', '.join(excerpts)}" if excerpts else ""
    texts = (
        f"“{claim.sentence}”",
        claim.section,
        claim.computed,
        result.verdict if result.verdict != NOT_RUN else "not run: no pair has both results",
        result.ours.text + excerpted if ran else DASH,
        result.paper.text,
        _effect(result) if ran else DASH,
        significant(result.p_up, 2) if ran and not result.verdict.startswith(NOT_JUDGED) else DASH,
        "to the table",
    )
    return PlainRow(texts, links=((8, f"#{claim.table}"),), anchor=f"claim-{claim.name}")


def _effect(result: ClaimResult) -> str:
    """Write the mean effect; say so where it points against the verdict."""
    text = ratio_text(result.effect)
    word = result.verdict.partition(" (")[0]
    against = (word == HOLDS and result.effect < 0) or (word == FAILS and result.effect > 0)
    return f"{text}; against the verdict: a few sets' large effects outweigh" if against else text


def parity_part(lookup: Lookup) -> Part:
    """Compare trainable parameters of each PF-RNN with its RNN's at fixed size."""
    rows = []
    for dataset in sorted(set(lookup.evidence.results["dataset"])):
        for pf, rnn in PAIRS:
            mine, theirs = lookup.ours(dataset, pf), lookup.ours(dataset, rnn)
            if mine is None or theirs is None:
                continue
            own, other = float(mine.row["parameters"]), float(theirs.row["parameters"])
            if not (0 < own < math.inf and 0 < other < math.inf):
                continue
            share = own / other - 1
            inside = f"within {100 * PARITY:.0f} %" if abs(share) <= PARITY else "not equal"
            rows.append(
                PlainRow(
                    (
                        dataset,
                        f"{label(pf)} / {label(rnn)}",
                        significant_count(own),
                        significant_count(other),
                        f"{number(100 * share, 1)} %",
                        inside,
                    ),
                    dataset,
                    pf,
                )
            )
    header = ("data set", "pair", "PF-RNN", "RNN", "difference", "verdict")
    table = PlainTable("Trainable parameters of the whole network.", header, tuple(rows))
    return Part(
        "parity",
        "Equal parameters",
        (
            "The paper chooses the fixed sizes so that a PF-RNN and its RNN have 'roughly the same "
            f"number of trainable parameters'. Here: equal means within {100 * PARITY:.0f} %.",
        )
        if rows
        else ("No pair of a PF-RNN and its RNN has run yet.",),
        (table,) if rows else (),
    )
