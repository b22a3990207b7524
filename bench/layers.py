"""Time PFLSTM and PFGRU, alone, beside a plain port and torch's own LSTM.

    python bench/layers.py [--output layers.json] [--device cpu] [--steps 100 ...]

Milliseconds of a call, forward and backward and forward without gradient; on a GPU also through
``torch.cuda.make_graphed_callables``, and with TF32 and float32 products ("high" and "highest" of
``torch.set_float32_matmul_precision``). Beside them, in the same process: the equations as one
would first write them (:mod:`bench.plain_port`), an LSTM of as many parameters, and an LSTM over
as many rows as there are particles. Each number is the median of several calls.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.blocks import machine, wait
from bench.plain_port import PlainPFGRU, PlainPFLSTM
from pfrnn.nn import PFGRU, PFLSTM


class Size(NamedTuple):
    """Sizes of the benchmark."""

    batch: int = 64
    steps: int = 100
    particles: int = 30
    hidden: int = 64
    inputs: int = 64


LAYERS = {"PFLSTM": (PFLSTM, PlainPFLSTM), "PFGRU": (PFGRU, PlainPFGRU)}


def output_of(model: Callable[..., Any], x: Tensor) -> Tensor:
    """Call a model; of a tuple, the first."""
    out = model(x)
    return out[0] if isinstance(out, tuple) else out


def milliseconds(call: Callable[[], None], device: torch.device, repeats: int) -> float:
    """Median of some calls after two more."""
    times = []
    for number in range(repeats + 2):
        wait(device)
        start = time.perf_counter()
        call()
        wait(device)
        if number >= 2:
            times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def times(model: Callable[..., Any], x: Tensor, repeats: int) -> dict[str, float]:
    """Time forward and backward, and forward alone."""

    def both() -> None:
        output_of(model, x).square().sum().backward()

    def forward() -> None:
        with torch.no_grad():
            output_of(model, x)

    return {
        "both_ms": milliseconds(both, x.device, repeats),
        "forward_ms": milliseconds(forward, x.device, repeats),
    }


class Output(nn.Module):
    """A layer's output alone, which a graphed call returns."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """Return the output."""
        return output_of(self.layer, x)


def graphed(layer: nn.Module, x: Tensor, repeats: int) -> dict[str, float]:
    """Time forward and backward as CUDA graphs."""
    example = x.clone().requires_grad_()
    call = torch.cuda.make_graphed_callables(Output(layer), (example,))
    return {"graphed_ms": times(call, example, repeats)["both_ms"]}


def lstm_width(inputs: int, parameters: int) -> int:
    """Hidden size of the torch.nn.LSTM with the number of parameters nearest to ``parameters``."""
    return min(range(1, 1024), key=lambda h: abs(4 * h * (inputs + h + 2) - parameters))


def rows(size: Size, device: torch.device, repeats: int) -> Iterator[dict[str, Any]]:
    """Time everything, layer by layer."""
    x = torch.randn(size.steps, size.batch, size.inputs, device=device)
    wide = torch.randn(size.steps, size.batch * size.particles, size.inputs, device=device)
    precisions = ("high", "highest") if device.type == "cuda" else ("highest",)
    for name, (make, plain) in LAYERS.items():
        layer = make(size.inputs, size.hidden, num_particles=size.particles, device=device)
        count = sum(p.numel() for p in layer.parameters())
        width = lstm_width(size.inputs, count)
        others: dict[str, tuple[nn.Module, Tensor]] = {
            f"plain port of {name}": (plain(size.inputs, size.hidden, size.particles), x),
            f"nn.LSTM, {width} units, {count} parameters": (nn.LSTM(size.inputs, width), x),
            f"nn.LSTM, {size.hidden} units, N K rows": (nn.LSTM(size.inputs, size.hidden), wide),
        }
        beside = {}
        for other, (module, given) in others.items():
            torch.set_float32_matmul_precision("high")
            fewer = max(3, repeats // 4) if "plain" in other else repeats
            beside[other] = times(module.to(device), given, fewer)
            yield {"what": other, **beside[other]}
        for precision in precisions:
            torch.set_float32_matmul_precision(precision)
            row: dict[str, Any] = {"what": name, "precision": precision}
            row |= layer.path(x)._asdict() | times(layer, x, repeats)
            if device.type == "cuda":
                try:
                    row |= graphed(layer, x, repeats)
                except RuntimeError as error:
                    row["graphed_error"] = str(error)[:200]
            first, equal, _ = (one["both_ms"] for one in beside.values())
            row["times_plain"] = first / row["both_ms"]
            row["of_equal_lstm"] = row["both_ms"] / equal
            yield row


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for field in Size._fields:
        parser.add_argument(f"--{field}", type=int, default=Size._field_defaults[field])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=1, help="on a CPU")
    parser.add_argument("--output", type=Path, help="write JSON here")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    device = torch.device(args.device)
    size = Size(**{field: getattr(args, field) for field in Size._fields})
    result: dict[str, Any] = {**machine(device), "size": size._asdict(), "rows": []}
    for row in rows(size, device, args.repeats):
        shown = {k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()}
        print(shown, flush=True)
        result["rows"].append(row)
        if args.output:
            args.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
