# What all rules share: the configuration, the plan, which data can be had, names and digests.
# The only rule file with functions. `config` holds what --config and --configfile give;
# params.yaml and the tier's overlay are read, merged and checked by the package.

import os
import shlex
import sys
from base64 import b64encode
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

import pfrnn
from pfrnn.study.config import load_config, merge
from pfrnn.study.data.rawstate import check_untouched
from pfrnn.study.data.registry import dataset
from pfrnn.study.data.substitutes import Choice, choose, with_sets
from pfrnn.study.dvclock import hold as hold_dvc_lock
from pfrnn.errors import PfrnnError
from pfrnn.study.evaluate.selection import read_selection
from pfrnn.study.files import digest_of, write_json
from pfrnn.study.plan import make_plan
from pfrnn.study.provenance import source_digest
from pfrnn.study.recorded import evidence_digest, rest_of
from pfrnn.study.runlock import begin_run
from pfrnn.study.workload import dataset_sizes, describe, job_resources, prepared_megabytes
from pfrnn.study.yamlfile import read_yaml


wildcard_constraints:
    dataset="[a-z0-9_]+",
    variant="[a-z0-9_]+",
    protocol="[0-9a-f]{10}",
    block="h[0-9]+-k[0-9]+-b[0-9]+-[0-9a-f]{10}",
    cell="[a-z0-9_]+-(fixed|best)-[0-9a-f]{10}",
    selection="[a-z0-9_]+/[a-z0-9_]+-(fixed|best)-[0-9a-f]{10}",


def begin():
    """Hold the run's kernel lock; remove the locks of a run that was killed.

    Called by input functions: Snakemake evaluates them after it knows what it is to do and before
    it looks at its own locks. Neither a dry run nor --unlock or --summary (which have no executor)
    holds the lock, nor does a job's own Snakemake.
    """
    real = workflow.executor_plugin is not None and not workflow.dryrun
    if not (real and workflow.is_main_process and workflow.execution_settings.lock) or BEGUN:
        return
    try:
        removed = begin_run()
    except PfrnnError as error:
        raise WorkflowError(str(error)) from None
    BEGUN.append(True)
    if removed:
        logger.warning(
            f"a run was killed here: removed its {len(removed)} stale locks in .snakemake/locks"
        )


def start(wildcards):
    """No input: the first thing that Snakemake asks for in a run."""
    begin()
    return []


def overrides():
    """The part of `config` that changes parameters: all but the workflow's own keys."""
    own = ("tier", "strict", "fetched", "recorded")
    return {key: value for key, value in config.items() if key not in own}


def overrides_name():
    """Where `config` comes from, for messages."""
    return " or ".join([*map(str, workflow.configfiles), "--config"])


def check_configfiles():
    """Refuse a key that stands twice: Snakemake's own reading lets the second one win."""
    for name in workflow.configfiles if workflow.is_main_process else []:
        if Path(name).suffix != ".json":
            read_yaml(Path(name))


def asked(key):
    """Whether a switch stands on the command line, e.g. --config strict=true."""
    return str(config.get(key, "")).lower() in ("true", "1", "yes")


def parameters(stand_ins=()):
    """Return the option value that makes each command read what this file read.

    Overrides, and data sets that stand in, go into a file named by its content, so that a job
    started later, elsewhere, or by another Snakemake finds what it was planned with.
    """
    values = overrides()
    if stand_ins:
        values = merge(values, {"study": {"datasets": list(CONFIG.study.datasets)}})
    if not values:
        return "params.yaml"
    path = f"results/overrides/{digest_of(values)}.yaml"
    if not Path(path).exists():
        write_json(path, values)
    return f"params.yaml,{path}"


def strict():
    """Whether a data set that can't be had is an error."""
    return asked("strict") or CONFIG.execution.on_missing == "error"


def left(*files):
    """Files as targets, unless all that could be run is recorded."""
    return [] if RECORDED and not PLAN.cells and not MISSING else list(files)


def chosen():
    """Which data sets are missing here, and which ones stand in for them.

    Only the main process asks: a job that Snakemake starts elsewhere must see the same graph (or
    more), and its inputs exist already.
    """
    if not workflow.is_main_process:
        return Choice({}, () if strict() else CONFIG.study.substitutes)
    prepared = {name: Path("data/prepared", WHOLE_PLAN.prepared_id(name)) for name in SETS}
    choice = choose(CONFIG.study, prepared, "data/raw", asked("fetched"))
    return choice._replace(stand_ins=()) if strict() else choice


