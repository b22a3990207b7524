"""workflow/schemas/params.schema.json is generated; this regenerates it and compares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import pfrnn.study.data.sets
from pfrnn.study.config import TIERS, merge
from pfrnn.study.data.registry import dataset_names
from pfrnn.study.files import read_json
from pfrnn.study.schema import params_schema

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "workflow" / "schemas" / "params.schema.json"


@pytest.fixture(autouse=True)
def _only_the_packages_own_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests add toy sets to the registry's path, for the rest of the process."""
    monkeypatch.setattr(pfrnn.study.data.sets, "__path__", pfrnn.study.data.sets.__path__[:1])


def test_the_committed_schema_is_up_to_date() -> None:
    assert read_json(COMMITTED) == params_schema(), "run: make schema"


def test_every_data_set_has_its_protocol_in_the_schema() -> None:
    properties = params_schema()["properties"]["datasets"]["properties"]
    assert set(properties) == set(dataset_names())
    assert "max_train" in properties["maze10"]["properties"]


def _values(tier: str) -> dict[str, Any]:
    base = yaml.safe_load((ROOT / "params.yaml").read_text())
    overlay = yaml.safe_load((ROOT / "workflow" / "tiers" / f"{tier}.yaml").read_text())
    return merge(base, overlay or {})


@pytest.mark.parametrize("tier", TIERS)
def test_the_schema_accepts_each_tier_and_refuses_an_unknown_key(tier: str) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="comes with snakemake")
    validator = jsonschema.Draft202012Validator(params_schema())
    values = _values(tier)
    assert list(validator.iter_errors(values)) == []
    for wrong in ({"trainig": {}}, {"datasets": {"maze10": {"stepps": 3}}}, {"seed": "x"}):
        assert list(validator.iter_errors(merge(values, wrong)))
