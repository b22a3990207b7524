"""What a block's numbers depend on, as plain data: the digest of it names the block's folder."""

from __future__ import annotations

from typing import Any

from pfrnn.study.config import Config
from pfrnn.study.variants import Variant

# Of the fused kernels' products. It names nothing, as before there was a choice: no folder moves.
PRECISION = "tf32"


def resolved_parameters(
    config: Config, model: Variant, hidden: int, particles: int, batch: int, data_digest: str
) -> dict[str, Any]:
    """Everything a block's numbers depend on, besides source code: plain data for the digest."""
    sections = ["network", "loss", "training", "seed"]
    if model.kind == "particle" or model.batch_norm_relu:
        sections.append("filter")
    if model.kind == "bayesian":
        sections.append("bayesian")
    switches = {k: v for k, v in model.switched().items() if k not in ("name", "label")}
    chosen = config.model_dump(mode="json", include=set(sections))
    if model.kind == "particle" and config.execution.precision != PRECISION:
        chosen["precision"] = config.execution.precision
    return {
        "data": data_digest,
        "hidden_size": hidden,
        "particles": particles,
        "batch_size": batch,
        "variant": switches,
        "halving": False,  # an option that is gone; without it every id would change
        **chosen,
    }
