"""Adds the toy data sets to the registry and makes small studies on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pfrnn.study.data.sets
from pfrnn.study.config import load_config
from pfrnn.study.data.prepare import prepare
from pfrnn.study.plan import Plan, make_plan
from pfrnn.study.train.places import Places

ROOT = Path(__file__).resolve().parents[3]
SETS = str(Path(__file__).with_name("sets"))


def register() -> None:
    """Make ``pfrnn.study.data.registry`` find the toy data sets."""
    if SETS not in pfrnn.study.data.sets.__path__:
        pfrnn.study.data.sets.__path__.append(SETS)


SMALL: dict[str, Any] = {
    "study": {"datasets": ["toy_regression"], "variants": ["lstm", "gru", "pf_lstm", "pf_gru"]},
    "datasets": {"maze10": {"train": 30, "validation": 10, "test": 12, "steps": 6}},
    "sizes": {
        "localization": {"pf": 5, "lstm": 6, "gru": 6, "particles": 4},
        "other": {"pf": 5, "lstm": 6, "gru": 6, "particles": 4},
    },
    "network": {
        "encoder_regression": 6,
        "encoder_classification": 6,
        "encoder_localization": 6,
        "map_channels": 2,
        "embedding": 6,
    },
    "grid": {"learning_rate": [0.003, 0.01], "batch_size": [16], "clip": [5.0], "l2": [1e-4]},
    "training": {"max_epochs": 3, "patience": 3, "bptt": 4},
    "evaluation": {"repetitions": 2, "passes": 2, "bootstrap": 100},
}


def study(*patches: dict[str, Any]) -> Plan:
    """Plan of the small study with further overrides."""
    from pfrnn.study.config import merge

    register()
    values: dict[str, Any] = SMALL
    for patch in patches:
        values = merge(values, patch)
    return make_plan(load_config(ROOT / "params.yaml", "smoke", values), "params.yaml")


def prepared_places(plan: Plan, folder: Path) -> Places:
    """Prepare the plan's data sets below ``folder``."""
    for name, protocol in plan.protocols.items():
        out = folder / "prepared" / plan.prepared_id(name)
        prepare(name, protocol, plan.config.seed, folder / "raw", out)
    return Places(folder / "results", folder / "prepared")
