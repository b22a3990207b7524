"""Plausible simulated results in the files' real format, for tests only: no number is a result."""

from __future__ import annotations

import json
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pfrnn.study.records import HISTORY_COLUMNS, MEMBER_COLUMNS, RESULT_COLUMNS
from pfrnn.study.report.collect import collect
from pfrnn.study.report.evidence import Study
from pfrnn.study.report.paper.numbers import printed
from pfrnn.study.report.results import Results
from pfrnn.study.report.units import reading_of
from pfrnn.study.variants import VARIANTS, variant

MAZES = ("maze10", "maze18", "maze27")
REGRESSION = ("nasdaq", "aep", "air", "pm")
CLASSIFICATION = ("lpa", "arem", "gas", "mr", "r52", "uid")
DATASETS = (*MAZES, *REGRESSION, *CLASSIFICATION)
MAIN = ("lstm", "gru", "pf_lstm", "pf_gru")
CONTROLS = {
    "localization": {
        "map_centre": {"last_step_mse": 9.8, "all_steps_mse": 9.8, "median": 9.0},
        "exact_posterior": {
            "last_step_mse": 0.068,
            "last_step_mse_se": 0.029,
            "all_steps_mse": 0.5,
            "all_steps_mse_se": 0.02,
            "last_step_expected": 0.06,
            "success": 99.0,
            "trajectories": 2000.0,
        },
    },
    "regression": {"persistence": {"rmse": 24.0, "mae": 12.0, "mse": 576.0}},
    "classification": {"majority": {"accuracy": 30.0}},
}


def task_of(dataset: str) -> str:
    if dataset in MAZES:
        return "localization"
    return "regression" if dataset in REGRESSION else "classification"


def study(
    tier: str = "quick",
    datasets: tuple[str, ...] = DATASETS,
    variants: tuple[str, ...] = MAIN,
    size_rules: tuple[str, ...] = ("fixed",),
    missing: dict[str, str] | None = None,
) -> Study:
    files = {name: ["FILE.csv"] for name in missing or {}}
    return Study(tier, datasets, variants, size_rules, 0.95, missing or {}, files)


def paper_value(dataset: str, name: str, rule: str) -> float:
    """The paper's number if it has one, else the bare variant's, else something of that size."""
    for wanted in ((name, rule), (name, "fixed"), ("pf_lstm", "fixed")):
        if digits := printed(dataset, *wanted):
            return float(digits)
    raise KeyError(dataset)


def result_rows(plan: Study, repetitions: int = 6, seed: int = 0) -> list[dict[str, Any]]:
    """Rows around the paper's numbers, with a seed spread of a few per cent."""
    rows = []
    for dataset in plan.datasets:
        for name in plan.variants:
            for rule in plan.size_rules:
                if rule == "best" and name not in MAIN:
                    continue
                if dataset not in plan.missing:
                    rows += _cell_rows(plan.tier, dataset, name, rule, repetitions, seed)
    return rows


def _cell_rows(
    tier: str, dataset: str, name: str, rule: str, repetitions: int, seed: int
) -> list[dict[str, Any]]:
    rng = np.random.default_rng([seed, *f"{dataset}/{name}/{rule}".encode()])
    value = paper_value(dataset, name, rule)
    rows = []
    for repetition in range(repetitions):
        for metric, number in metrics_of(dataset, value, rng).items():
            rows.append(row(tier, dataset, name, rule, repetition, metric, number))
    return rows


def metrics_of(dataset: str, value: float, rng: np.random.Generator) -> dict[str, float]:
    task, reading = task_of(dataset), reading_of(dataset)
    if task == "classification":
        logit = math.log((value - 0.05) / (100.05 - value)) + 0.1 * rng.normal()
        return {"accuracy": 100 / (1 + math.exp(-logit))}
    drawn = value / reading.scale * math.exp(0.05 * rng.normal())
    if task == "localization":
        further = {"all_steps_mse": 2 * drawn, "median": drawn / 5, "p90": 3 * drawn}
        return {"last_step_mse": drawn, **further, "success": 100 * math.exp(-drawn)}
    mse = drawn if reading.metric == "mse" else drawn**2
    return {"rmse": mse**0.5, "mae": 0.6 * mse**0.5, "mse": mse}


