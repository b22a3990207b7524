"""What belongs to a job's parent run besides numbers: tags of the plan, pictures, the model."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pfrnn.errors import PfrnnError
from pfrnn.study.files import read_json
from pfrnn.study.plan import Plan
from pfrnn.study.variants import variant


class Model(NamedTuple):
    """A model to log and to register.

    Attributes:
        name: registered name.
        alias: which of its versions it is: the tier, with the size rule unless that is fixed.
        folder: what ``pfrnn.study.train.serving.export`` wrote.
        example: its example input.
        outputs: size of a prediction's last axis.
        task: regression, classification or localization.
    """

    name: str
    alias: str
    folder: Path
    example: Mapping[str, Any]
    outputs: int
    task: str


def planned_tags(plan: Plan) -> dict[str, dict[str, str]]:
    """Return {job id: its fidelity and the cells that it feeds, e.g. ``maze10/pf_lstm-fixed``}."""
    found: dict[str, list[str]] = {}
    fidelity: dict[str, str] = {}
    for cell in plan.cells:
        name = f"{cell.dataset}/{cell.variant}-{cell.size_rule}"
        for job in (cell.final_id, *(block.id for block in cell.blocks)):
            found.setdefault(job, []).append(name)
            fidelity[job] = plan.config_of(cell.dataset, variant(cell.variant)).fidelity_label
    return {
        job: {"cells": ", ".join(names), "fidelity": fidelity[job]} for job, names in found.items()
    }


def artifacts(folder: Path, scratch: Path) -> list[Path]:
    """Return the files of a finished job's parent run; pictures are written to ``scratch``."""
    files = [folder / "run.json"]
    if (folder / "predictions.npz").exists():
        # By name: an import statement would make the report's source part of what decides whether
        # results are imported again.
        pictures = importlib.import_module("pfrnn.study.report.figures.final")
        run = read_json(folder / "run.json")
        files += pictures.write_pictures(folder, run["dataset"], run["variant"], scratch)
    return files


def model_of(job: str, results: Path, plan: Plan, folder: Path) -> Model | None:
    """Export a final's model; None for a block, and for results of other parameters."""
    from pfrnn.study.train.places import Places
    from pfrnn.study.train.serving import export

    if not job.startswith("final/"):
        return None
    try:
        cell = plan.cell(job)
        example = export(plan, job, Places(results), folder)
    except KeyError:
        return None
    except PfrnnError as error:
        print(f"{job}: no model logged: {error}", file=sys.stderr)
        return None
    card = read_json(folder / "model.json")["card"]
    outputs = len(card["classes"]) or len(card["target_mean"])
    # Shared finals carry the name of what was trained.
    name = f"pfrnn-{cell.dataset}-{cell.trained}"
    alias = results.name if cell.size_rule == "fixed" else f"{results.name}-{cell.size_rule}"
    return Model(name, alias, folder, example, outputs, card["task"])
