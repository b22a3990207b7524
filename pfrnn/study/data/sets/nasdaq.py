"""NASDAQ: minute prices of 81 stocks and the NASDAQ-100 index; the index of the same minute."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pfrnn.study.data.base import Address, Alternative, Arrays, Card, Dataset, Protocol, RawFile
from pfrnn.study.data.controls import linear_autoregression, linear_changes, persistence
from pfrnn.study.data.forecast import forecast_windows
from pfrnn.study.data.raw import Layout, Table, read_table
from pfrnn.study.data.scaling import Floats, Scaler, fit_scaler
from pfrnn.study.data.splits import by_time
from pfrnn.study.seeding import derive_seed

Rows = npt.NDArray[np.int64]

FILE = "nasdaq100_padding.csv"
TARGET = "NDX"
STOCKS = tuple(
    "AAL AAPL ADBE ADI ADP ADSK AKAM ALXN AMAT AMGN AMZN ATVI AVGO BBBY BIDU BIIB CA CELG CERN "
    "CMCSA COST CSCO CSX CTRP CTSH DISCA DISH DLTR EA EBAY ESRX EXPE FAST FB FOX FOXA GILD GOOGL "
    "INTC JD KHC LBTYA LBTYK LRCX MAR MAT MCHP MDLZ MSFT MU MXIM MYL NCLH NFLX NTAP NVDA NXPI "
    "PAYX PCAR PYPL QCOM QVCA ROST SBUX SIRI STX SWKS SYMC TMUS TRIP TSCO TSLA TXN VIAB VOD VRTX "
    "WBA WDC WFM XLNX YHOO".split()
)
ROWS = 40560
# Qin et al. (2017): the last rows of the whole file, in this order.
WHOLE = {"validation": 2730, "test": 2730}
PER_DAY = 390

CARD = Card(
    name="nasdaq",
    title="NASDAQ",
    task="regression",
    origin="NASDAQ 100 stock data (small, padded), Y. Qin and G. Cottrell, UC San Diego",
    citation="Qin et al. (2017), A dual-stage attention-based recurrent neural network for time "
    "series prediction, IJCAI",
    licence="none stated",
    redistributable=False,
    files=(RawFile(FILE, ("git:40ed88ef1d2b30d6b4bef6d2b6f248bb5fbba01f",)),),
    addresses=(
        Address(
            "https://cseweb.ucsd.edu/~yaq007/nasdaq100.zip",
            {FILE: "nasdaq100/small/nasdaq100_padding.csv"},
        ),
        Address(
            "https://raw.githubusercontent.com/Zhenye-Na/DA-RNN/master/nasdaq/nasdaq100_padding.csv"
        ),
    ),
    rows=ROWS,
    target="NASDAQ-100 index of the minute whose stock prices are given",
    unit="index points",
    metric="rmse",
    excerpts=("444d6ac0d9372aa32591b0120fd37425953234bae3c740432e34cbf815c2f578",),
)


class NasdaqProtocol(Protocol):
    """How NASDAQ becomes sequences; docs/protocols.md names the source of each choice."""

    added: ClassVar[tuple[str, ...]] = ("target", "split")

    window: int = Field(default=10, ge=2, description="Steps (minutes) of a sequence.")
    stride: int = Field(default=5, ge=1, description="Minutes between training sequences' starts.")
    predict: Literal["every_step", "last_step"] = Field(
        default="every_step", description="last_step: only the window's last minute, as DA-RNN."
    )
    target: Literal["level", "change"] = Field(
        default="level", description="change: the index's change, from returns as inputs."
    )
    split: Literal["time", "random_windows"] = Field(
        default="time", description="random_windows (leaky!): windows dealt by the shares below."
    )
    excerpt_validation: float = Field(
        default=0.2, gt=0, lt=1, description="Share of rows, by time, where the file is cut short."
    )
    excerpt_test: float = Field(default=0.2, gt=0, lt=1, description="Likewise, the last rows.")

    @property
    def leaky(self) -> bool:
        """Windows that overlap stand on several sides."""
        return self.split == "random_windows"


def read(folder: Path) -> Table:
    """Parse the csv: 81 stocks, then the index; no time column."""
    return read_table(folder / FILE, Layout((*STOCKS, TARGET)))


def split_rows(rows: int, protocol: NasdaqProtocol) -> dict[str, range]:
    """Return DA-RNN's rows for the whole file, and shares by time for an excerpt."""
    if rows != ROWS:
        return by_time(rows, protocol.excerpt_validation, protocol.excerpt_test)
    first = rows - WHOLE["validation"] - WHOLE["test"]
    second = rows - WHOLE["test"]
    return {"train": range(first), "validation": range(first, second), "test": range(second, rows)}


