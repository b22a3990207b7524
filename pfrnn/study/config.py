"""Typed models of params.yaml and its tier overlays; unknown keys are refused.

One file (``params.yaml``) holds every number that a result depends on. A tier is an overlay
(``workflow/tiers/<tier>.yaml``) that the same models validate. Settings of single data sets
(``overrides``) go through the same models again, so nothing escapes the check.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from pfrnn.errors import ConfigError
from pfrnn.study.strict import Layer
from pfrnn.study.strict import Strict as Strict
from pfrnn.study.strict import validate as validate
from pfrnn.study.variants import Variant
from pfrnn.study.yamlfile import read_yaml

# Each tier with what it is, as grid, the report and the README say it.
TIERS = {
    "smoke": "every variant on one maze, everything tiny; the numbers mean nothing",
    "quick": "three data sets (or R52 where some can't be had), four models, small",
    "quick_all": "every variant, small",
    "gpu": "the study at a reduced budget",
    "gpu_long": "the mazes' main models at three times tier gpu's epochs",
    "study": "the converged study that reports/plan.md fixes",
    "paper": "the paper's whole grid",
}
SizeRule = Literal["fixed", "best"]
Reduction = Literal["paper", "authors_code", "paper_decayed", "authors_code_undecayed"]
Size = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Refuse a value that stands twice: its rows would count twice in every interval."""
    twice = sorted({str(one) for one in values if values.count(one) > 1})
    if twice:
        raise ValueError(f"expected each value once, got {', '.join(twice)} more than once")
    return values


Once = AfterValidator(_distinct)


class Study(Strict):
    """What is run: the product of data sets, variants and size rules, less what is left out."""

    datasets: Annotated[tuple[str, ...], Once] = Field(
        default=tuple("maze10 maze18 maze27 nasdaq aep air pm lpa arem gas uid mr r52".split()),
        min_length=1,
        description="Data sets, by name.",
    )
    variants: Annotated[tuple[str, ...], Once] = Field(
        default=("lstm", "gru", "pf_lstm", "pf_gru"),
        min_length=1,
        description="Variants, by name (pfrnn/study/variants.py).",
    )
    size_rules: Annotated[tuple[SizeRule, ...], Once] = Field(
        default=("fixed", "best"),
        min_length=1,
        description="fixed: the paper's fixed sizes; best: also the search over sizes.",
    )
    substitutes: Annotated[tuple[str, ...], Once] = Field(
        default=(),
        description="Data sets that stand in where a listed one can't be had "
        "(execution.on_missing: report).",
    )


class FixedSizes(Strict):
    """Latent sizes and particles of the comparison at equal parameters."""

    pf: int = Field(default=64, ge=1, description="Hidden size of PF-LSTM and PF-GRU.")
    lstm: int = Field(default=80, ge=1, description="Of LSTM, its Bayesian and ensemble forms.")
    gru: int = Field(default=86, ge=1, description="Of GRU, its Bayesian and ensemble forms.")
    particles: int = Field(
        default=20, ge=1, description="Particles K; also the members of an ensemble."
    )


class SearchSizes(Strict):
    """Latent sizes and particles searched under the size rule ``best``."""

    pf: Annotated[tuple[Size, ...], Once] = Field(default=(64, 128, 256), min_length=1)
    particles: Annotated[tuple[Size, ...], Once] = Field(default=(20, 30), min_length=1)
    lstm: Annotated[tuple[Size, ...], Once] = Field(
        default=(80, 64, 128, 256, 512, 1024), min_length=1
    )
    gru: Annotated[tuple[Size, ...], Once] = Field(
        default=(86, 64, 128, 256, 512, 1024), min_length=1
    )


class Sizes(Strict):
    """Sizes of all models; localisation has its own number of particles in the paper."""

    localization: FixedSizes = FixedSizes(particles=30)
    other: FixedSizes = FixedSizes()
    best: SearchSizes = SearchSizes()
    parity: Literal["paper", "matched"] = Field(
        default="paper",
        description="paper: the printed sizes; matched: RNN sizes computed for equal parameters.",
    )


