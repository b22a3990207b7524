"""Write workflow/schemas/params.schema.json from the models in the package."""

from pathlib import Path

from pfrnn.files import write_json
from pfrnn.schema import params_schema

if __name__ == "__main__":
    write_json(Path("workflow/schemas/params.schema.json"), params_schema())