def dealt_windows(rows: int, protocol: NasdaqProtocol, seed: int) -> dict[str, Rows]:
    """Deal overlapping windows of the whole series at random: split -> first rows of windows."""
    starts = np.arange(0, rows - protocol.window, protocol.stride)
    order = np.random.default_rng(derive_seed(seed, "nasdaq", "windows")).permutation(starts)
    shares = (protocol.excerpt_test, protocol.excerpt_validation)
    counts = [round(len(order) * share) for share in shares]
    test, validation, train = np.split(order, np.cumsum(counts))
    return {"train": np.sort(train), "validation": np.sort(validation), "test": np.sort(test)}


def windows_by_time(rows: int, protocol: NasdaqProtocol) -> dict[str, Rows]:
    """Cut each part of the series on its own: split -> first rows of windows."""
    stride = 1 if protocol.predict == "last_step" else protocol.window
    return {
        name: np.arange(part.start, part.stop - protocol.window, protocol.stride)
        if name == "train"
        else np.arange(part.start, part.stop - protocol.window, stride)
        for name, part in split_rows(rows, protocol).items()
    }


def prepare(folder: Path, protocol: NasdaqProtocol, seed: int) -> Arrays:
    """Cut sequences whose step t holds the stocks at t and the index at t - 1; target: index at t.

    So DA-RNN defines it: prices of minute t are known when the index of minute t is predicted.
    """
    columns = read(folder)
    stocks = np.stack([columns[name] for name in STOCKS], axis=1)
    index = columns[TARGET]
    if protocol.leaky:
        starts = dealt_windows(len(index), protocol, seed)
        train = np.unique(starts["train"][:, None] + np.arange(protocol.window + 1))
    else:
        starts = windows_by_time(len(index), protocol)
        train = np.arange(split_rows(len(index), protocol)["train"].stop)
    # Row r of the inputs predicts row r + 1 (forecast_windows): stocks of r + 1, index of r.
    ahead = np.concatenate([stocks[1:], stocks[-1:]])
    target = index
    x = np.concatenate([ahead, index[:, None]], axis=1)
    if protocol.target == "change":
        target = np.diff(index, prepend=index[0])
        x = np.concatenate([ahead / stocks - 1, target[:, None]], axis=1)
    scaler, of_target = fit_scaler(x[train]), fit_scaler(target[train, None])
    if protocol.target == "level":
        # The inputs' prices are those of a row later; standardised with the same rows' statistics.
        of_stocks = fit_scaler(stocks[train])
        scaler = Scaler(
            np.append(of_stocks.mean, of_target.mean), np.append(of_stocks.std, of_target.std)
        )
    every = np.ones(len(index), dtype=bool)
    splits = {
        name: forecast_windows(
            scaler.apply(x), of_target.apply(target[:, None]), every, first, protocol.window
        )
        for name, first in starts.items()
    }
    if protocol.predict == "last_step":
        last = np.arange(protocol.window) == protocol.window - 1
        splits = {name: split._replace(mask=split.mask & last) for name, split in splits.items()}
    excerpt = f"{len(index)} of {ROWS} rows: split by shares of time, not DA-RNN's rows."
    return Arrays(
        splits=splits,
        target_mean=(float(of_target.mean[0]),),
        target_std=(float(of_target.std[0]),),
        features=(*STOCKS, f"{TARGET} before"),
        notes=(excerpt,) if len(index) != ROWS and not protocol.leaky else (),
        predictions=_controls(ahead, index, train, splits["test"].rows, protocol),
    )


def _controls(
    ahead: Floats, index: Floats, train: Rows, rows: Rows, protocol: NasdaqProtocol
) -> dict[str, Floats]:
    """Predict the test rows' levels; where changes are the target, subtract the level before."""
    fit_on = np.zeros(len(index), dtype=bool)
    fit_on[train] = True
    # A row whose successor is a training row, too, is one to learn a step from.
    known = train[1:][np.append(fit_on, False)[train[1:] + 1]]
    found = {
        "persistence": persistence(index, rows),
        "seasonal_persistence": persistence(index, rows, PER_DAY),
        "linear_autoregression": linear_autoregression(
            index, fit_on, range(train[0], train[-1] + 1), rows, lags=10
        ),
        "linear_changes": linear_changes(ahead, index, known, rows),
    }
    if protocol.target == "change":
        return {name: values - index[rows][..., None] for name, values in found.items()}
    return found


ALTERNATIVES = (
    Alternative(
        "change", {"target": "change"},
        "The index rises beyond all training values: a network of levels must extrapolate.",
    ),
    Alternative(
        "random_windows", {"split": "random_windows"},
        "Overlapping windows dealt at random, so that no level is new.",
    ),
)  # fmt: skip

DATASET = Dataset(CARD, NasdaqProtocol, prepare, read, ALTERNATIVES)