def row(
    tier: str, dataset: str, name: str, rule: str, repetition: int, metric: str, value: float
) -> dict[str, Any]:
    model, accuracy = variant(name), metric in ("accuracy", "success")
    error = math.sqrt(max(value * (100 - value), 0.0) / 900) if accuracy else 0.02 * value
    known: dict[str, Any] = {
        "tier": tier,
        "dataset": dataset,
        "variant": name,
        "size_rule": rule,
        "hidden_size": 64 if model.kind == "particle" else 80,
        "particles": (model.particles or 20) if model.kind == "particle" else 0,
        "batch_size": 64,
        "learning_rate": 0.0005,
        "clip": 5.0,
        "l2": 0.001,
        "fidelity": "paper",
        "repetition": repetition,
        "seed": 1000 + repetition,
        "metric": metric,
        "value": value,
        "passes": 10,
        "passes_sd": "",
        "sampling_error": error,
        "n_test": 900,
        "selected_member_value": "" if model.kind == "ensemble" else 0.95 * value,
        "unit": "unit",
        "data_state": "simulated" if dataset in MAZES else "whole",
        "data_digest": zlib.crc32(dataset.encode()),
        "parameters": 41537 if model.kind == "particle" else 46720,
        "budget_configurations": 36,
        "budget_epochs": 900,
        "search_seconds": 1000.0,
        "final_seconds": 100.0 * (4 if model.kind == "particle" else 1),
        "device": "test device",
        "commit": "0123456789abcdef",
        "final_id": f"final/{dataset}/{name}-{rule}-0123456789",
    }
    return {column: known[column] for column in RESULT_COLUMNS}


def results_of(folder: Path, plan: Study, rows: list[dict[str, Any]]) -> Results:
    """What a report knows of simulated rows, without histories and arrays."""
    results, prepared = write_tree(folder, plan, rows, finals=False)
    return Results(collect(results, prepared, plan))


def write_tree(
    folder: Path, plan: Study, rows: list[dict[str, Any]], finals: bool = True
) -> tuple[Path, Path]:
    """Write results and prepared cards as a finished tier leaves them; return both folders.

    Without ``finals``, no histories and arrays: enough for tables and claims, and fast.
    """
    results, prepared = folder / "results" / plan.tier, folder / "prepared"
    results.mkdir(parents=True)
    frame = pd.DataFrame(rows, columns=list(RESULT_COLUMNS))
    frame.to_csv(results / "results.csv", index=False)
    for final, group in frame.groupby("final_id", sort=True) if finals else ():
        _write_final(results / str(final), group)
    for dataset in plan.datasets:
        if dataset not in plan.missing:
            write_card(prepared, dataset)
    return results, prepared


def write_card(prepared: Path, dataset: str, **changes: Any) -> None:
    task = task_of(dataset)
    digest = str(zlib.crc32(dataset.encode()))
    card = {
        "name": dataset,
        "title": dataset.upper(),
        "task": task,
        "state": "simulated" if dataset in MAZES else "whole",
        "state_note": "",
        "target": "target",
        "unit": "unit",
        "metric": reading_of(dataset).metric,
        "redistributable": dataset != "nasdaq",
        "classes": ["sitting", "standing", "walking"] if task == "classification" else [],
        "features": ["x", "y", "z"],
        "inputs": 3,
        "vocabulary": 500 if dataset in ("mr", "r52") else 0,
        "target_mean": [5.0] * (4 if task == "localization" else 1),
        "target_std": [2.0] * (4 if task == "localization" else 1),
        "raw_sha256": {} if dataset in MAZES else {"FILE.csv": "0" * 64},
        "sequences": {"train": 100, "validation": 10, "test": 900},
        "capped": {},
        "controls": CONTROLS[task],
        "notes": [],
        "arrays_digest": digest,
        "protocol_digest": "p" + digest,
    }
    folder = prepared / f"{dataset}-{digest}"
    folder.mkdir(parents=True)
    (folder / "card.json").write_text(json.dumps(card | changes), encoding="utf-8")
    _write_prepared(folder / "arrays.npz", dataset, bool(card["vocabulary"]))


