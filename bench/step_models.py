"""The training steps that ``bench/steps.py`` times: fused, plain, cuDNN and batched weights."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bench.plain_port import PlainPFGRU, PlainPFLSTM
from pfrnn.functional.linear import affine, products
from pfrnn.functional.pf_gru import PFGRUWeights
from pfrnn.functional.pf_lstm import PFLSTMWeights
from pfrnn.functional.rnn import GRUWeights, LSTMWeights, gru_step, lstm_step
from pfrnn.functional.types import FilterSwitches, PFState, Readout, RNNState, RNNSwitches
from pfrnn.kernels import dispatch
from pfrnn.kernels.graph import CapturedStep
from pfrnn.kernels.linear import product
from pfrnn.kernels.noise import NoiseKey
from pfrnn.kernels.rnn import run_rnn_fused
from pfrnn.kernels.sequence import run_pf_fused
from pfrnn.study.train.flat import Flat, FlatRMSprop
from pfrnn.study.train.optimiser import Hyper


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
    # Of inputs and encoders in fused steps: "kernels", or "library" for torch's.
    products: str = "kernels"


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
    return made


def filter_loss(size: Size, p: dict[str, Tensor], x: Tensor, y: Tensor, run: dispatch.Run,
                noise: Any, uniforms: Any) -> Tensor:  # fmt: skip
    """Loss of every member, whose filter ``run`` runs; x (T, M, N, D), y (M, T, N)."""
    members, n, k, h = x.shape[1], size.batch, size.particles, size.hidden
    encoded = torch.relu(affine(x, p["encoder"], p["encoder_bias"]))
    projected = affine(encoded, p["input"], p["input_bias"])
    zero = x.new_zeros(members, n, k, h)
    gru = "candidate" in p
    uniform = x.new_full((members, n, k), -math.log(k))
    state = PFState(zero, None if gru else zero, uniform)
    if gru:
        weights: Any = PFGRUWeights(
            p["recurrent"], p["candidate"], p["observation"], p["gain"], p["shift"]
        )
    else:
        weights = PFLSTMWeights(p["recurrent"], p["observation"], p["gain"], p["shift"])
    out = run(
        projected, state, noise, uniforms, weights, FilterSwitches(), extras=False,
        particles=False, readout=Readout(p["head"]),
    )  # fmt: skip
    guesses = out.read.squeeze(-1).transpose(0, 1)
    steps = training_loss(guesses, out.log_weights.transpose(0, 1), y)
    return steps.sum((1, 2)) / n


def training_loss(guesses: Tensor, log_weights: Tensor, y: Tensor) -> Tensor:
    """Prediction loss and ELBO of each step; the particles' guesses and log-weights (..., K)."""
    prediction = ((guesses * log_weights.exp()).sum(-1) - y).square()
    return prediction - torch.logsumexp(-(guesses - y.unsqueeze(-1)).abs(), -1)


class Trained(NamedTuple):
    """A population's parameters and their update, as the training loop has them on a GPU."""

    parameters: Flat
    optimiser: FlatRMSprop
    alive: Tensor

    def update(self, loss: Callable[[dict[str, Tensor]], Tensor]) -> None:
        """One step: gradients of ``loss`` (of the parameters, (M,)), clipping, RMSprop."""
        leaves = {k: v.detach().requires_grad_() for k, v in self.parameters.items()}
        losses = loss(leaves)
        gradients = torch.autograd.grad(losses, list(leaves.values()), torch.ones_like(losses))
        with torch.no_grad():
            named = dict(zip(leaves, gradients, strict=True))
            self.optimiser.update(named, 0.99, 1e-8, self.alive).write()


def trained(start: dict[str, Tensor]) -> Trained:
    """Learning rate 3e-4, each member's gradient clipped to norm 5, the product's L2 at 1e-4."""
    parameters, squares = Flat(start), Flat({k: torch.zeros_like(v) for k, v in start.items()})
    members, whole = len(next(iter(start.values()))), parameters.whole
    settings = Hyper(*(whole.new_full((members,), value) for value in (3e-4, 5.0, 1e-4)))
    alive = torch.ones(members, dtype=torch.bool, device=whole.device)
    return Trained(parameters, FlatRMSprop(parameters, squares, settings), alive)


def replayed(captured: CapturedStep, *memory: Any) -> Callable[[], None]:
    """Return the replay, which keeps alive what the graph reads and writes."""

    def replay(kept: tuple[Any, ...] = (captured, *memory)) -> None:
        kept[0].graph.replay()

    return replay


