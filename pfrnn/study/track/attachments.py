"""What belongs to a job's parent run besides numbers: configuration, pictures, the model."""

from __future__ import annotations

import sys
from pathlib import Path

from pfrnn.errors import PfrnnError
from pfrnn.study.files import read_json, write_json
from pfrnn.study.plan import Plan
from pfrnn.study.track.importer import Attachments, Model
from pfrnn.study.variants import variant


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


class Attacher:
    """Makes the attachments of a tier's jobs."""

    def __init__(self, results: Path, plan: Plan | None, models: bool = True) -> None:
        """Remember where.

        Args:
            results: ``results/<tier>``.
            plan: the configuration's plan; None logs no model.
            models: whether to log models.
        """
        self._results = results
        self._plan = plan
        self._models = models

    def __call__(self, folder: Path, scratch: Path) -> Attachments:
        """Return a job's attachments, written below ``scratch`` where they are new."""
        run = read_json(folder / "run.json")
        files = [folder / "run.json"]
        environment = {key: run[key] for key in ("versions", "machine", "commit") if key in run}
        write_json(scratch / "environment.json", environment)
        files.append(scratch / "environment.json")
        if folder.relative_to(self._results).parts[0] != "final":
            return Attachments(files)
        return Attachments([*files, *_pictures(folder, run, scratch)], self._model(folder, scratch))

    def _model(self, folder: Path, scratch: Path) -> Model | None:
        job = folder.relative_to(self._results).as_posix()
        if self._plan is None or not self._models:
            return None
        try:
            cell = self._plan.cell(job)
        except KeyError:
            # A result of other parameters than the configuration's: kept, but not selected.
            return None
        from pfrnn.study.train.places import Places
        from pfrnn.study.train.serving import export

        try:
            example = export(self._plan, job, Places(self._results), scratch / "model")
        except PfrnnError as error:
            print(f"{job}: no model logged: {error}", file=sys.stderr)
            return None
        card = read_json(scratch / "model" / "model.json")["card"]
        outputs = len(card["classes"]) or len(card["target_mean"])
        # Shared finals carry the name of what was trained.
        name = f"pfrnn-{self._results.name}-{cell.dataset}-{cell.trained}-{cell.size_rule}"
        return Model(name, scratch / "model", example, outputs, card["task"])


def _pictures(folder: Path, run: dict[str, object], scratch: Path) -> list[Path]:
    if "dataset" not in run or not (folder / "predictions.npz").exists():
        return []
    from pfrnn.study.report.run_pictures import write_pictures

    return write_pictures(folder, str(run["dataset"]), str(run["variant"]), scratch)
