"""Time whole training steps of populations on a GPU: fused kernels, plain module, cuDNN.

    python bench/steps.py --output steps.json [--sections steps scaling rnn accuracy]

A step is forward, backward, clipping and RMSprop of a small network (linear encoder, PF-LSTM or
PF-GRU, linear head, prediction loss and ELBO), captured as a CUDA graph and replayed on random
data; the median of ten replays counts. The plain module (:mod:`bench.plain_port`) runs eagerly,
with less to do (no ELBO, no clipping). The card's name stands in the file.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.plain_port import PlainPFGRU, PlainPFLSTM
from pfrnn.files import write_json
from pfrnn.functional.linear import affine
from pfrnn.functional.pf_gru import PFGRUWeights
from pfrnn.functional.pf_lstm import PFLSTMWeights
from pfrnn.functional.rnn import GRUWeights, LSTMWeights, gru_step, lstm_step, run_rnn
from pfrnn.functional.types import FilterSwitches, PFState, RNNState, RNNSwitches
from pfrnn.kernels.graph import CapturedStep
from pfrnn.kernels.noise import NoiseKey
from pfrnn.kernels.plan import Tuning
from pfrnn.kernels.sequence import run_pf_fused


class Size(NamedTuple):
    """One configuration of the step."""

    cell: str = "pf_lstm"
    members: int = 1
    steps: int = 100
    batch: int = 64
    particles: int = 30
    hidden: int = 64
    precision: str = "tf32"
    inputs: int = 8
    encoder: int = 64


def weights_of(size: Size, members: int) -> dict[str, Tensor]:
    """Random parameters (M, ...) of the whole network, of a trained network's size."""
    h, gru = size.hidden, size.cell.endswith("gru")
    blocks = (4 if gru else 5) * h + 1
    shapes = {
        "encoder": (size.inputs, size.encoder), "encoder_bias": (size.encoder,),
        "input": (size.encoder, blocks), "input_bias": (blocks,),
        "recurrent": (h, 3 * h if gru else 5 * h), "observation": (h,), "head": (h, 1),
        "gain": (h,), "shift": (h,),
    }  # fmt: skip
    if gru:
        shapes["candidate"] = (h, h)
    made = {k: torch.randn(members, *s, device="cuda") * 0.1 for k, s in shapes.items()}
    made["gain"] += 1.0
    return {k: v.requires_grad_() for k, v in made.items()}


def filter_loss(size: Size, p: dict[str, Tensor], x: Tensor, y: Tensor, key: NoiseKey,
                tuning: Tuning | None) -> Tensor:  # fmt: skip
    """Loss of every member; x (T, M, N, D), y (M, T, N)."""
    members, n, k, h = x.shape[1], size.batch, size.particles, size.hidden
    encoded = torch.relu(affine(x, p["encoder"], p["encoder_bias"]))
    projected = affine(encoded, p["input"], p["input_bias"])
    zero = x.new_zeros(members, n, k, h)
    gru = "candidate" in p
    uniform = torch.full((members, n, k), 1.0 / k, device="cuda").log()
    state = PFState(zero, None if gru else zero, uniform)
    if gru:
        weights: Any = PFGRUWeights(
            p["recurrent"], p["candidate"], p["observation"], p["gain"], p["shift"]
        )
    else:
        weights = PFLSTMWeights(p["recurrent"], p["observation"], p["gain"], p["shift"])
    out = run_pf_fused(
        projected, state, key, key, weights, FilterSwitches(),
        precision=size.precision, tuning=tuning,
    )  # fmt: skip
    rows = out.hidden.transpose(0, 1).flatten(1, 3)  # a view: members come first in memory
    guesses = torch.bmm(rows, p["head"]).view(members, size.steps, n, k)
    lw = out.log_weights.transpose(0, 1)
    prediction = ((guesses * lw.exp()).sum(-1) - y).square().sum((1, 2))
    elbo = torch.logsumexp(-(guesses - y.unsqueeze(-1)).abs(), -1).sum((1, 2))
    return (prediction - elbo) / n


def update(parameters: dict[str, Tensor], squares: dict[str, Tensor], loss: Tensor) -> None:
    """Clip each member's gradient to norm 5, then RMSprop, in place."""
    names = list(parameters)
    gradients = torch.autograd.grad(loss.sum(), [parameters[k] for k in names])
    with torch.no_grad():
        norm = sum(g.flatten(1).square().sum(1) for g in gradients).sqrt()
        scale = (5.0 / (norm + 1e-6)).clamp(max=1.0)
        for name, gradient in zip(names, gradients, strict=True):
            g = gradient * scale.view(-1, *[1] * (gradient.dim() - 1))
            squares[name].mul_(0.99).addcmul_(g, g, value=0.01)
            parameters[name].addcdiv_(g, squares[name].sqrt() + 1e-8, value=-3e-4)


