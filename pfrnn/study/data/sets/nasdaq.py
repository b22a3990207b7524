"""NASDAQ: minute prices of 81 stocks and the NASDAQ-100 index; the index of the same minute."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pfrnn.errors import DataError
from pfrnn.study.data.base import SPLITS, Address, Arrays, Card, Dataset, Protocol, RawFile, Split
from pfrnn.study.data.controls import linear_autoregression, linear_changes, persistence
from pfrnn.study.data.scaling import fit_scaler
from pfrnn.study.data.splits import by_time
from pfrnn.study.data.tables import read_table, to_numbers
from pfrnn.study.data.windows import forecast_split

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
    files=(
        RawFile(
            FILE,
            ("git:40ed88ef1d2b30d6b4bef6d2b6f248bb5fbba01f",),
            excerpts=("be4d1e3b4dd441efc1cc49b9fcf2f7714d78a0faabb22d28507ccc4d2ffa1dd0",),
        ),
    ),
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
)


class NasdaqProtocol(Protocol):
    """How NASDAQ becomes sequences; docs/protocols.md names the source of each choice."""

    window: int = Field(default=10, ge=2, description="Steps (minutes) of a sequence.")
    stride: int = Field(default=5, ge=1, description="Minutes between training sequences' starts.")
    predict: Literal["every_step", "last_step"] = Field(
        default="every_step", description="last_step: only the window's last minute, as DA-RNN."
    )
    excerpt_validation: float = Field(
        default=0.2, gt=0, lt=1, description="Share of rows, by time, where the file is cut short."
    )
    excerpt_test: float = Field(default=0.2, gt=0, lt=1, description="Likewise, the last rows.")


def read(folder: Path) -> Mapping[str, npt.NDArray[Any]]:
    """Parse the csv: 81 stocks, then the index; no time column."""
    table = read_table(folder / FILE, (*STOCKS, TARGET), ",")
    columns = {name: to_numbers(table, name) for name in (*STOCKS, TARGET)}
    for name, values in columns.items():
        if (values <= 0).any():
            line = table.lines[int(np.argmax(values <= 0))]
            raise DataError(
                f"{table.path}: line {line}, column {name!r}: expected a price above 0, got "
                f"{values.min():g}; get the publisher's file"
            )
    return columns


def split_rows(rows: int, protocol: NasdaqProtocol) -> dict[str, range]:
    """Return DA-RNN's rows for the whole file, and shares by time for an excerpt."""
    if rows != ROWS:
        return by_time(rows, protocol.excerpt_validation, protocol.excerpt_test)
    first = rows - WHOLE["validation"] - WHOLE["test"]
    second = rows - WHOLE["test"]
    return {"train": range(first), "validation": range(first, second), "test": range(second, rows)}


def prepare(folder: Path, protocol: NasdaqProtocol, seed: int) -> Arrays:
    """Cut sequences whose step t holds the stocks at t and the index at t - 1; target: index at t.

    So DA-RNN defines it: prices of minute t are known when the index of minute t is predicted.
    """
    columns = read(folder)
    stocks = np.stack([columns[name] for name in STOCKS], axis=1)
    index = columns[TARGET]
    parts = split_rows(len(index), protocol)
    train = slice(parts["train"].start, parts["train"].stop)
    of_stocks, of_index = fit_scaler(stocks[train]), fit_scaler(index[train, None])
    # Row r of the inputs predicts row r + 1 (forecast_split): stocks of r + 1, index of r.
    ahead = np.concatenate([stocks[1:], stocks[-1:]])
    y = of_index.apply(index[:, None])
    x = np.concatenate([of_stocks.apply(ahead), y], axis=1)
    observed = np.ones(len(index), dtype=bool)
    last_only = protocol.predict == "last_step"
    splits: dict[str, Split] = {}
    for name in SPLITS:
        stride = protocol.stride if name == "train" else 1 if last_only else protocol.window
        split = forecast_split(x, y, observed, parts[name], protocol.window, stride)
        if last_only:
            split = split._replace(
                mask=split.mask & (np.arange(protocol.window) > protocol.window - 2)
            )
        splits[name] = split
    rows = splits["test"].rows
    excerpt = len(index) != ROWS
    return Arrays(
        splits=splits,
        target_mean=(float(of_index.mean[0]),),
        target_std=(float(of_index.std[0]),),
        features=(*STOCKS, f"{TARGET} before"),
        notes=(f"{len(index)} of {ROWS} rows: split by shares of time, not DA-RNN's rows.",)
        if excerpt
        else (),
        predictions={
            "persistence": persistence(index, rows),
            "seasonal_persistence": persistence(index, rows, PER_DAY),
            "linear_autoregression": linear_autoregression(
                index, observed, parts["train"], rows, lags=10
            ),
            "linear_changes": linear_changes(ahead, index, parts["train"], rows),
        },
    )


DATASET = Dataset(CARD, NasdaqProtocol, prepare, read)
