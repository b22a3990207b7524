"""What one run of the workflow does here: its plan, which data sets are missing, what is recorded.

Snakemake's ``config`` holds what ``--config`` and ``--configfile`` give: four keys of the
workflow's own, and parameters that are laid over the tier's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from pfrnn.study.config import load_config, merge
from pfrnn.study.data.availability import Choice, choose, with_sets
from pfrnn.study.data.registry import dataset
from pfrnn.study.data.state import check_untouched
from pfrnn.study.devices import visible_devices
from pfrnn.study.files import digest_of, read_json, write_json
from pfrnn.study.plan import Plan, make_plan, shipped_protocols
from pfrnn.study.rates import START_SECONDS
from pfrnn.study.recorded import rest_of
from pfrnn.study.workload import dataset_sizes, workload
from pfrnn.study.yamlfile import read_yaml

# Of `config`: all other keys are parameters.
OWN_KEYS = ("tier", "strict", "fetched", "recorded")
TRUE = ("true", "1", "yes")
# How much longer than the GPU of the predicted hours one CPU core takes. Three PF-LSTMs, as a
# search has them (T 100, N 64, K 30, H 64): 3 x 482 ms a step on one thread, 3.9 ms on an H200.
CPU_FACTOR = 370


class Scope(NamedTuple):
    """What a run does here.

    Attributes:
        plan: of the data sets that are to be had.
        missing: data set that is left out -> why.
        stand_ins: substitutes that run in their place.
        recorded: folder of a report whose evidence counts as done, or None.
        strict: whether a missing data set is an error.
    """

    plan: Plan
    missing: Mapping[str, str]
    stand_ins: tuple[str, ...]
    recorded: Path | None
    strict: bool

    @property
    def is_done(self) -> bool:
        """Whether all that could run is recorded."""
        return bool(self.recorded and not self.plan.cells and not self.missing)

    def notes(self) -> list[str]:
        """Say what is left out, and what stands in for it."""
        lines = []
        if self.recorded:
            words = "left out is what is" if self.plan.cells else "nothing is left to run: all is"
            lines.append(f"{words} recorded in {self.recorded}; `make report` merges the two")
        lines += [f"data set {name} is left out: {why}" for name, why in self.missing.items()]
        if self.stand_ins:
            lines.append(f"standing in for them: {', '.join(self.stand_ins)}")
        return lines + self._without_gpu()

    def _without_gpu(self) -> list[str]:
        """Say what a study that is meant for a GPU takes where there is none."""
        execution = self.plan.config.execution
        meant = execution.device != "cpu" and execution.steps_per_second is None
        if not (meant and self.plan.cells) or visible_devices(os.environ):
            return []
        load = workload(self.plan, dataset_sizes(self.plan))
        starts = (load.blocks + load.finals) * START_SECONDS / 3600
        return [
            f"no GPU on this machine: at most {CPU_FACTOR * (load.hours - starts):,.0f} hours on "
            "one CPU core; the small tables take minutes: snakemake --cores 2 --config tier=quick"
        ]


def scope_of(
    asked: Mapping[str, Any], files: Iterable[str | Path], home: Path, is_main: bool
) -> Scope:
    """Return what a run does here.

    Args:
        asked: Snakemake's ``config``.
        files: those of ``--configfile``; a key that stands twice in one is an error.
        home: folder of params.yaml and workflow/.
        is_main: False in a job that Snakemake starts elsewhere. That must see the same graph or
            more, and its inputs exist already, so nothing is looked for.

    Raises:
        ConfigError: a parameter is unknown or wrong.
        DataError: a raw file was changed after it was fetched.
        RecordError: what is recorded is not of this study, or of other data.
    """
    names = [str(name) for name in files]
    for name in names if is_main else ():
        read_yaml(Path(name))
    values = {key: _parsed(value) for key, value in asked.items() if key not in OWN_KEYS}
    where = " or ".join([*names, "--config"])
    config = load_config(
        home / "params.yaml", asked.get("tier"), values, where, shipped_protocols()
    )
    strict = _is_on(asked, "strict") or config.execution.on_missing == "error"
    recorded = Path(str(asked["recorded"])) if asked.get("recorded") else None
    # Substitutes included: all that may run.
    wide = make_plan(with_sets(config, config.study.substitutes), _written(values))
    if recorded and is_main:
        wide = rest_of(wide, recorded)
    choice = Choice({}, () if strict else config.study.substitutes)
    if is_main:
        prepared = {name: Path("data/prepared", wide.prepared_id(name)) for name in wide.protocols}
        choice = choose(config.study, prepared, "data/raw", _is_on(asked, "fetched"))
    stand_ins = () if strict else choice.stand_ins
    config = with_sets(config, stand_ins)
    if stand_ins:
        values = merge(values, {"study": {"datasets": list(config.study.datasets)}})
    kept = {
        name: wide.protocols[name]
        for name in config.study.datasets
        if name in wide.protocols and name not in choice.missing
    }
    cells = tuple(cell for cell in wide.cells if cell.dataset in kept)
    plan = Plan(config, kept, cells, _written(values))
    for name in kept if is_main else ():
        check_untouched(dataset(name).card, Path("data/raw", name))
    return Scope(plan, choice.missing, stand_ins, recorded, strict)


def _is_on(asked: Mapping[str, Any], key: str) -> bool:
    return str(asked.get(key, "")).lower() in TRUE


def _parsed(value: Any) -> Any:
    """Read a value as YAML does: ``--config 'training={max_epochs: 1}'`` delivers text."""
    if isinstance(value, Mapping):
        return {key: _parsed(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_parsed(one) for one in value]
    return yaml.safe_load(value) if isinstance(value, str) else value


def _written(values: Mapping[str, Any]) -> str:
    """Return the option value by which every command reads the same parameters.

    They go into a file that is named by its content, so that a job started later, elsewhere, or by
    another Snakemake finds what it was planned with.
    """
    if not values:
        return "params.yaml"
    path = Path("results", "overrides", f"{digest_of(values)}.yaml")
    if not path.exists():
        write_json(path, values)
    return f"params.yaml,{path}"


def forget_missed_import(summary: str | Path) -> None:
    """Remove the summary of an import that MLflow's store did not take: the next run imports."""
    path = Path(summary)
    if path.is_file() and read_json(path).get("missed"):
        path.unlink()


def sources_digest(name: str) -> str:
    """Digest of what a data set's raw files must be and where they come from."""
    card = dataset(name).card
    files = [list(file) for file in card.files]
    addresses = [[address.url, dict(address.members)] for address in card.addresses]
    return digest_of([files, addresses])
