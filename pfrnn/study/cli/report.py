"""``pfrnn report``: tables, figures and one page from a tier's results."""

from __future__ import annotations

import argparse
from pathlib import Path

from pfrnn.errors import ConfigError
from pfrnn.study.cli._common import (
    PREPARED,
    add_missing_option,
    add_study_options,
    check_readme,
    results_of,
)

EXAMPLE = "Example: pfrnn report --tier quick --results results/quick --out results/quick/report"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "report",
        help="write tables, figures and index.html",
        description="Write the report of a tier's results; what didn't run is said, not left out.",
        epilog=EXAMPLE,
    )
    add_study_options(parser)
    parser.add_argument("--prepared", type=Path, default=PREPARED)
    parser.add_argument("--out", type=Path, help="default: <results>/report")
    parser.add_argument(
        "--readme", type=Path, help="also write the summary into this README, between its markers"
    )
    add_missing_option(parser)
    parser.add_argument(
        "--stand-in",
        action="append",
        default=[],
        metavar="SET",
        help="a substitute that ran because of the missing sets; may be given several times",
    )
    parser.add_argument(
        "--recorded",
        type=Path,
        metavar="DIR",
        help="merge the results with the evidence in this folder: finals recorded there and absent "
        "from the results are kept (default: --out, where that is not the results' own report)",
    )
    parser.add_argument(
        "--drop",
        action="append",
        default=[],
        metavar="SET[/VARIANT]",
        help="give up its recorded results, as after its data changed; may be given several times",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the report and print where it is."""
    from pfrnn.study.report.readme import write_readme
    from pfrnn.study.report.report import write_report

    study = study_of(arguments.params, arguments.tier, dict(arguments.missing))
    study = study._replace(stand_ins=tuple(arguments.stand_in))
    results = results_of(arguments, study.tier)
    out = arguments.out or results / "report"
    check_readme(arguments.readme)
    made_folder(out)
    published = out.resolve() != (results / "report").resolve()
    if not arguments.missing and published:
        # Published from a run: what that run could not have is still what is missing.
        study = study_of(arguments.params, arguments.tier, missing_then(results))
    page = write_report(results, arguments.prepared, study, out, slices_of(arguments, results, out))
    if arguments.readme:
        write_readme(arguments.readme, page.parent)
    print(f"report: {page}")
    if not has_rows(results / "results.csv") and not has_rows(out / "results.csv"):
        print(empty_handed(results, study.tier, arguments.params))
    for name, reason in sorted(study.missing.items()):
        print(f"missing: {name}: {reason}")
    return 0


def made_folder(out: Path) -> None:
    """Make the report's folder.

    Raises:
        ConfigError: it can't be made.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {out}: can't be made ({error.strerror}); name another") from error


def has_rows(table: Path) -> bool:
    """Whether a table of results has a line below its header."""
    return table.is_file() and len(table.read_text(encoding="utf-8").splitlines()) > 1


def empty_handed(results: Path, tier: str, params: str) -> str:
    """Say that a report is without results, and where there are some."""
    from pfrnn.study.config import options_of
    from pfrnn.study.recorded import published_for

    table = results / "results.csv"
    lacking = f"{table} has no row below its header" if table.is_file() else f"no {table}"
    said = f"note: {lacking}, so nothing has run in this report"
    if published := published_for(tier):
        return f"{said}; committed results of the tier: {published / 'index.html'}"
    return f"{said}; `pfrnn aggregate {options_of(tier, params)}` writes it from finished jobs"


def slices_of(  # type: ignore[no-untyped-def]
    arguments: argparse.Namespace, results: Path, out: Path
):
    """Return the plan, and the evidence that the results are merged with.

    Raises:
        ConfigError: a set to drop is unknown, or there is nothing to drop it from.
        RecordError: --recorded names no evidence of this tier.
    """
    from pfrnn.study.data.registry import dataset
    from pfrnn.study.recorded import read_recorded, whole_plan
    from pfrnn.study.report.report import Slices
    from pfrnn.study.variants import variant

    for name in arguments.drop:
        given, _, model = name.partition("/")
        dataset(given)
        if model:
            variant(model)
    if (results / "data" / "study.json").is_file():
        if arguments.drop or arguments.recorded:
            raise ConfigError(
                f"{results}: is the evidence of a report and rendered as it stands; to merge it or "
                "to drop parts of it, name it by --out, and a run's folder by --results"
            )
        return None
    plan = whole_plan(arguments.params, arguments.tier)
    recorded = arguments.recorded
    if recorded:
        read_recorded(recorded, plan)
    elif out.resolve() != (results / "report").resolve():
        recorded = out
    return Slices(plan, recorded, tuple(arguments.drop))


def missing_then(results: Path) -> dict[str, str]:
    """Return the sets that the tier's own run could not have, by the report it left there.

    A set that has results by now is not among them.
    """
    from pfrnn.study.recorded import read_part
    from pfrnn.study.report.evidence import read_results

    recorded, table = results / "report" / "data" / "study.json", results / "results.csv"
    if not (recorded.is_file() and table.is_file()):
        return {}
    ran = set(read_results(table)["dataset"])
    missing: dict[str, str] = read_part(results / "report", "study.json")["missing"]
    return {name: reason for name, reason in missing.items() if name not in ran}


def study_of(params: str, tier: str | None, missing: dict[str, str]):  # type: ignore[no-untyped-def]
    """Return what a tier set out to run, with its missing sets."""
    from pfrnn.study.config import further_files, load_config
    from pfrnn.study.data.registry import dataset, dataset_names
    from pfrnn.study.report.evidence import Study

    config = load_config(params, tier)
    known = dataset_names()
    return Study(
        tier=config.tier,
        datasets=config.study.datasets,
        variants=config.study.variants,
        size_rules=config.study.size_rules,
        own_variants={
            name: list(own)
            for name in config.study.datasets
            if (own := config.for_dataset(name).study.variants) != config.study.variants
        },
        confidence=config.evaluation.confidence,
        missing=missing,
        missing_files={
            name: [file.name for file in dataset(name).card.files]
            for name in missing
            if name in known
        },
        parameter_files=further_files(params),
    )