class Network(Strict):
    """The experiment network around the recurrent cell."""

    text: Literal["appendix", "main"] = Field(
        default="appendix",
        description="Which of the paper's two descriptions: one layer each side, or two.",
    )
    encoder_regression: Size = 64
    encoder_classification: Size = 128
    encoder_localization: Size = 64
    map_channels: Size = 8
    embedding: Size = 100
    dropout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Share of the cell's output (particles' states) zeroed in training.",
    )


class Switches(Strict):
    """Single switches of the particle cell, laid over the fidelity's preset; null keeps it."""

    activation: Literal["relu", "leaky_relu"] | None = None
    batch_norm: Literal["feature", "particle_slot"] | None = None
    noise_scale: Literal["linear", "softplus"] | None = None
    initial_state: Literal["zeros", "uniform"] | None = None
    gate_features: int | None = Field(
        default=None, ge=0, description="Width of u(x) and o(x); 0 feeds x itself to both."
    )
    gru_noise: Literal["hidden", "reset"] | None = None


class Filter(Strict):
    """The particle filter inside the PF cells."""

    fidelity: Literal["paper", "authors_code"] = "paper"
    switches: Switches = Switches()
    alpha: float = Field(default=0.5, gt=0, le=1, description="Mixture of soft resampling.")
    resampling: Literal["soft", "multinomial", "systematic", "none"] = "soft"

    @property
    def moved(self) -> dict[str, str | int]:
        """The switches that differ from what the fidelity says, by name."""
        moved: dict[str, str | int] = self.switches.model_dump(exclude_none=True)
        return moved

    @property
    def label(self) -> str:
        """The fidelity and its moved switches, in words."""
        moved = ", ".join(f"{name}={value}" for name, value in self.moved.items())
        return f"{self.fidelity} with {moved}" if moved else self.fidelity


class Loss(Strict):
    """L = prediction * L_pred + beta * L_ELBO, summed over time, mean over the batch."""

    prediction: float = Field(default=1.0, ge=0)
    beta: float = Field(default=1.0, ge=0)
    reduction: Reduction | None = Field(
        default=None,
        description="Sums, means and time weights of the filters' losses; null: the fidelity's. "
        "paper_decayed: the paper's with the release's decaying time weights, of mean one; "
        "authors_code_undecayed: the release's with equal time weights.",
    )


class Bayesian(Strict):
    """Bayes by Backprop (Fortunato 2017): scale-mixture prior and posterior start."""

    prior_pi: float = Field(default=0.25, gt=0, le=1)
    prior_log_sigma1: float = -1.0
    prior_log_sigma2: float = -7.0
    posterior_rho_init: float = -4.0
    sharpening: bool = False
    sharpening_rate: float = Field(
        default=0.02, ge=0, description="Step along the batch's gradient."
    )
    prediction_samples: Size = 10


class Grid(Strict):
    """Training settings searched for every cell."""

    learning_rate: Annotated[tuple[Positive, ...], Once] = Field(
        default=(1e-4, 3e-4, 5e-4), min_length=1
    )
    batch_size: Annotated[tuple[Size, ...], Once] = Field(default=(32, 64, 128), min_length=1)
    clip: Annotated[tuple[Positive, ...], Once] = Field(
        default=(3.0, 5.0), min_length=1, description="Bound on the gradient norm."
    )
    l2: Annotated[tuple[Annotated[float, Field(ge=0)], ...], Once] = Field(
        default=(1e-3, 1e-4), min_length=1
    )
    dropout: Annotated[tuple[Annotated[float, Field(ge=0, lt=1)], ...], Once] = Field(
        default=(), description="Rates of dropout; none: network.dropout for all."
    )


class Training(Strict):
    """How one member is trained."""

    max_epochs: Size = 200
    patience: int = Field(default=20, ge=1, description="Epochs without a better validation score.")
    bptt: int = Field(default=100, ge=1, description="Steps after which the gradient is cut.")
    rmsprop_decay: float = Field(default=0.99, gt=0, lt=1)
    rmsprop_eps: Positive = 1e-8
    validation_passes: Size = 1