def fused_step(size: Size, tuning: Tuning | None = None) -> Callable[[], None]:
    """Capture a population's training step; each replay draws new noise."""
    m = size.members
    parameters = weights_of(size, m)
    squares = {k: torch.zeros_like(v) for k, v in parameters.items()}
    x = torch.randn(size.steps, m, size.batch, size.inputs, device="cuda")
    y = torch.randn(m, size.steps, size.batch, device="cuda")
    key = NoiseKey(torch.arange(m, device="cuda"), torch.zeros(1, dtype=torch.int64, device="cuda"))

    def step(x: Tensor, y: Tensor) -> None:
        key.step.add_(1)
        update(parameters, squares, filter_loss(size, parameters, x, y, key, tuning))

    captured = CapturedStep(step, [x, y])
    return captured.graph.replay


def plain_step(size: Size) -> Callable[[], None]:
    """Return the step of one plain module, eager."""
    make = PlainPFGRU if size.cell.endswith("gru") else PlainPFLSTM
    encoder, head = nn.Linear(size.inputs, size.encoder), nn.Linear(size.hidden, 1)
    core = make(size.encoder, size.hidden, size.particles)
    modules = nn.ModuleList([encoder, core, head]).cuda()
    optimiser = torch.optim.RMSprop(modules.parameters(), lr=3e-4)
    x = torch.randn(size.steps, size.batch, size.inputs, device="cuda")
    y = torch.randn(size.steps, size.batch, device="cuda")

    def step() -> None:
        guess = head(core(torch.relu(encoder(x)))).squeeze(-1)
        optimiser.zero_grad()
        ((guess - y).square().sum() / size.batch).backward()
        optimiser.step()

    return step


def cudnn_step(cell: str, hidden: int, size: Size) -> Callable[[], None]:
    """Return the step of one cuDNN LSTM or GRU."""
    make = nn.GRU if cell == "gru" else nn.LSTM
    encoder, head = nn.Linear(size.inputs, size.encoder), nn.Linear(hidden, 1)
    core = make(size.encoder, hidden)
    modules = nn.ModuleList([encoder, core, head]).cuda()
    optimiser = torch.optim.RMSprop(modules.parameters(), lr=3e-4, foreach=True)
    x = torch.randn(size.steps, size.batch, size.inputs, device="cuda")
    y = torch.randn(size.steps, size.batch, device="cuda")

    def step() -> None:
        guess = head(core(torch.relu(encoder(x)))[0]).squeeze(-1)
        optimiser.zero_grad()
        ((guess - y).square().sum() / size.batch).backward()
        optimiser.step()

    return step


def rnn_step(
    cell: str, hidden: int, members: int, compiled: bool, size: Size
) -> Callable[[], None]:
    """Capture the step of a plain LSTM or GRU population, batched weights."""
    gru = cell == "gru"
    blocks = 3 if gru else 4
    shapes = {
        "encoder": (size.inputs, size.encoder), "encoder_bias": (size.encoder,),
        "input": (size.encoder, blocks * hidden), "input_bias": (blocks * hidden,),
        "recurrent": (hidden, (2 if gru else 4) * hidden), "head": (hidden, 1),
    }  # fmt: skip
    if gru:
        shapes["candidate"] = (hidden, hidden)
    p = {
        k: (torch.randn(members, *s, device="cuda") * 0.1).requires_grad_()
        for k, s in shapes.items()
    }
    squares = {k: torch.zeros_like(v) for k, v in p.items()}
    x = torch.randn(size.steps, members, size.batch, size.inputs, device="cuda")
    y = torch.randn(size.steps, members, size.batch, device="cuda")
    plain: Callable[..., Any] = gru_step if gru else lstm_step
    one = torch.compile(plain, dynamic=False) if compiled else plain

    def step(x: Tensor, y: Tensor) -> None:
        projected = affine(
            torch.relu(affine(x, p["encoder"], p["encoder_bias"])), p["input"], p["input_bias"]
        ).contiguous()
        zero = x.new_zeros(members, size.batch, hidden)
        weights: Any = (
            GRUWeights(p["recurrent"], p["candidate"]) if gru else LSTMWeights(p["recurrent"])
        )
        state = RNNState(zero, None if gru else zero)
        out = run_rnn(one, projected, state, weights, RNNSwitches())
        guess = affine(out.hidden, p["head"]).squeeze(-1)
        update(p, squares, (guess - y).square().sum((0, 2)) / size.batch)

    return CapturedStep(step, [x, y]).graph.replay


