"""What a tier runs: cells, blocks, finals, their digests and paths. Pure; reads no result.

- A *cell* is one number to fill: (data set, variant, size rule).
- A *block* is one training job: (data set, variant, hidden size, particles, batch size), all its
  members (learning rate x clip x L2) side by side.
- A cell is searched over its blocks, selected on validation, retrained as a *final* block.

Every path holds a digest of the resolved parameters, so that a changed parameter is a missing
file, also in a clone that has none of Snakemake's metadata.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pfrnn.errors import ConfigError, suggestion
from pfrnn.study.config import Config, SizeRule, load_config, options_of
from pfrnn.study.data.base import Card, Protocol, protocol_digest
from pfrnn.study.data.registry import dataset, dataset_names, protocol
from pfrnn.study.files import digest_of
from pfrnn.study.resolved import resolved_parameters
from pfrnn.study.variants import Variant, matched_hidden, searched, variant


class Setting(NamedTuple):
    """One point of the training grid.

    ``dropout`` None takes the network's; it then counts in no digest.
    """

    learning_rate: float
    clip: float
    l2: float
    dropout: float | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Setting:
        """Read it from a selection's entry."""
        return cls(*(values.get(name) for name in cls._fields))  # type: ignore[arg-type]

    def plain(self) -> list[float]:
        """Return what a digest takes."""
        return [value for value in self if value is not None]


class Block(NamedTuple):
    """One training job of the search."""

    dataset: str
    variant: str
    hidden_size: int
    particles: int
    batch_size: int
    settings: tuple[Setting, ...]
    digest: str

    @property
    def id(self) -> str:
        """Path below ``results/<tier>/``, also the job's name everywhere."""
        size = f"h{self.hidden_size}-k{self.particles}-b{self.batch_size}"
        return f"search/{self.dataset}/{self.variant}/{size}-{self.digest}"


class Cell(NamedTuple):
    """One (data set, variant, size rule) and the blocks it is selected from.

    ``trained`` names the variant in the paths: an ablation that equals a main variant on this
    data set (pf_lstm_p30 on the mazes) shares its selection and final, so nothing runs twice.
    """

    dataset: str
    variant: str
    size_rule: SizeRule
    blocks: tuple[Block, ...]
    digest: str
    trained: str

    @property
    def selection_id(self) -> str:
        """Path of the selection file below ``results/<tier>/``."""
        return f"selection/{self.dataset}/{self.trained}-{self.size_rule}-{self.digest}.json"

    @property
    def final_id(self) -> str:
        """Path of the final's folder below ``results/<tier>/``."""
        return f"final/{self.dataset}/{self.trained}-{self.size_rule}-{self.digest}"


class Plan(NamedTuple):
    """Everything that a tier runs.

    Attributes:
        config: the tier's configuration.
        protocols: of each data set.
        cells: what is to be filled.
        params: the parameter files that it was read from, for commands in messages.
    """

    config: Config
    protocols: Mapping[str, Protocol]
    cells: tuple[Cell, ...]
    params: str

    @property
    def options(self) -> str:
        """The options that give a command this plan."""
        return options_of(self.config.tier, self.params)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All search blocks; one shared by several cells stands here once."""
        return tuple(dict.fromkeys(block for cell in self.cells for block in cell.blocks))

    def prepared_id(self, name: str) -> str:
        """Folder of a data set's prepared arrays below ``data/prepared/``."""
        return f"{name}-{protocol_digest(name, self.protocols[name], self.config.seed)}"

    def config_of(self, dataset_name: str, model: Variant) -> Config:
        """Return the configuration that a variant has on a data set."""
        return self.config.for_dataset(dataset_name).for_variant(model)

    def block(self, block_id: str) -> Block:
        """Find a search block by its id; KeyError where the configuration has no such block."""
        found: Block = _by_id(self)[block_id]
        return found

    def cell(self, final_or_selection_id: str) -> Cell:
        """Find a cell by the id of its selection or of its final."""
        found: Cell = _by_id(self)[final_or_selection_id]
        return found