@contextmanager
def beside(size: Size) -> Iterator[None]:
    """Compute products of sequences as ``size`` says.

    Raises:
        ValueError: neither "kernels" nor "library".
    """
    if size.products not in ("kernels", "library"):
        raise ValueError(f"products: expected kernels or library, got {size.products!r}")
    if size.products == "library":
        yield
        return
    with products(product):
        yield


def fused_step(size: Size) -> Callable[[], None]:
    """Capture a population's training step; each replay draws new noise."""
    m = size.members
    population = trained(weights_of(size, m))
    x = torch.randn(size.steps, m, size.batch, size.inputs, device="cuda")
    y = torch.randn(m, size.steps, size.batch, device="cuda")
    key = NoiseKey(torch.arange(m, device="cuda"), torch.zeros(1, dtype=torch.int64, device="cuda"))

    run = functools.partial(run_pf_fused, precision=size.precision)

    def step(x: Tensor, y: Tensor) -> None:
        key.step.add_(1)
        with beside(size):
            population.update(lambda p: filter_loss(size, p, x, y, run, key, key))

    return replayed(CapturedStep(step, [x, y]), population, key)


def plain_step(size: Size, whole: bool = False, device: str = "cuda") -> Callable[[], None]:
    """Return the step of one plain module, eager.

    ``whole`` is the training step that populations are timed with: prediction loss and ELBO over
    the particles, clipping, L2. Without it the module has less to do: squared errors of the mean.
    """
    make = PlainPFGRU if size.cell.endswith("gru") else PlainPFLSTM
    encoder, head = nn.Linear(size.inputs, size.encoder), nn.Linear(size.hidden, 1)
    core = make(size.encoder, size.hidden, size.particles)
    modules = nn.ModuleList([encoder, core, head]).to(device)
    decay = 1e-4 if whole else 0.0
    optimiser = torch.optim.RMSprop(modules.parameters(), lr=3e-4, weight_decay=decay)
    x = torch.randn(size.steps, size.batch, size.inputs, device=device)
    y = torch.randn(size.steps, size.batch, device=device)

    def loss() -> Tensor:
        encoded = torch.relu(encoder(x))
        if not whole:
            return (head(core(encoded)).squeeze(-1) - y).square().sum() / size.batch
        hidden, log_weights = map(torch.stack, zip(*core.beliefs(encoded), strict=True))
        return training_loss(head(hidden).squeeze(-1), log_weights, y).sum() / size.batch

    def step() -> None:
        optimiser.zero_grad()
        loss().backward()
        if whole:
            nn.utils.clip_grad_norm_(modules.parameters(), 5.0)
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


def rnn_step(cell: str, hidden: int, members: int, size: Size) -> Callable[[], None]:
    """Capture the step of a plain LSTM or GRU population with batched weights, in kernels."""
    gru = cell == "gru"
    blocks = 3 if gru else 4
    shapes = {
        "encoder": (size.inputs, size.encoder), "encoder_bias": (size.encoder,),
        "input": (size.encoder, blocks * hidden), "input_bias": (blocks * hidden,),
        "recurrent": (hidden, (2 if gru else 4) * hidden), "head": (hidden, 1),
    }  # fmt: skip
    if gru:
        shapes["candidate"] = (hidden, hidden)
    population = trained(
        {k: torch.randn(members, *s, device="cuda") * 0.1 for k, s in shapes.items()}
    )
    x = torch.randn(size.steps, members, size.batch, size.inputs, device="cuda")
    y = torch.randn(size.steps, members, size.batch, device="cuda")
    one: Callable[..., Any] = gru_step if gru else lstm_step

    def loss(p: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        projected = affine(
            torch.relu(affine(x, p["encoder"], p["encoder_bias"])), p["input"], p["input_bias"]
        ).contiguous()
        zero = x.new_zeros(members, size.batch, hidden)
        weights: Any = (
            GRUWeights(p["recurrent"], p["candidate"]) if gru else LSTMWeights(p["recurrent"])
        )
        state = RNNState(zero, None if gru else zero)
        out = run_rnn_fused(one, projected, state, weights, RNNSwitches())
        guess = affine(out.hidden, p["head"]).squeeze(-1)
        return (guess - y).square().sum((0, 2)) / size.batch

    def step(x: Tensor, y: Tensor) -> None:
        with beside(size):
            population.update(lambda p: loss(p, x, y))

    return replayed(CapturedStep(step, [x, y]), population)