def check_raw():
    """Refuse raw files that were changed since they were fetched.

    Rules depend on fetch.json alone: which files a set has is known to the package, not to Snakemake.
    """
    for name in PLAN.protocols if workflow.is_main_process else ():
        check_untouched(dataset(name).card, Path("data/raw", name))


def available_plan():
    """The plan of the data sets that can be had."""
    had = SETS.keys() - MISSING.keys()
    kept = {name: SETS[name] for name in CONFIG.study.datasets if name in had}
    cells = tuple(cell for cell in WHOLE_PLAN.cells if cell.dataset in kept)
    return WHOLE_PLAN._replace(
        config=CONFIG, protocols=kept, cells=cells, params=parameters(STAND_INS)
    )


def announce():
    """Say what runs and for how long, before anything does."""
    logger.info(describe(PLAN))
    if RECORDED:
        words = "left out is what is" if PLAN.cells else "nothing is left to run: all is"
        logger.info(f"{words} recorded in {RECORDED}; `make report` merges the two")
    for name, reason in MISSING.items():
        logger.warning(f"data set {name} is left out: {reason}")
    if STAND_INS:
        logger.warning(f"standing in for them: {', '.join(STAND_INS)}")


def hold_dvc():
    """Keep DVC away while this run lives."""
    try:
        hold_dvc_lock()
    except PfrnnError as error:
        raise WorkflowError(str(error)) from None


def memory(job, attempt):
    """MB of main memory: doubled at each retry, for the job that was killed for want of it."""
    return RESOURCES[job].mem_mb * 2 ** (attempt - 1)


def minutes(job, attempt):
    """Time limit: doubled at each retry. A job goes on from its checkpoint."""
    return RESOURCES[job].minutes * 2 ** (attempt - 1)


def missing_data():
    """The raw files that can't be had, as targets: each then fails as its data set's error."""
    return [f"data/raw/{name}/fetch.json" for name in MISSING] if strict() else []


def raw_data(name):
    """A set's raw files; a simulated set has none."""
    begin()
    return [f"data/raw/{name}/fetch.json"] if dataset(name).card.files else []


def prepared_card(name):
    return f"data/prepared/{PREPARED[name]}/card.json"


def prepared_arrays(name):
    return f"data/prepared/{PREPARED[name]}/arrays.npz"


def prepared_cards():
    return [prepared_card(name) for name in PREPARED]


def block_files(selection, *names):
    """Files of all blocks that a selection chooses from."""
    begin()
    cell = CELLS[f"selection/{selection}.json"]
    return [f"{RESULTS}/{block.id}/{name}" for block in cell.blocks for name in names]


def selection_file(selection):
    """A final's selection. A damaged one is refused: what is there counts as made.

    Not made anew here: after it Snakemake would run the final again, which a clone without seals
    trains for hours. Selected by hand it has the bytes that it had, and no job follows.
    """
    cell = CELLS[f"selection/{selection}.json"]
    path = f"{RESULTS}/{cell.selection_id}"
    if reads_selections() and Path(path).exists() and searched(cell):
        try:
            read_selection(PLAN, cell, Path(RESULTS))
        except PfrnnError as error:
            raise WorkflowError(str(error)) from None
    return path


def reads_selections():
    """Whether this is a run, a dry one too, that takes selections as they are.

    --unlock, --summary, --delete-all-output and their like have no executor. Who forces the rule
    has all selections made anew.
    """
    settings = workflow.dag_settings
    forced = settings.forceall or "select" in settings.forcerun
    return workflow.is_main_process and workflow.executor_plugin is not None and not forced


def searched(cell):
    """Whether a cell's search is whole here: where it isn't, its selection is made anew anyway."""
    return all(
        Path(RESULTS, block.id, name).is_file() for block in cell.blocks for name in BLOCK_FILES
    )


def final_files(*names):
    finals = dict.fromkeys(cell.final_id for cell in PLAN.cells)
    return [f"{RESULTS}/{final}/{name}" for final in finals for name in names]


