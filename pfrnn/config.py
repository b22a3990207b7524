"""Typed models of params.yaml and its tier overlays; unknown keys are refused.

One file (``params.yaml``) holds every number that a result depends on. A tier is an overlay
(``workflow/tiers/<tier>.yaml``) that the same models validate. Settings of single data sets
(``overrides``) go through the same models again, so nothing escapes the check.
"""

from __future__ import annotations

import difflib
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pfrnn.errors import ConfigError

TIERS = ("smoke", "quick", "quick_all", "gpu", "paper")
SizeRule = Literal["fixed", "best"]


class Strict(BaseModel):
    """A frozen model that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Study(Strict):
    """What is run: the product of data sets, variants and size rules, less what is left out."""

    datasets: tuple[str, ...] = Field(description="Data sets, by name.")
    variants: tuple[str, ...] = Field(description="Variants, by name (pfrnn/variants.py).")
    size_rules: tuple[SizeRule, ...] = Field(
        description="fixed: the paper's fixed sizes; best: also the search over sizes."
    )
    substitutes: tuple[str, ...] = Field(
        default=(),
        description="Data sets that stand in where a listed one can't be had "
        "(execution.on_missing: report).",
    )


class FixedSizes(Strict):
    """Latent sizes and particles of the comparison at equal parameters."""

    pf: int = Field(ge=1, description="Hidden size of PF-LSTM and PF-GRU.")
    lstm: int = Field(ge=1, description="Hidden size of LSTM, its Bayesian and ensemble forms.")
    gru: int = Field(ge=1, description="Hidden size of GRU, its Bayesian and ensemble forms.")
    particles: int = Field(ge=1, description="Particles K; also the members of an ensemble.")


class SearchSizes(Strict):
    """Latent sizes and particles searched under the size rule ``best``."""

    pf: tuple[int, ...]
    particles: tuple[int, ...]
    lstm: tuple[int, ...]
    gru: tuple[int, ...]


class Sizes(Strict):
    """Sizes of all models; localisation has its own number of particles in the paper."""

    localization: FixedSizes
    other: FixedSizes
    best: SearchSizes
    parity: Literal["paper", "matched"] = Field(
        description="paper: the printed sizes; matched: RNN sizes computed for equal parameters."
    )


class Network(Strict):
    """The experiment network around the recurrent cell."""

    text: Literal["appendix", "main"] = Field(
        description="Which of the paper's two descriptions: one layer each side, or two."
    )
    encoder_regression: int = Field(ge=1)
    encoder_classification: int = Field(ge=1)
    encoder_localization: int = Field(ge=1)
    map_channels: int = Field(ge=1)
    embedding: int = Field(ge=1)
    dropout: float = Field(ge=0, lt=1)


class Filter(Strict):
    """The particle filter inside the PF cells."""

    fidelity: Literal["paper", "authors_code"]
    alpha: float = Field(gt=0, le=1, description="Mixture of soft resampling.")
    resampling: Literal["soft", "multinomial", "systematic", "none"]


class Loss(Strict):
    """L = prediction * L_pred + beta * L_ELBO, summed over time, mean over the batch."""

    prediction: float = Field(ge=0)
    beta: float = Field(ge=0)


class Bayesian(Strict):
    """Bayes by Backprop (Fortunato 2017): scale-mixture prior and posterior start."""

    prior_pi: float = Field(gt=0, le=1)
    prior_log_sigma1: float
    prior_log_sigma2: float
    posterior_rho_init: float
    sharpening: bool
    prediction_samples: int = Field(ge=1)


class Grid(Strict):
    """Training settings searched for every cell."""

    learning_rate: tuple[float, ...] = Field(min_length=1)
    batch_size: tuple[int, ...] = Field(min_length=1)
    clip: tuple[float, ...] = Field(min_length=1, description="Bound on the gradient norm.")
    l2: tuple[float, ...] = Field(min_length=1)
    halving: bool = Field(description="Successive halving inside a block; off in tier paper.")


class Training(Strict):
    """How one member is trained."""

    max_epochs: int = Field(ge=1)
    patience: int = Field(ge=1, description="Epochs without a better validation score.")
    bptt: int = Field(ge=1, description="Steps after which the gradient is cut.")
    rmsprop_decay: float = Field(gt=0, lt=1)
    rmsprop_eps: float = Field(gt=0)
    validation_passes: int = Field(ge=1)


class Evaluation(Strict):
    """How the selected setting is retrained and tested."""

    repetitions: int = Field(ge=1)
    ensemble_repetitions: int = Field(ge=1)
    passes: int = Field(ge=1, description="Passes a stochastic filter's metric is averaged over.")
    confidence: float = Field(gt=0, lt=1)
    bootstrap: int = Field(ge=100)


class Execution(Strict):
    """How jobs run. Not part of any result's digest."""

    threads: int = Field(ge=1)
    device: Literal["auto", "cpu", "cuda"]
    checkpoint_minutes: float = Field(gt=0)
    steps_per_second: float | None = Field(
        gt=0, description="Measured rate, for predicted hours; null: as on one H200."
    )
    on_missing: Literal["error", "report"] = Field(
        description="A data set that can't be had: an error, or a line in the report."
    )


