"""Members of a population: their settings and the seeds that make all their randomness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from pfrnn.study.plan import Setting
from pfrnn.study.seeding import derive_seed
from pfrnn.study.train.optimiser import Hyper


class Member(NamedTuple):
    """One training run.

    Attributes:
        number: its place in the block.
        setting: learning rate, clip, L2.
        repetition: 0 in the search; finals use 1 to R, so the test never meets the very run that
            won on validation.
        seed: source of its initial weights and noise.
        order_seed: source of its data order; the same for all variants (paired).
        bootstrap_seed: source of its bootstrap sample of the training sequences; None trains on
            all of them.
    """

    number: int
    setting: Setting
    repetition: int
    seed: int
    order_seed: int
    bootstrap_seed: int | None = None


def _member(index: int, setting: Setting, base: int, dataset: str, repetition: int) -> Member:
    return Member(
        number=index,
        setting=setting,
        repetition=repetition,
        seed=derive_seed(base, dataset, "repetition", repetition),
        order_seed=derive_seed(base, dataset, "order", repetition),
    )


def search_members(settings: Sequence[Setting], base: int, dataset: str) -> list[Member]:
    """One member a setting, all of them repetition 0: same initial weights, order and noise."""
    return [_member(i, setting, base, dataset, 0) for i, setting in enumerate(settings)]


def final_members(setting: Setting, repetitions: int, base: int, dataset: str) -> list[Member]:
    """One member a repetition, numbered from 1; seeds don't depend on the variant."""
    return [_member(r - 1, setting, base, dataset, r) for r in range(1, repetitions + 1)]


def ensemble_members(
    setting: Setting, repetitions: int, size: int, base: int, dataset: str
) -> list[Member]:
    """``size`` bagged members for each repetition, in that order."""
    found: list[Member] = []
    for repetition in range(1, repetitions + 1):
        for place in range(size):
            axes = (dataset, "ensemble", repetition, place)
            found.append(
                Member(
                    number=len(found),
                    setting=setting,
                    repetition=repetition,
                    seed=derive_seed(base, *axes, "seed"),
                    order_seed=derive_seed(base, *axes, "order"),
                    bootstrap_seed=derive_seed(base, *axes, "bootstrap"),
                )
            )
    return found


def hyper(members: Sequence[Member], device: torch.device) -> Hyper:
    """Stack the members' settings as tensors (M,) of the default dtype."""
    rows = [(m.setting.learning_rate, m.setting.clip, m.setting.l2) for m in members]
    stacked = torch.tensor(rows, dtype=torch.get_default_dtype(), device=device)
    return Hyper(stacked[:, 0], stacked[:, 1], stacked[:, 2])
