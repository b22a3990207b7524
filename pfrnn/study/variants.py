"""Every model of the paper's tables, each defined once by the switches that it changes.

Besides, PF-LSTM between the paper's text and the authors' release, one switch at a time.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pfrnn.errors import ConfigError


class Fidelity(NamedTuple):
    """Where a variant stands between the paper's text and the authors' release.

    It replaces the configuration's own choice (``filter.fidelity``, ``filter.switches``,
    ``loss.reduction``) for this variant; ``dropout`` replaces ``network.dropout`` unless None.

    Attributes:
        preset: that the row starts from.
        moved: the switch that is moved from it to the other side's value; empty for none.
        switches: what ``filter.switches`` then holds.
        reduction: what ``loss.reduction`` then holds; None: as the preset.
        dropout: the release's value where it has it.
    """

    preset: Literal["paper", "authors_code"]
    moved: str = ""
    switches: tuple[tuple[str, str | int], ...] = ()
    reduction: str | None = None
    dropout: float | None = None

    def overlay(self) -> dict[str, Any]:
        """Return the configuration's keys that it replaces; a switch left out is the preset's."""
        switches: dict[str, str | int | None] = dict.fromkeys(_CELL)
        patch: dict[str, Any] = {
            "filter": {"fidelity": self.preset, "switches": switches | dict(self.switches)},
            "loss": {"reduction": self.reduction},
        }
        if self.dropout is not None:
            patch["network"] = {"dropout": self.dropout}
        return patch


class Variant(NamedTuple):
    """One row of the paper's tables.

    Attributes:
        name: the key in params.yaml and in every result row.
        label: the paper's spelling.
        cell: the gated cell; of an own one, the cell whose sizes, hours and memory it takes.
        kind: plain RNN, particle filter RNN, Bayesian RNN or bagging ensemble.
        particles: a number of particles that the variant fixes; None takes the configuration's.
        resampling: None takes the configuration's filter setting.
        batch_norm_relu: ReLU and batch norm on the candidate; False keeps tanh.
        prediction_loss: whether L_pred is part of the loss.
        elbo_loss: whether L_ELBO is part of the loss (particle variants only).
        single: for an ensemble, the variant whose selected setting its members take.
        fidelity: its own place between text and release; None takes the configuration's.
        own: name of an own cell (train/own.py) in place of the paper's; None takes the paper's.
    """

    name: str
    label: str
    cell: Literal["lstm", "gru"]
    kind: Literal["plain", "particle", "bayesian", "ensemble"]
    particles: int | None = None
    resampling: str | None = None
    batch_norm_relu: bool = False
    prediction_loss: bool = True
    elbo_loss: bool = False
    single: str | None = None
    fidelity: Fidelity | None = None
    own: str | None = None

    @property
    def stochastic(self) -> bool:
        """Whether two evaluations with different noise differ."""
        return self.kind in ("particle", "bayesian")

    def switched(self) -> dict[str, Any]:
        """Return what a digest takes: not the fidelity, which its configuration holds.

        ``own`` counts where there is one alone, so that the paper's models keep their digests.
        """
        left_out = {"fidelity"} if self.own else {"fidelity", "own"}
        return {name: value for name, value in self._asdict().items() if name not in left_out}


_PF_LSTM = Variant("pf_lstm", "PF-LSTM", "lstm", "particle", batch_norm_relu=True, elbo_loss=True)


def _ablation(suffix: str, label: str, **changes: object) -> Variant:
    return _PF_LSTM._replace(name=f"pf_lstm_{suffix}", label=f"PF-LSTM-{label}", **changes)  # type: ignore[arg-type]


_ALL = (
    Variant("lstm", "LSTM", "lstm", "plain"),
    Variant("gru", "GRU", "gru", "plain"),
    _PF_LSTM,
    _PF_LSTM._replace(name="pf_gru", label="PF-GRU", cell="gru"),
    Variant("bayes_lstm", "BayesLSTM", "lstm", "bayesian"),
    Variant("bayes_gru", "BayesGRU", "gru", "bayesian"),
    Variant("lstm_ensemble", "LSTM-E", "lstm", "ensemble", single="lstm"),
    Variant("gru_ensemble", "GRU-E", "gru", "ensemble", single="gru"),
    Variant("lstm_bnrelu", "LSTM-BNReLU", "lstm", "plain", batch_norm_relu=True),
    _ablation("p1", "P1", particles=1),
    _ablation("p5", "P5", particles=5),
    _ablation("p10", "P10", particles=10),
    _ablation("p20", "P20", particles=20),
    _ablation("p30", "P30", particles=30),
    _ablation("noresample", "NoResample", resampling="none"),
    _ablation("nobnrelu", "NoBNReLU", batch_norm_relu=False),
    _ablation("noelbo", "NoELBO", elbo_loss=False),
    _ablation("elboonly", "ELBOonly", prediction_loss=False),
)

VARIANTS: dict[str, Variant] = {variant.name: variant for variant in _ALL}


class Move(NamedTuple):
    """A row of the fidelity table that the code can move in a PF-LSTM (docs/fidelity.md).

    Attributes:
        switch: its key in a variant's name.
        text: what it is, for readers.
        paper: the value that the text has, or that is chosen where it is silent.
        release: the authors' release's value.
        back: whether a row moves it back from the whole release too.
    """

    switch: str
    text: str
    paper: str | int
    release: str | int
    back: bool = False


# Of the cell: the key of filter.switches is the switch itself. gru_noise is PF-GRU's alone.
_CELL = ("activation", "batch_norm", "noise_scale", "initial_state", "gate_features", "gru_noise")
DROPOUT = 0.5
MOVES: tuple[Move, ...] = (
    Move("activation", "activation of the candidate", "relu", "leaky_relu"),
    Move("batch_norm", "batch norm, channels by", "feature", "particle_slot", back=True),
    Move("noise_scale", "noise scale", "linear", "softplus"),
    Move("gate_features", "features u(x), o(x) before gates and weights", "none", 32),
    Move("initial_state", "initial state", "zeros", "uniform"),
    Move("loss", "the whole loss: time weights and sums", "paper", "authors_code", back=True),
    Move("time_weights", "of the loss, its time weights alone", "equal", "exp(0.1 t)"),
    Move("sums", "of the loss, its sums, means and ELBO form alone", "paper", "authors_code"),
    Move("dropout", "dropout on the particles' states", "the tier's", "0.5", back=True),
)
_REDUCTIONS = {
    "loss": "authors_code",
    "time_weights": "paper_decayed",
    "sums": "authors_code_undecayed",
}


def _fidelity_family() -> tuple[Variant, ...]:
    """PF-LSTM as the text has it, each switch moved to the release, the release, some moved back.

    One switch at a time from the text costs a row a switch and answers which one matters there.
    What is moved back from the release are the rows whose effect the others may change: the loss
    (its scale meets the clip and the L2 weight), batch norm (it rescales what activation, noise
    and start give it) and dropout (it regularises what the others let the network learn). All
    pairs would be 36 rows more.
    """

    def row(name: str, label: str, fidelity: Fidelity) -> Variant:
        words = label.replace("_", " ")
        return _PF_LSTM._replace(name=f"pf_lstm_{name}", label=words, fidelity=fidelity)

    rows = [row("paper", "PF-LSTM (text)", Fidelity("paper"))]
    for move in MOVES:
        switches = ((move.switch, move.release),) if move.switch in _CELL else ()
        dropout = DROPOUT if move.switch == "dropout" else None
        moved = Fidelity("paper", move.switch, switches, _REDUCTIONS.get(move.switch), dropout)
        rows.append(row(f"paper_{move.switch}", f"PF-LSTM (text + {move.switch})", moved))
    rows.append(row("release", "PF-LSTM (release)", Fidelity("authors_code", dropout=DROPOUT)))
    for move in MOVES:
        if move.back:
            switches = ((move.switch, move.paper),) if move.switch in _CELL else ()
            dropout = None if move.switch == "dropout" else DROPOUT
            reduction = "paper" if move.switch == "loss" else None
            moved = Fidelity("authors_code", move.switch, switches, reduction, dropout)
            rows.append(row(f"release_{move.switch}", f"PF-LSTM (release − {move.switch})", moved))
    return tuple(rows)


# Not rows of the paper's tables: no printed number belongs to them.
FIDELITY: dict[str, Variant] = {variant.name: variant for variant in _fidelity_family()}


# Your own models, one line each (docs/own_model.md): searched, trained and tested as the paper's,
# and reported in a table of their own.
_OWN: tuple[Variant, ...] = ()
OWN: dict[str, Variant] = {variant.name: variant for variant in _OWN}
# Searched over sizes, too, under the size rule ``best``, beside all of OWN.
SEARCHED = ("lstm", "gru", "pf_lstm", "pf_gru")


def searched(name: str) -> bool:
    """Whether a variant has a cell of the size rule ``best``."""
    return name in SEARCHED or name in OWN


def variant(name: str) -> Variant:
    """Look a variant up by name.

    Raises:
        ConfigError: no variant has this name.
    """
    found = VARIANTS.get(name) or FIDELITY.get(name) or OWN.get(name)
    if found is None:
        known = ", ".join([*VARIANTS, *FIDELITY, *OWN])
        raise ConfigError(f"unknown variant {name!r}; known variants: {known}")
    return found


def cell_parameters(cell: str, particle: bool, inputs: int, hidden: int) -> int:
    """Trainable numbers of a recurrent cell by the text's equations.

    A particle cell has the gates, the candidate and the noise scale, f_obs over input and hidden
    state, and batch norm's gain and shift; a plain cell its gates and candidate, one bias each.

    Args:
        cell: ``lstm`` or ``gru``.
        particle: whether it is PF-LSTM or PF-GRU.
        inputs: width of its input.
        hidden: H.

    Example:
        >>> cell_parameters("lstm", True, 64, 64), cell_parameters("gru", True, 64, 64)
        (41537, 33281)
    """
    gates = 4 if cell == "lstm" else 3
    if not particle:
        return gates * hidden * (inputs + hidden + 1)
    blocks = (gates + 1) * hidden * (inputs + hidden + 1)
    return blocks + (inputs + hidden + 1) + 2 * hidden


def matched_hidden(cell: str, inputs: int, particle_hidden: int) -> int:
    """Hidden size of the plain cell whose parameter count is nearest to the particle cell's.

    Example:
        >>> matched_hidden("lstm", 64, 64)
        74
    """
    wanted = cell_parameters(cell, True, inputs, particle_hidden)
    return min(
        range(1, 3 * particle_hidden + 1),
        key=lambda hidden: abs(cell_parameters(cell, False, inputs, hidden) - wanted),
    )
