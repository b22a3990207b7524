"""The training steps that ``bench/steps.py`` times: fused, plain, cuDNN and batched weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bench.plain_port import PlainPFGRU, PlainPFLSTM
from pfrnn.functional.linear import affine
from pfrnn.functional.pf_gru import PFGRUWeights
from pfrnn.functional.pf_lstm import PFLSTMWeights
from pfrnn.functional.rnn import GRUWeights, LSTMWeights, gru_step, lstm_step, run_rnn
from pfrnn.functional.types import FilterSwitches, PFState, Readout, RNNState, RNNSwitches
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
    head: str = "fused"  # or "product": a product of all hidden states, outside the kernels


def weights_of(size: Size, members: int, device: str = "cuda") -> dict[str, Tensor]:
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
    made = {k: torch.randn(members, *s, device=device) * 0.1 for k, s in shapes.items()}
    made["gain"] += 1.0
    return {k: v.requires_grad_() for k, v in made.items()}


def filter_loss(size: Size, p: dict[str, Tensor], x: Tensor, y: Tensor, key: NoiseKey,
                tuning: Tuning | None) -> Tensor:  # fmt: skip
    """Loss of every member; x (T, M, N, D), y (M, T, N)."""
    members, n, k, h = x.shape[1], size.batch, size.particles, size.hidden
    encoded = torch.relu(affine(x, p["encoder"], p["encoder_bias"]))
    projected = affine(encoded, p["input"], p["input_bias"])
    fused = size.head == "fused"
    zero = x.new_zeros(members, n, k, h)
    gru = "candidate" in p
    uniform = x.new_full((members, n, k), 1.0 / k).log()
    state = PFState(zero, None if gru else zero, uniform)
    if gru:
        weights: Any = PFGRUWeights(
            p["recurrent"], p["candidate"], p["observation"], p["gain"], p["shift"]
        )
    else:
        weights = PFLSTMWeights(p["recurrent"], p["observation"], p["gain"], p["shift"])
    out = run_pf_fused(
        projected, state, key, key, weights, FilterSwitches(),
        precision=size.precision, tuning=tuning, particles=not fused,
        readout=Readout(p["head"]) if fused else None,
    )  # fmt: skip
    if fused:
        guesses = out.read.squeeze(-1).transpose(0, 1)
    else:
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