def _write_prepared(path: Path, dataset: str, text: bool) -> None:
    rng = np.random.default_rng(list(dataset.encode()))
    n, steps = 8, 40
    x = rng.integers(1, 500, (n, steps)) if text else rng.normal(size=(n, steps, 3))
    y = rng.normal(size=(n, steps, 4 if dataset in MAZES else 1)) * 0.4
    arrays = {
        "test/x": x,
        "test/y": np.arange(n) % 3 if task_of(dataset) == "classification" else y,
        "test/length": np.full(n, steps),
        "test/mask": rng.random((n, steps)) < 0.9,
        "test/rows": np.arange(n * steps).reshape(n, steps),
    }
    if dataset in MAZES:
        mean = 5 + np.cumsum(0.1 * rng.normal(size=(n, steps, 2)), axis=1)
        arrays |= {
            "extra/exact_rows": arrays["test/rows"][:, 0],
            "extra/exact_mean": mean,
            "extra/exact_samples": mean[:2, :, None] + 0.2 * rng.normal(size=(2, steps, 8, 2)),
        }
    np.savez(path, **arrays)


def _write_final(final: Path, group: pd.DataFrame) -> None:
    final.mkdir(parents=True)
    dataset, name = str(group["dataset"].iloc[0]), str(group["variant"].iloc[0])
    rng = np.random.default_rng(list(final.name.encode()))
    repetitions = sorted(set(group["repetition"]))
    (final / "run.json").write_text(
        json.dumps({"wall_seconds": 100.0, "finished": "2026-11-28"}), encoding="utf-8"
    )
    members = pd.DataFrame({column: [""] * len(repetitions) for column in MEMBER_COLUMNS})
    members["status"] = "early_stopped"
    members.to_csv(final / "members.csv", index=False)
    history = [
        dict.fromkeys(HISTORY_COLUMNS, "")
        | {"member": member, "epoch": epoch, "val_score": 5 * math.exp(-epoch / 20) + 1}
        for member in repetitions
        for epoch in range(1, 100)
    ]
    pd.DataFrame(history).to_csv(final / "history.csv", index=False)
    if task_of(dataset) != "classification":
        _write_arrays(final, dataset, VARIANTS[name].kind == "particle", len(repetitions), rng)


def _write_arrays(
    final: Path, dataset: str, particle: bool, repetitions: int, rng: np.random.Generator
) -> None:
    n, steps, particles = 4, 40, 30
    coordinates = 4 if dataset in MAZES else 1
    t = np.arange(steps)[None, :, None]
    truth = 5 + 3 * np.sin(t / 15 + np.arange(n)[:, None, None] + np.arange(coordinates) * 1.5)
    truth = np.concatenate([truth[..., :2], (truth[..., 2:] - 5) / 3], -1)
    spread = 3 * np.exp(-t / 8) + 0.1
    prediction = truth + 0.3 * spread * rng.normal(size=truth.shape)
    mask = np.ones((n, steps), dtype=bool)
    several = truth + spread * rng.normal(size=(repetitions, *truth.shape))
    np.savez(final / "predictions.npz", prediction=several, truth=truth, mask=mask)
    if particle:
        cloud = prediction[:, :, None] + spread[..., None] * rng.normal(
            size=(n, steps, particles, coordinates)
        )
        weights = rng.dirichlet(np.full(particles, 2.0), size=(n, steps))
        np.savez(
            final / "belief.npz",
            particles=cloud,
            log_weights=np.log(weights),
            prediction=prediction,
            truth=truth,
            mask=mask,
            index=np.arange(n),
        )