class Evaluation(Strict):
    """How the selected setting is retrained and tested."""

    repetitions: Size = 6
    repetitions_of: dict[str, Size] = Field(
        default={}, description="Of single variants, by name; the others have `repetitions`."
    )
    ensemble_repetitions: Size = 1
    passes: int = Field(
        default=10, ge=1, description="Passes a stochastic filter's metric is averaged over."
    )
    confidence: float = Field(default=0.95, gt=0, lt=1)
    bootstrap: int = Field(default=2000, ge=100)

    def repetitions_for(self, variant: Variant) -> int:
        """How many times a variant's selected setting is retrained."""
        if variant.kind == "ensemble":
            return self.ensemble_repetitions
        return self.repetitions_of.get(variant.name, self.repetitions)


class Execution(Strict):
    """How jobs run. Not part of a result's digest, but for a precision other than the default."""

    threads: Size = 1
    device: Literal["auto", "cpu", "cuda"] = "auto"
    checkpoint_minutes: Positive = 5
    precision: Literal["tf32", "ieee"] = Field(default="tf32", description="Of fused products.")
    steps_per_second: float | None = Field(
        default=None, gt=0, description="Measured rate, for predicted hours; null: as on one H200."
    )
    on_missing: Literal["error", "report"] = Field(
        default="error", description="A missing data set: an error, or a line in the report."
    )


class Config(Strict):
    """All of params.yaml, one tier's overlay applied; the defaults are the shipped values."""

    tier: str = "gpu"
    seed: int = Field(default=2020, ge=0)
    study: Study = Study()
    datasets: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="Protocol of each data set; each set's own model validates it.",
    )
    sizes: Sizes = Sizes()
    network: Network = Network()
    filter: Filter = Filter()
    loss: Loss = Loss()
    bayesian: Bayesian = Bayesian()
    grid: Grid = Grid()
    training: Training = Training()
    evaluation: Evaluation = Evaluation()
    execution: Execution = Execution()
    overrides: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="Settings of single data sets, merged over sizes, network, grid, training, …",
    )

    @property
    def fidelity_label(self) -> str:
        """The filters' fidelity in words: moved switches, another one's loss, dropout."""
        other, dropout = self.loss.reduction, self.network.dropout
        loss = "" if other in (None, self.filter.fidelity) else f", loss of {other}"
        return self.filter.label + loss + (f", dropout {dropout:g}" if dropout else "")

    def for_variant(self, model: Variant) -> Config:
        """Return the configuration with this variant's own fidelity; the same object if it is that.

        ``for_dataset`` comes first: a variant that names its fidelity has it on every data set.
        """
        if model.fidelity is None:
            return self
        merged = merge(self.model_dump(mode="python"), model.fidelity.overlay())
        own = validate(Config, merged, f"variant {model.name}")
        return self if own.fidelity_label == self.fidelity_label else own

    def for_dataset(self, name: str) -> Config:
        """Return the configuration with this data set's overrides applied and validated."""
        patch = self.overrides.get(name)
        if not patch:
            return self
        merged = merge(self.model_dump(mode="python", exclude={"overrides"}), patch)
        return validate(Config, merged, f"overrides.{name}")


