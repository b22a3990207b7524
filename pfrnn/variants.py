"""Every model of the paper's tables, each defined once by the switches that it changes."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pfrnn.errors import ConfigError


class Variant(NamedTuple):
    """One row of the paper's tables.

    Attributes:
        name: the key in params.yaml and in every result row.
        label: the paper's spelling.
        cell: the gated cell.
        kind: plain RNN, particle filter RNN, Bayesian RNN or bagging ensemble.
        particles: a number of particles that the variant fixes; None takes the configuration's.
        resampling: None takes the configuration's filter setting.
        batch_norm_relu: ReLU and batch norm on the candidate; False keeps tanh.
        prediction_loss: whether L_pred is part of the loss.
        elbo_loss: whether L_ELBO is part of the loss (particle variants only).
        single: for an ensemble, the variant whose selected setting its members take.
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

    @property
    def stochastic(self) -> bool:
        """Whether two evaluations with different noise differ."""
        return self.kind in ("particle", "bayesian")


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


def variant(name: str) -> Variant:
    """Look a variant up by name.

    Raises:
        ConfigError: no variant has this name.
    """
    try:
        return VARIANTS[name]
    except KeyError:
        known = ", ".join(VARIANTS)
        raise ConfigError(f"unknown variant {name!r}; known variants: {known}") from None


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
