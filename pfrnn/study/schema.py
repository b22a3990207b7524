"""The JSON schema of params.yaml, with each data set's protocol, for editors and readers."""

from __future__ import annotations

import sys
from typing import Any

from pfrnn.study.config import json_schema
from pfrnn.study.data.registry import dataset, dataset_names
from pfrnn.study.files import write_json


def params_schema() -> dict[str, Any]:
    """Return the schema of params.yaml; ``datasets`` holds each set's own protocol model.

    Returns:
        A JSON Schema, plain data. ``workflow/schemas/params.schema.json`` is its committed copy.
    """
    schema = json_schema()
    definitions = schema.setdefault("$defs", {})
    properties = {}
    for name in dataset_names():
        model = dataset(name).protocol
        protocol = model.model_json_schema(ref_template="#/$defs/{model}")
        definitions.update(protocol.pop("$defs", {}))
        properties[name] = protocol
    schema["properties"]["datasets"] |= {"properties": properties, "additionalProperties": False}
    return schema


if __name__ == "__main__":
    write_json(sys.argv[1], params_schema())