def merge(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Merge ``overlay`` over ``base``: mappings by key, everything else replaced whole."""
    merged = dict(base)
    for key, value in overlay.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = merge(old, value) if both else value  # type: ignore[arg-type]
    return merged


def load_config(
    params: Path | str = "params.yaml",
    tier: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    overrides_name: str = "overrides",
    shipped: Mapping[str, Mapping[str, Any]] | None = None,
) -> Config:
    """Read params.yaml, lay the tier's overlay over it, then ``overrides``; validate the whole.

    Args:
        params: the base file. Overlays lie in ``workflow/tiers/`` beside it. Further files after
            commas are laid over the tier's overlay, in turn: ``params.yaml,mine.yaml``.
        tier: the tier's name; when None the last ``tier`` among the further files and overrides,
            or else the base file's: what Snakemake does with ``--configfile mine.yaml``.
        overrides: further values, of the same shape as params.yaml.
        overrides_name: where they come from, for messages.
        shipped: the protocol that each data set has by default, for :func:`_check_in_force`.

    Raises:
        ConfigError: a file is missing or not YAML, a key is unknown or stands twice, a value has
            the wrong type, or a changed value is not in force under this tier.
    """
    path, *further = (Path(part) for part in str(params).split(","))
    base = Layer(str(path), read_yaml(path, _cure(path)))
    patches = [Layer(str(each), read_yaml(each)) for each in further]
    patches.append(Layer(overrides_name, overrides or {}))
    named = [layer for layer in (base, *patches) if "tier" in layer.values]
    name = tier or (named[-1].values["tier"] if named else None)
    if name not in TIERS:
        where = f"{named[-1].name}: " if named and tier is None else ""
        came = f"got {name!r}" if named or tier else f"{path} names none; {_on_top(path)}"
        raise ConfigError(f"{where}tier: expected one of {', '.join(TIERS)}, {came}")
    overlay = path.parent / "workflow" / "tiers" / f"{name}.yaml"
    beside = f"the tiers' files lie in workflow/tiers beside the base file; {_on_top(path)}"
    own = Layer(str(overlay), read_yaml(overlay, beside))
    if "tier" in own.values:
        raise ConfigError(f"{overlay}: tier: the file's name says it; remove the key")
    _check_in_force(base, own, shipped)
    layers = [base, own, *patches]
    values: dict[str, Any] = {}
    for layer in layers:
        values = merge(values, layer.values)
    return validate(Config, values | {"tier": name}, str(params), layers)


def _check_in_force(
    base: Layer, tier: Layer, protocols: Mapping[str, Mapping[str, Any]] | None
) -> None:
    """Raise if a value that someone changed in the base file is replaced by the tier's.

    `dvc exp run -S training.max_epochs=777` changes the base file, and DVC would record the 777
    beside numbers that were made with the tier's value.
    """
    shipped: dict[str, Any] = Config().model_dump(mode="json") | {"datasets": protocols or {}}
    for keys in _leaves(tier.values):
        value, default = _at(base.values, keys), _at(shipped, keys)
        if value is None or default is None or value == default:
            continue
        name = ".".join(keys)
        raise ConfigError(
            f"{base.name}: {name}: {value!r} is not in force: {tier.name} has "
            f"{_at(tier.values, keys)!r}; change it there (dvc exp run -S "
            f"'{tier.name}:{name}=...') or lay a file of yours over both (snakemake --configfile "
            f"FILE, pfrnn ... --params {base.name},FILE)"
        )


def _leaves(values: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from ((key, *rest) for rest in _leaves(value))
        else:
            yield (key,)


def _at(values: Any, keys: Sequence[str]) -> Any:
    """What stands at a path of keys; None for nothing."""
    for key in keys:
        values = values.get(key) if isinstance(values, Mapping) else None
    return values


def further_files(params: Path | str) -> tuple[str, ...]:
    """Return the parameter files that are laid over the base file.

    Example:
        >>> further_files("params.yaml,mine.yaml")
        ('mine.yaml',)
    """
    return tuple(str(params).split(",")[1:])


def options_of(tier: str, params: Path | str = "params.yaml") -> str:
    """Return the options that give a command a study's tier and parameters.

    Example:
        >>> options_of("quick", "params.yaml,mine.yaml")
        '--tier quick --params params.yaml,mine.yaml'
    """
    given = "" if str(params) == "params.yaml" else f" --params {shlex.quote(str(params))}"
    return f"--tier {tier}{given}"


def _cure(path: Path) -> str:
    """What to do where the base file is missing."""
    if path == Path("params.yaml"):
        return "run from the repository's root, or name the root's params.yaml (--params)"
    return "expected the base file of all parameters, the repository's params.yaml"


def _on_top(path: Path) -> str:
    """How a file of some parameters is named, should ``path`` be one."""
    return f"to lay {path} over the repository's parameters, write --params params.yaml,{path}"


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of params.yaml (workflow/schemas/params.schema.json)."""
    return Config.model_json_schema()
