"""The paper's sentences that claim something about an order, and what is computed for each."""

from __future__ import annotations

from typing import NamedTuple

from pfrnn.study.report.cells import MAZES
from pfrnn.study.report.measures import Measure, against_reference, growth, order, trend

REGRESSION = ("nasdaq", "aep", "air", "pm")
CLASSIFICATION = ("lpa", "arem", "gas", "mr", "r52", "uid")
REAL = (*REGRESSION, *CLASSIFICATION)
ALL = (*MAZES, *REAL)


class Claim(NamedTuple):
    """One sentence.

    Attributes:
        name: short name, also its anchor.
        sentence: the paper's own words; "..." where some are left out.
        section: section of the paper, and its paragraph's heading where it has one.
        computed: what is computed.
        measure: score -> differences by stratum.
        table: anchor of the table that holds the numbers.
    """

    name: str
    sentence: str
    section: str
    computed: str
    measure: Measure
    table: str


PF = (("pf_lstm", "lstm"), ("pf_gru", "gru"))
_BAYES = (("pf_lstm", "bayes_lstm"), ("pf_gru", "bayes_gru"))
_ENSEMBLE = (("pf_lstm", "lstm_ensemble"), ("pf_gru", "gru_ensemble"))
_LOCALIZATION = "Robot Localization"
_TASKS = "General Sequence Prediction Tasks"
_GENERAL = f"{_TASKS}, Comparison with RNNs"
_ABLATION = "Ablation Study"


def _ablation(name: str, sentence: str, computed: str, other: str) -> Claim:
    measure = order(ALL, (("pf_lstm", other),))
    return Claim(name, sentence, _ABLATION, computed, measure, "table-5")


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "pf-maze",
        "PF-RNNs consistently outperform the corresponding RNNs.",
        _LOCALIZATION,
        "PF-LSTM over LSTM and PF-GRU over GRU on the three mazes, fixed size",
        order(MAZES, PF),
        "localization",
    ),
    Claim(
        "pf-maze-best",
        "PF-RNNs consistently outperform the corresponding RNNs.",
        _LOCALIZATION,
        "the same with the best size of each",
        order(MAZES, PF, "best"),
        "localization",
    ),
    Claim(
        "maze-growth",
        "The performance benefits become more pronounced, as the size of the maze grows ...",
        _LOCALIZATION,
        "advantage in log error on maze27 minus that on maze10, fixed size",
        growth("maze10", "maze27", PF),
        "localization",
    ),
    Claim(
        "pf-real",
        "PF-RNNs outperform the corresponding RNNs on 90% of the datasets ...",
        _GENERAL,
        "PF-LSTM over LSTM and PF-GRU over GRU on the ten real sets, fixed size",
        order(REAL, PF),
        "table-1",
    ),
    Claim(
        "pf-real-best",
        "PF-LSTM and PF-GRU are generally better than the LSTM and GRU, ... as well as with the "
        "best hyper-parameters within the model class.",
        _GENERAL,
        "the same with the best size of each",
        order(REAL, PF, "best"),
        "table-1",
    ),
    Claim(
        "pf-bayes",
        "PF-RNNs outperform Bayesian RNNs in 16 out of 20 cases ...",
        f"{_TASKS}, Comparison with Bayesian RNNs",
        "PF-LSTM over BayesLSTM and PF-GRU over BayesGRU on the ten real sets",
        order(REAL, _BAYES),
        "table-4",
    ),
    Claim(
        "bayes-rnn",
        "Bayesian RNNs can improve over RNNs ...",
        f"{_TASKS}, Comparison with Bayesian RNNs",
        "BayesLSTM over LSTM and BayesGRU over GRU on the ten real sets",
        order(REAL, (("bayes_lstm", "lstm"), ("bayes_gru", "gru"))),
        "table-4",
    ),
    Claim(
        "ensemble-rnn",
        "... ensembles of RNNs generally improve over a single RNN ...",
        f"{_TASKS}, Comparison with Ensembles",
        "LSTM-E over LSTM and GRU-E over GRU on the ten real sets",
        order(REAL, (("lstm_ensemble", "lstm"), ("gru_ensemble", "gru"))),
        "table-4",
    ),
    Claim(
        "pf-ensemble",
        "... the performance is substantially poorer than PF-RNNs for most datasets.",
        f"{_TASKS}, Comparison with Ensembles",
        "PF-LSTM over LSTM-E and PF-GRU over GRU-E on all thirteen sets",
        order(ALL, _ENSEMBLE),
        "table-4",
    ),
    Claim(
        "sota-better",
        "PF-RNNs, ... perform better than the SOTA on LPA, AREM, and GAS.",
        f"{_TASKS}, Comparison with the State-of-the-Art",
        "PF-LSTM-best and PF-GRU-best against the printed reference",
        against_reference(("lpa", "arem", "gas"), ("pf_lstm", "pf_gru"), True),
        "table-2",
    ),
    Claim(
        "sota-worse",
        "For NASDAQ, R52 and MR, SOTAs ... work better than PF-RNNs.",
        f"{_TASKS}, Comparison with the State-of-the-Art",
        "the printed reference against PF-LSTM-best and PF-GRU-best",
        against_reference(("nasdaq", "r52", "mr"), ("pf_lstm", "pf_gru"), False),
        "table-2",
    ),
    Claim(
        "particles",
        "Using more particles makes a better prediction in general.",
        _ABLATION,
        "slope of the score on log2 of the number of particles, on all thirteen sets",
        trend(ALL),
        "table-5",
    ),
    Claim(
        "particles-ends",
        "The general performance increases from PF-LSTM P1 to P30.",
        _ABLATION,
        "P30 over P1 on all thirteen sets",
        order(ALL, (("pf_lstm_p30", "pf_lstm_p1"),)),
        "table-5",
    ),
    _ablation(
        "resampling",
        "Soft-resampling improves the performance of PF-LSTM.",
        "PF-LSTM over NoResample on all thirteen sets",
        "pf_lstm_noresample",
    ),
    _ablation(
        "loss-elbo",
        "The combination of prediction loss and ELBO loss leads to better performance.",
        "than the prediction loss alone: PF-LSTM over NoELBO on all thirteen sets",
        "pf_lstm_noelbo",
    ),
    _ablation(
        "loss-prediction",
        "The combination of prediction loss and ELBO loss leads to better performance.",
        "than the ELBO alone: PF-LSTM over ELBOonly on all thirteen sets",
        "pf_lstm_elboonly",
    ),
    _ablation(
        "bnrelu",
        "The ReLU activation with batch normalization helps to train PF-LSTM.",
        "PF-LSTM over NoBNReLU on all thirteen sets",
        "pf_lstm_nobnrelu",
    ),
    _ablation(
        "bnrelu-lstm",
        "Simply using ReLU with batch normalization does not make LSTM better than PF-LSTM.",
        "PF-LSTM over LSTM-BNReLU on all thirteen sets",
        "lstm_bnrelu",
    ),
)