def records():
    """Every record of the tier, as targets.

    Snakemake makes a missing file again only where something asks for it: results.csv being there,
    a final with a new digest in its path would not be missed in a clone without metadata.
    """
    blocks = [f"{RESULTS}/{block}/{name}" for block in BLOCKS for name in BLOCK_FILES]
    selections = [f"{RESULTS}/{selection}" for selection in CELLS]
    return blocks + selections + final_files(*BLOCK_FILES, "test.csv", "errors.npz", "predictions.npz")


def mlflow_store():
    """The local store, unless a tracking server is named. ancient: imports change it.

    A store that was deleted is no ancient one: it is created anew, and then the records are
    imported anew. Nor is one whose making was cut short: Snakemake forces its rule, and passes
    over everything behind a forced job whose files are all ancient and there.
    """
    if os.environ.get("MLFLOW_TRACKING_URI"):
        return []
    if deleted_store() or unfinished("mlflow.db"):
        return ["mlflow.db"]
    return [ancient("mlflow.db")]


def unfinished(name):
    """Whether Snakemake was killed while the job that makes a file ran."""
    return Path(".snakemake/incomplete", b64encode(name.encode()).decode()).exists()


def deleted_store():
    """The local store if there was one: the lock of the imports stays, and is in no clone.

    A clone has nothing to do, though it has no store; `pfrnn mlflow-import` makes one.
    """
    there, imported = Path("mlflow.db").exists(), Path("results/.mlflow-import.lock").exists()
    wanted = imported and not there and not os.environ.get("MLFLOW_TRACKING_URI")
    return ["mlflow.db"] if wanted else []


def sources_digest(name):
    """Digest of what a data set's raw files must be and where they come from."""
    begin()
    card = dataset(name).card
    files = [list(file) for file in card.files]
    addresses = [[address.url, dict(address.members)] for address in card.addresses]
    return digest_of([files, addresses])


def settings_digest():
    """Digest of every parameter but how jobs run."""
    return digest_of(CONFIG.model_dump(mode="json", exclude={"execution"}))


BEGUN = []
# Where params.yaml and workflow/ lie: here. In a pod Snakemake unpacks the rules alone; there it is
# the image's checkout, from which the package is installed too.
HOME = Path() if Path("params.yaml").is_file() else Path(pfrnn.__file__).parents[1]
try:
    check_configfiles()
    CONFIG = load_config(
        HOME / "params.yaml", config.get("tier"), overrides(), overrides_name()
    )
    # --config recorded=DIR: a report whose evidence counts as done.
    RECORDED = Path(str(config["recorded"])) if config.get("recorded") else None
    # Substitutes included: what may run.
    WHOLE_PLAN = make_plan(with_sets(CONFIG, CONFIG.study.substitutes), parameters())
    # A job that Snakemake starts elsewhere may lack DIR, and must see the same graph or more.
    if RECORDED and workflow.is_main_process:
        WHOLE_PLAN = rest_of(WHOLE_PLAN, RECORDED)
    SETS = WHOLE_PLAN.protocols
    MISSING, STAND_INS = chosen()
    CONFIG = with_sets(CONFIG, STAND_INS)
    PLAN = available_plan()
    check_raw()
except PfrnnError as error:
    raise WorkflowError(str(error)) from None

TIER = CONFIG.tier
RESULTS = f"results/{TIER}"
BLOCKS = [block.id for block in PLAN.blocks]
BLOCK_FILES = ("run.json", "members.csv", "history.csv", "best.pt")
RESOURCES = job_resources(PLAN, dataset_sizes(PLAN), prepared_megabytes(PLAN))
CELLS = {cell.selection_id: cell for cell in PLAN.cells}
PREPARED = {name: PLAN.prepared_id(name) for name in PLAN.protocols}

# Rules start the interpreter that runs Snakemake, so an environment need not be activated.
PYTHON = shlex.quote(sys.executable)
LOGGED = f"bash {HOME / 'workflow/scripts/logged'}"
CONFIG_OPTIONS = f"--params {PLAN.params}"
TIER_OPTIONS = f"{CONFIG_OPTIONS} --tier {TIER}"
MISSING_OPTIONS = " ".join(
    f"--missing {shlex.quote(f'{name}={reason}')}" for name, reason in MISSING.items()
)
RECORDED_OPTIONS = f"--recorded {shlex.quote(str(RECORDED))}" if RECORDED else ""
STAND_IN_OPTIONS = " ".join(f"--stand-in {name}" for name in STAND_INS)

if workflow.is_main_process:
    announce()