def prepare_again(folder: Path, plan: Plan | None) -> str:
    """Say how damaged prepared arrays are had again, for the end of a message.

    Args:
        folder: of the arrays.
        plan: the one that they are for, where it is known.
    """
    name = folder.name.rpartition("-")[0]
    if plan is None:
        return f"remove {folder} and run `pfrnn prepare {name}` with the run's --tier and --params"
    return f"remove {folder} and run `pfrnn prepare {name} {plan.options}`"


@functools.lru_cache(maxsize=4)
def _index(cells: tuple[Cell, ...]) -> dict[str, Any]:
    index: dict[str, Any] = {}
    for cell in cells:
        for shared in (cell.selection_id, cell.final_id):
            index.setdefault(shared, cell)
        index.update((block.id, block) for block in cell.blocks)
    return index


def _by_id(plan: Plan) -> dict[str, Any]:
    return _index(plan.cells)


def make_plan(config: Config, params: Path | str) -> Plan:
    """Derive the plan of a validated configuration.

    Args:
        config: the tier's configuration.
        params: the parameter files that it was read from. No default: a message that leaves a
            study's own files out names a command for another study.

    Raises:
        ConfigError: an unknown data set or variant, or a protocol that doesn't validate.
    """
    for section, names in (
        ("datasets", config.datasets),
        ("overrides", config.overrides),
        ("study.substitutes", config.study.substitutes),
    ):
        _check_names(section, names)
    protocols = {
        name: protocol(name, config.datasets.get(name, {})) for name in config.study.datasets
    }
    cells = []
    for name in config.study.datasets:
        resolved = config.for_dataset(name)
        data_digest = protocol_digest(name, protocols[name], config.seed)
        for variant_name in resolved.study.variants:
            for rule in resolved.study.size_rules:
                if rule == "best" and not searched(variant_name):
                    continue
                cells.append(
                    _cell(resolved, dataset(name).card, variant(variant_name), rule, data_digest)
                )
    return Plan(config, protocols, tuple(cells), str(params))


def _check_names(section: str, names: Iterable[str]) -> None:
    """Refuse a key that names no data set: it would change nothing, silently."""
    known = dataset_names()
    for name in names:
        if name not in known:
            raise ConfigError(f"{section}.{name}: unknown data set{suggestion(name, known)}")


