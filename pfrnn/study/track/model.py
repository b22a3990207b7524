"""A final's model in MLflow's form; MLflow runs this file when it logs and when it loads."""

from __future__ import annotations

from pathlib import Path

import mlflow.models
import mlflow.pyfunc


class SequenceModel(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    """Predicts sequences; input ``{"x": (N, T, D) or (N, T) tokens, "length": (N,)}``."""

    def load_context(self, context):  # type: ignore[no-untyped-def]
        """Read the model's folder."""
        from pfrnn.study.train.serving import load_served

        self.served = load_served(Path(context.artifacts["model"]))

    # Without type hints: MLflow would take them for the input's schema, which the signature gives.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        """Return (N, T, C) in the target's unit, or (N, C) class probabilities.

        Raises:
            ValueError: a length that isn't a whole number from 1 to T.
        """
        return self.served.predict(model_input["x"], model_input.get("length"))


mlflow.models.set_model(SequenceModel())
