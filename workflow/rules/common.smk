# What all rules share: the plan, and the names that follow from it. The only rule file with
# functions. The package reads and checks the configuration (pfrnn/study/scope.py).

import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

import pfrnn
from pfrnn.errors import PfrnnError
from pfrnn.study.data.registry import dataset
from pfrnn.study.files import digest_of
from pfrnn.study.provenance import source_digest
from pfrnn.study.recorded import evidence_digest
from pfrnn.study.records import OUTPUTS
from pfrnn.study.scope import forget_missed_import, scope_of, sources_digest
from pfrnn.study.workload import dataset_sizes, describe, job_resources, prepared_megabytes


wildcard_constraints:
    dataset="[a-z0-9_]+",
    variant="[a-z0-9_]+",
    protocol="[0-9a-f]{10}",
    block="h[0-9]+-k[0-9]+-b[0-9]+-[0-9a-f]{10}",
    cell="[a-z0-9_]+-(fixed|best)-[0-9a-f]{10}",
    selection="[a-z0-9_]+/[a-z0-9_]+-(fixed|best)-[0-9a-f]{10}",


def block_files(selection, *names):
    """Files of all blocks that a selection chooses from."""
    cell = PLAN.cell(f"selection/{selection}.json")
    return [f"{RESULTS}/{block.id}/{name}" for block in cell.blocks for name in names]


def final_files(*names):
    """Files of all finals."""
    finals = dict.fromkeys(cell.final_id for cell in PLAN.cells)
    return [f"{RESULTS}/{final}/{name}" for final in finals for name in names]


def job_outputs(folder, kind):
    """A job's files. update(): Snakemake does not delete them first, so finished work is kept."""
    return {Path(name).stem: update(f"{RESULTS}/{folder}/{name}") for name in OUTPUTS[kind]}


def needs(job, attempt):
    """Memory and time limit of a job, doubled at each retry: it goes on from its checkpoint."""
    return RESOURCES[job].doubled(attempt - 1)


# Where params.yaml and workflow/ lie: here, or in a pod, to which Snakemake brings the rules alone,
# the image's checkout.
HOME = Path() if Path("params.yaml").is_file() else Path(pfrnn.__file__).parents[1]
try:
    SCOPE = scope_of(config, workflow.configfiles, HOME, workflow.is_main_process)
except PfrnnError as error:
    raise WorkflowError(str(error)) from None
PLAN = SCOPE.plan
TIER = PLAN.config.tier
RESULTS = f"results/{TIER}"
RESOURCES = job_resources(PLAN, dataset_sizes(PLAN), prepared_megabytes(PLAN))
PREPARED = {name: f"data/prepared/{PLAN.prepared_id(name)}" for name in PLAN.protocols}
# Every record is a target: Snakemake makes a missing file again only where something asks for it.
SEARCH, FINAL = (("finished", *OUTPUTS[kind]) for kind in ("search", "final"))
RECORDS = [f"{RESULTS}/{block.id}/{name}" for block in PLAN.blocks for name in SEARCH]
RECORDS += [f"{RESULTS}/{cell.selection_id}" for cell in PLAN.cells] + final_files(*FINAL)
# Where a missing data set is an error, its raw files are targets that fail.
RECORDS += [f"data/raw/{name}/fetch.json" for name in SCOPE.missing if SCOPE.strict]

# Rules start the interpreter that runs Snakemake, so an environment need not be activated.
PYTHON = shlex.quote(sys.executable)
LOGGED = f"bash {HOME / 'workflow/scripts/logged'}"
PARAMS_OPTION = f"--params {PLAN.params}"
TIER_OPTIONS = f"{PARAMS_OPTION} --tier {TIER}"
MISSING_OPTIONS = " ".join(f"--missing {shlex.quote('='.join(x))}" for x in SCOPE.missing.items())
STAND_IN_OPTIONS = " ".join(f"--stand-in {name}" for name in SCOPE.stand_ins)
RECORDED_OPTION = f"--recorded {shlex.quote(str(SCOPE.recorded))}" if SCOPE.recorded else ""

if workflow.is_main_process:
    logger.info(describe(PLAN))
    for note in SCOPE.notes():
        logger.warning(note)