def load_plan(
    params: Path | str = "params.yaml",
    tier: str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Plan:
    """Read the configuration of a tier and derive its plan."""
    return make_plan(load_config(params, tier, overrides, shipped=shipped_protocols()), params)


def shipped_protocols() -> dict[str, dict[str, Any]]:
    """Return the protocol that each data set has by default, as params.yaml ships it."""
    found = {}
    for name in dataset_names():
        # A set whose file is broken is named where it is asked for, not in every plan.
        with contextlib.suppress(ConfigError):
            found[name] = protocol(name, {}).model_dump(mode="json")
    return found


def _cell(config: Config, card: Card, model: Variant, rule: SizeRule, data_digest: str) -> Cell:
    blocks = tuple(
        _block(config, card.name, model, hidden, particles, batch, data_digest)
        for hidden, particles in sizes(config, card, model, rule)
        for batch in config.grid.batch_size
    )
    trained = model
    if rule == "fixed" and model.kind == "particle":
        main = _shared_form(config, model)
        if sizes(config, card, main, rule) == sizes(config, card, model, rule):
            trained = main
    digest = digest_of(_cell_parameters(config, card, trained, blocks))
    return Cell(card.name, model.name, rule, blocks, digest, trained.name)


def _cell_parameters(
    config: Config, card: Card, model: Variant, blocks: tuple[Block, ...]
) -> dict[str, Any]:
    members = members_of_ensemble(config, card) if model.kind == "ensemble" else 0
    evaluation = config.evaluation.model_dump(
        mode="json", exclude={"confidence", "bootstrap", "repetitions_of"}
    )
    if model.kind != "ensemble":
        evaluation["repetitions"] = config.evaluation.repetitions_for(model)
    return {
        "blocks": [block.digest for block in blocks],
        "evaluation": evaluation,
        "variant": model.switched(),
        "ensemble": members,
    }


def cell_parameters(plan: Plan, cell: Cell) -> dict[str, Any]:
    """Everything a final's numbers depend on: plain data, ``digest_of`` it is the cell's digest."""
    config = plan.config.for_dataset(cell.dataset)
    return _cell_parameters(config, dataset(cell.dataset).card, variant(cell.trained), cell.blocks)


def block_parameters(plan: Plan, block: Block) -> dict[str, Any]:
    """Everything a block's numbers depend on: plain data, ``digest_of`` it is its digest."""
    config = plan.config_of(block.dataset, variant(block.variant))
    data = protocol_digest(block.dataset, plan.protocols[block.dataset], config.seed)
    parameters = resolved_parameters(
        config, variant(block.variant), block.hidden_size, block.particles, block.batch_size, data
    )
    return parameters | {"settings": [setting.plain() for setting in block.settings]}


def sizes(config: Config, card: Card, model: Variant, rule: SizeRule) -> list[tuple[int, int]]:
    """Return the (hidden size, particles) pairs that a cell searches over.

    Particles are 0 for models that have none. An ensemble searches nothing of its own: it takes
    the setting selected for its single model, so its blocks are that model's.
    """
    fixed = config.sizes.localization if card.task == "localization" else config.sizes.other
    best = config.sizes.best
    if model.kind == "particle":
        particles = model.particles or fixed.particles
        if rule == "fixed":
            return [(fixed.pf, particles)]
        return list(itertools.product(best.pf, best.particles))
    if rule == "fixed":
        printed = fixed.lstm if model.cell == "lstm" else fixed.gru
        matched = config.sizes.parity == "matched"
        width = encoder_width(config, card)
        return [(matched_hidden(model.cell, width, fixed.pf) if matched else printed, 0)]
    return [(hidden, 0) for hidden in (best.lstm if model.cell == "lstm" else best.gru)]


def encoder_width(config: Config, card: Card) -> int:
    """Width of what the recurrent cell reads (text sets read their embedding instead)."""
    return {
        "regression": config.network.encoder_regression,
        "classification": config.network.encoder_classification,
        "localization": config.network.encoder_localization,
    }[card.task]


def members_of_ensemble(config: Config, card: Card) -> int:
    """Members of a bagging ensemble: the fixed number of particles (paper: 30 and 20)."""
    fixed = config.sizes.localization if card.task == "localization" else config.sizes.other
    return fixed.particles


def _block(
    config: Config,
    name: str,
    model: Variant,
    hidden: int,
    particles: int,
    batch: int,
    data_digest: str,
) -> Block:
    trained = variant(model.single) if model.single else model
    if trained.kind == "particle":
        # Blocks that train the same thing share their digest and their folder.
        trained = _shared_form(config, trained)
    config = config.for_variant(trained)
    grid, named = config.grid, trained.fidelity
    # A variant that names its dropout isn't searched over it.
    rates = () if named is not None and named.dropout is not None else grid.dropout
    points = itertools.product(grid.learning_rate, grid.clip, grid.l2, rates or (None,))
    settings = tuple(Setting(*point) for point in points)
    parameters = resolved_parameters(config, trained, hidden, particles, batch, data_digest)
    parameters["settings"] = [setting.plain() for setting in settings]
    digest = digest_of(parameters)
    return Block(name, trained.name, hidden, particles, batch, settings, digest)


def _shared_form(config: Config, model: Variant) -> Variant:
    """The main variant, for one that only fixes its particles or names the fidelity in force."""
    main = variant("pf_lstm")
    same = model._replace(name=main.name, label=main.label, particles=None, fidelity=None) == main
    return main if same and config.for_variant(model) is config else model
