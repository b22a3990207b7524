"""How long a training step takes on a GPU: a model fitted to measurements, for plans only.

Measured on one NVIDIA H200 (``bench/steps.json``, docs/performance.md) for whole steps replayed
from a CUDA graph at H 64 (PF-LSTM, PF-GRU) and H 80 / 86 (LSTM, GRU), batch 64 and T 100. A time
step of the fused filter has a floor (programs wait for each other) and above it grows with the
rows, members x sequences x particles. What is not measured is marked so.
"""

from __future__ import annotations

from typing import NamedTuple

from pfrnn.study.variants import Variant


class Work(NamedTuple):
    """Size of one training step.

    Attributes:
        members: M, trained side by side.
        sequences: N, the batch size.
        steps: T.
        hidden: H.
        particles: K; 1 for models without particles.
    """

    members: int
    sequences: int
    steps: int
    hidden: int
    particles: int = 1

    @property
    def rows(self) -> int:
        """Hidden vectors that a time step moves."""
        return self.members * self.sequences * max(1, self.particles)


class Rate(NamedTuple):
    """Seconds of one time step, forward, backward and update: max(floor, base + rows * row).

    Attributes:
        floor: however small the step is.
        base: intercept of the line through a small and a large population.
        row: its slope, at ``hidden`` units.
        hidden: H at which it was measured.
    """

    floor: float
    base: float
    row: float
    hidden: int

    def seconds(self, work: Work) -> float:
        """Seconds of a whole step of ``work``."""
        # Not measured at other sizes: products grow with the square of H, memory traffic with H.
        wider = (work.hidden / self.hidden) ** 2
        return work.steps * max(self.floor, self.base + work.rows * self.row * wider)


# TF32 products. Per time step, from the totals of 100, with 1, 12 and 36 members. Eight take up
# to a seventh more than the line says: programs come in whole turns of the card.
PF_LSTM = Rate(floor=38.6e-6, base=4.4e-6, row=3.930e-9, hidden=64)
PF_GRU = Rate(floor=32.5e-6, base=6.6e-6, row=3.124e-9, hidden=64)
# The kernels around the products, in one graph, with 6 and 36 members; one takes up to a seventh
# less than the line says.
LSTM = Rate(floor=0.0, base=16.3e-6, row=9.45e-9, hidden=80)
GRU = Rate(floor=0.0, base=29.2e-6, row=13.72e-9, hidden=86)

# Share of a step that its forward pass takes: 0.25 of 0.91 ms in the kernels' profile.
FORWARD = 0.25
# Filters that the kernels don't take (wider ones, other switches) run compiled, in one graph. Small
# populations lose most, for many small kernels are launched a time step: 1, 4, 12 and 36 models
# took 10.8, 18.5, 37.7 and 91 ms a step of PF-LSTM in an early probe (torch 2.11), which the line
# fits within a tenth. Not measured at other widths, of PF-GRU, nor with the switches that bring
# filters here.
WIDEST_FUSED = 128
COMPILED = 2.77
COMPILED_BASE = 90e-6
# Drawing the weights, KL and its gradient. Not measured alone: beside 15 other jobs on an H200 a
# search of maze18 or maze27 took 1.9 to 2.5 times its RNN's, evaluation with samples included.
BAYESIAN = 2.0
# Interpreter, CUDA, kernels read from their cache, graphs captured. On an H200 whole jobs of few
# steps took 13 s beside 14 others; the first job of each variant on a machine compiles for 12 to
# 20 s more.
START_SECONDS = 13.0


def step_seconds(model: Variant, work: Work, kernels: bool = True) -> float:
    """Predict the seconds of one training step of a population.

    Args:
        model: what is trained.
        work: the step's size.
        kernels: whether the fused kernels take the filter's switches; its width is looked at here.
    """
    if model.kind == "particle":
        rate = PF_LSTM if model.cell == "lstm" else PF_GRU
        if kernels and work.hidden <= WIDEST_FUSED:
            return rate.seconds(work)
        return rate._replace(base=COMPILED_BASE, row=COMPILED * rate.row, floor=0.0).seconds(work)
    seconds = (LSTM if model.cell == "lstm" else GRU).seconds(work)
    return seconds * (BAYESIAN if model.kind == "bayesian" else 1.0)
