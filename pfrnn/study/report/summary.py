"""The top of the page: what ran, what it means, and how to read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pfrnn.study.report.cells import Cell, Lookup
from pfrnn.study.report.evidence import DIRTY, EXPLAINED_DIRTY, Evidence, Study
from pfrnn.study.report.matrices import KINDS, tier_note
from pfrnn.study.report.numbers import SYMBOLS
from pfrnn.study.report.verdicts import (
    BETTER,
    CONSISTENT,
    DIRECTION,
    NOISY,
    NOT_COMPARABLE,
    NOT_RUN,
    REDUCED_TIERS,
    WORSE,
)
from pfrnn.study.report.views import Tile

MEANINGS = {
    CONSISTENT: "the paper's number lies in the prediction interval for one further run, and that "
    "interval is narrow (at most a factor 1.5, or 3 points)",
    BETTER: "ours is better: the paper's number lies outside the interval, on its worse side",
    WORSE: "ours is worse: the paper's number lies outside the interval, on its better side",
    NOISY: "the paper's number lies in the interval, but the interval is too wide to mean much",
    DIRECTION: "values can't be compared; whether two methods stand in the paper's order can",
    NOT_COMPARABLE: "with the reason, e.g. a reduced tier or one repetition",
    NOT_RUN: "no result, with the reason",
}


class Legend(tuple[str, str, str, str]):
    """Symbol, word, kind and meaning of a verdict."""

    __slots__ = ()
    symbol = property(lambda self: self[0])
    word = property(lambda self: self[1])
    kind = property(lambda self: self[2])
    meaning = property(lambda self: self[3])


def legend() -> list[Legend]:
    """Return the verdicts with their meaning."""
    return [Legend((SYMBOLS[w], w, KINDS[w], meaning)) for w, meaning in MEANINGS.items()]


def banner(tier: str) -> str:
    """Return the warning of a reduced tier; empty otherwise."""
    if tier not in REDUCED_TIERS:
        return ""
    return (
        f"{tier_note(tier)} Sizes, grid, epochs or data are cut down so that it ends soon; its "
        "numbers show that the line from raw data to report works, and no verdict is given."
    )


def tiles(cells: Sequence[Cell], lookup: Lookup) -> list[Tile]:
    """Return the summary's numbers: cells run, verdicts, missing sets."""
    fillable = [cell for cell in cells if cell.number.variant is not None]
    ran = [cell for cell in fillable if cell.ours is not None]
    verdicts = Counter(cell.verdict.word for cell in ran)
    found = [Tile(f"{len(ran)} of {len(fillable)}", "of the paper's numbers have one of ours")]
    if lookup.evidence.study.tier not in REDUCED_TIERS:
        found += [
            Tile(str(verdicts[word]), word)
            for word in (CONSISTENT, BETTER, WORSE, NOISY, DIRECTION, NOT_COMPARABLE)
        ]
    results = lookup.evidence.results
    found.append(Tile(str(results["final_id"].nunique()), "settings retrained and tested"))
    found.append(Tile(str(len(lookup.evidence.study.missing)), "data sets missing"))
    return found


def sentences(cells: Sequence[Cell], lookup: Lookup) -> list[str]:
    """Say in words what ran and what is missing."""
    study, results = lookup.evidence.study, lookup.evidence.results
    if results.empty:
        said = ["Nothing has run yet: every cell below says why."]
    else:
        sets = ", ".join(sorted(set(results["dataset"])))
        variants = ", ".join(dict.fromkeys(results["variant"]))
        most = int(results.groupby("final_id")["repetition"].nunique().max())
        said = [f"Ran: {sets}; variants {variants}; up to {most} repetitions each."]
    if study.missing:
        names = "; ".join(f"{name} ({why})" for name, why in sorted(study.missing.items()))
        said.append(f"Missing: {names}. The section on missing data sets says how to add them.")
    if study.stand_ins:
        said.append(stand_in_sentence(study))
    excerpts = sorted({c.number.dataset for c in cells if c.ours and c.state.startswith("excerpt")})
    if excerpts:
        said.append(f"Excerpts of their data sets: {', '.join(excerpts)}.")
    return said


def stand_in_sentence(study: Study) -> str:
    """Say which sets stand in, and for which missing ones."""
    names, absent = sorted(study.stand_ins), sorted(study.missing)
    verb, copula = ("stands", "stand")[len(names) > 1], ("is", "are")[len(absent) > 1]
    return f"{', '.join(names)} {verb} in because {', '.join(absent)} {copula} missing."


def commits_said(evidence: Evidence) -> str:
    """Return the commits of all results, and what the mark of one means."""
    commits = joined(evidence.commits(), "none (nothing ran)")
    return f"{commits} ({EXPLAINED_DIRTY})" if DIRTY in commits else commits


def joined(values: Iterable[object], none: str) -> str:
    """Join distinct values in sorted order; ``none`` when there are none."""
    texts = sorted({str(value) for value in values if str(value) not in ("", "nan")})
    return ", ".join(texts) if texts else none
