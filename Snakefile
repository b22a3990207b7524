"""The study as a graph of jobs: raw file -> arrays -> blocks -> selection -> finals -> report.

    snakemake --cores 2 --config tier=quick        the small tables, on a laptop
    snakemake --cores 16 --resources gpu=4         the tier that params.yaml names
    snakemake --config tier=gpu recorded=reports   the rest of a study whose slices are recorded
    snakemake -n --quiet rules                     what would run, counted

Settings lie in profiles/default (found by itself); workflow/profiles/ has others. The rules are
thin: each calls one command of the package, which can be called by hand just as well.
"""

from snakemake.utils import min_version

min_version("9.10")


report: "workflow/captions/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/fetch.smk"
include: "workflow/rules/prepare.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/select.smk"
include: "workflow/rules/finalise.smk"
include: "workflow/rules/aggregate.smk"
include: "workflow/rules/track.smk"
include: "workflow/rules/report.smk"


# These take seconds and may need the network: on a cluster they run where Snakemake runs.
localrules: all, data, results, reports, fetch, select, aggregate, mlflow_import, report


# An import that MLflow's store did not take fails no run, and is not recorded as made either.
onsuccess:
    forget_missed_import(f"{RESULTS}/mlflow.json")


onerror:
    forget_missed_import(f"{RESULTS}/mlflow.json")
    logger.error(
        "Some jobs failed: the reasons stand above and in their logs. Run again when they are"
        " cured; what is finished stays. A report of what there is now:"
        f" pfrnn aggregate {TIER_OPTIONS} && pfrnn report {TIER_OPTIONS} {RECORDED_OPTION}"
    )


rule all:
    default_target: True
    input:
        RECORDS,
        [] if SCOPE.is_done else [f"{RESULTS}/mlflow.json", f"{RESULTS}/report/index.html"],


rule data:
    input:
        [f"{folder}/card.json" for folder in PREPARED.values()],
        [f"data/raw/{name}/fetch.json" for name in SCOPE.missing if SCOPE.strict],


rule results:
    input:
        RECORDS,
        [] if SCOPE.is_done else [f"{RESULTS}/results.csv"],


rule reports:
    input:
        RECORDS,
        [] if SCOPE.is_done else [f"{RESULTS}/report/index.html"],