class Config(Strict):
    """All of params.yaml, one tier's overlay applied."""

    tier: str
    seed: int = Field(ge=0)
    study: Study
    datasets: dict[str, dict[str, Any]] = Field(
        description="Protocol of each data set; each set's own model validates it."
    )
    sizes: Sizes
    network: Network
    filter: Filter
    loss: Loss
    bayesian: Bayesian
    grid: Grid
    training: Training
    evaluation: Evaluation
    execution: Execution
    overrides: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="Settings of single data sets, merged over sizes, network, grid, training, …",
    )

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
) -> Config:
    """Read params.yaml, lay the tier's overlay over it, then ``overrides``; validate the whole.

    Args:
        params: the base file. Overlays lie in ``workflow/tiers/`` beside it. Further files after
            commas are laid over the tier's overlay, in turn: ``params.yaml,mine.yaml``.
        tier: the tier's name; the base file's ``tier`` when None.
        overrides: further values, of the same shape as params.yaml.

    Raises:
        ConfigError: a file is missing or not YAML, a key is unknown, a value has the wrong type.
    """
    path, *further = (Path(part) for part in str(params).split(","))
    values = _read_yaml(path)
    name = tier or values.get("tier")
    if name not in TIERS:
        raise ConfigError(f"tier: expected one of {', '.join(TIERS)}, got {name!r}")
    overlay = path.parent / "workflow" / "tiers" / f"{name}.yaml"
    for patch in (_read_yaml(overlay), *map(_read_yaml, further), overrides or {}):
        values = merge(values, patch)
    values["tier"] = name
    return validate(Config, values, str(params))


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; run from the repository's root") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected a mapping at the top, got {type(values).__name__}")
    return values


ModelT = typing.TypeVar("ModelT", bound=BaseModel)


def validate(model: type[ModelT], values: Mapping[str, Any], where: str) -> ModelT:
    """Validate ``values``; report every fault with its key's path and, for a typo, a proposal.

    Raises:
        ConfigError: with one line a fault.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        lines = [_describe(model, fault) for fault in error.errors()]
        raise ConfigError(f"{where}:\n  " + "\n  ".join(lines)) from error


def _describe(model: type[BaseModel], fault: Any) -> str:
    location = fault["loc"]
    path = ".".join(str(part) for part in location)
    if fault["type"] == "extra_forbidden":
        known = _fields_at(model, location[:-1])
        near = difflib.get_close_matches(str(location[-1]), known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(known)}"
        return f"{path}: unknown key{hint}"
    if fault["type"] == "missing":
        return f"{path}: missing; add it"
    return f"{path}: {fault['msg']}, got {fault['input']!r}"


def _fields_at(model: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    """Names of the fields of the model that stands at ``location`` inside ``model``."""
    current: Any = model
    for part in location:
        field = getattr(current, "model_fields", {}).get(part)
        current = field.annotation if field is not None else None
    return list(getattr(current, "model_fields", {}))


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of params.yaml (workflow/schemas/params.schema.json)."""
    return Config.model_json_schema()