def milliseconds(step: Callable[[], None], repeats: int = 10) -> float:
    """Median wall time of a step; the device is idle before and after each."""
    for _ in range(2):
        step()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


def measure(size: Size, tuning: Tuning | None = None) -> dict[str, Any]:
    """Time a fused step and its peak memory."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    ms = milliseconds(fused_step(size, tuning))
    peak = torch.cuda.max_memory_allocated() / 2**30
    row = {**size._asdict(), "ms": ms, "ms_per_member": ms / size.members}
    row["peak_gib_per_member"] = peak / size.members
    torch.cuda.empty_cache()
    print({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    return row


def steps_section() -> list[dict[str, Any]]:
    """Both cells, populations of 1, 12 and 36, all precisions; the plain module beside them."""
    rows = []
    for cell in ("pf_lstm", "pf_gru"):
        size = Size(cell)
        plain = milliseconds(plain_step(size), 3)
        rows.append({**size._asdict(), "way": "plain eager module", "ms": plain})
        print(cell, "plain eager module", round(plain, 1), flush=True)
        for precision in ("tf32", "bf16"):
            for members in (1, 12, 36):
                row = measure(size._replace(members=members, precision=precision))
                row |= {"way": "fused", "times_plain": plain / row["ms_per_member"]}
                rows.append(row)
    return rows


SCALING = {
    "members": [1, 2, 4, 8, 12, 24, 36, 72],
    "particles": [1, 5, 10, 20, 30, 60],
    "hidden": [32, 64, 128, 256],
    "steps": [25, 50, 100, 200, 400],
}


def scaling_section() -> list[dict[str, Any]]:
    """One axis at a time, around PF-LSTM, 12 members, K 30, H 64, T 100."""
    rows = []
    for axis, values in SCALING.items():
        for value in values:
            size = Size(members=12)._replace(**{axis: value})
            try:
                rows.append({"axis": axis, **measure(size)})
            except Exception as error:  # a size that fails is a result too
                rows.append({"axis": axis, **size._asdict(), "error": str(error)[:300]})
                print(axis, value, type(error).__name__, str(error)[:200], flush=True)
    return rows


def rnn_section() -> list[dict[str, Any]]:
    """LSTM-80 and GRU-86: cuDNN one at a time, populations of 36 with batched weights."""
    rows = []
    for cell, hidden in (("lstm", 80), ("gru", 86)):
        alone = milliseconds(cudnn_step(cell, hidden, Size()))
        rows.append({"cell": cell, "hidden": hidden, "way": "cuDNN", "members": 1, "ms": alone})
        for compiled in (False, True):
            ms = milliseconds(rnn_step(cell, hidden, 36, compiled, Size()))
            way = "compiled step, CUDA graph" if compiled else "reference step, CUDA graph"
            row = {"cell": cell, "hidden": hidden, "way": way, "members": 36, "ms": ms}
            rows.append(row | {"ms_per_member": ms / 36})
            print(rows[-2], rows[-1], flush=True)
    return rows


def warm(axis: str, value: int) -> None:
    """Compile the kernels of one size into Triton's cache."""
    fused_step(Size(members=1, steps=12)._replace(**{axis: value}))


def warm_all() -> None:
    """Compile the sizes of the scaling section side by side."""
    jobs = [(axis, v) for axis in ("particles", "hidden") for v in SCALING[axis]]
    command = [sys.executable, str(Path(__file__).resolve()), "--warm"]
    running = [subprocess.Popen([*command, axis, str(v)]) for axis, v in jobs]
    for process in running:
        process.wait()


SECTIONS = {"steps": steps_section, "scaling": scaling_section, "rnn": rnn_section}


def main() -> None:
    """Run the sections asked for and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--output", type=Path, default=Path("steps.json"))
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--warm", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.warm:
        warm(arguments.warm[0], int(arguments.warm[1]))
        return
    torch.backends.cuda.matmul.allow_tf32 = True
    if "scaling" in arguments.sections:
        warm_all()
    result: dict[str, Any] = {
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "tuning": Tuning()._asdict(),
    }
    for name in arguments.sections:
        result[name] = SECTIONS[name]()
        write_json(arguments.output, result)


if __name__ == "__main__":
    main()
