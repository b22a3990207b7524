"""A final's model in MLflow: logged with its code, one a data set and variant, alias the tier."""

from __future__ import annotations

import logging
import os
from importlib import metadata
from pathlib import Path
from typing import Any

from pfrnn.study.track.attachments import Model

# All that loading and predicting imports, besides mlflow and the package's own code.
REQUIREMENTS = ("torch", "numpy", "pydantic", "pyyaml", "tqdm")
PACKAGE = Path(__file__).parents[2]


def log_model(client: Any, uri: str, run_id: str, model: Model) -> None:
    """Log a model to a run, register it, and point its alias to it; the older version goes."""
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    import mlflow
    from mlflow.exceptions import MlflowException

    logging.getLogger("mlflow").setLevel(logging.WARNING)
    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)
    with mlflow.start_run(run_id=run_id):
        logged = mlflow.pyfunc.log_model(
            name="model",
            python_model=str(PACKAGE / "study" / "track" / "model.py"),
            artifacts={"model": str(model.folder)},
            signature=signature_of(dict(model.example), model.outputs, model.task),
            input_example=dict(model.example),
            code_paths=[str(PACKAGE)],
            pip_requirements=requirements(),
        )
    older = ""
    try:
        client.create_registered_model(model.name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
        older = client.get_registered_model(model.name).aliases.get(model.alias, "")
    new = client.create_model_version(
        model.name, logged.model_uri, run_id=run_id, model_id=logged.model_id
    )
    client.set_registered_model_alias(model.name, model.alias, new.version)
    if older:
        client.delete_model_version(model.name, older)


def requirements() -> list[str]:
    """Return the packages that the model needs, at the versions it was logged with."""
    return [
        f"mlflow=={metadata.version('mlflow')}",
        *(f"{name}=={metadata.version(name).partition('+')[0]}" for name in REQUIREMENTS),
    ]


def signature_of(example: dict[str, Any], outputs: int, task: str) -> Any:
    """Return the signature: any number of sequences, any number of steps."""
    import numpy as np
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    free = (-1, -1, *example["x"].shape[2:])
    inputs = [
        TensorSpec(example["x"].dtype, free, "x"),
        TensorSpec(example["length"].dtype, (-1,), "length"),
    ]
    predicted = (-1, outputs) if task == "classification" else (-1, -1, outputs)
    return ModelSignature(
        inputs=Schema(inputs), outputs=Schema([TensorSpec(np.dtype("float32"), predicted)])
    )
