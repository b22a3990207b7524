"""A licence that changed after a set was prepared: the report shows what the registry allows."""

from __future__ import annotations

from pfrnn.study.data.registry import dataset
from pfrnn.study.report.licensing import allowed, licensed, not_allowed

OLD = {"licence": "as once thought", "redistributable": True, "state": "whole"}
LINES = [[[3.25], [None], [7.0]], [[None], [1.0], [0.5]]]
PICTURE = {"kind": "regression", "lines": LINES, "titles": ["a", "b"], "differences": False}


def test_a_stored_cards_licence_gives_way_to_the_registrys():
    found = licensed({"air": OLD, "nowhere": OLD})
    card = dataset("air").card
    assert not card.redistributable
    assert found["air"] == {"licence": card.licence, "redistributable": False, "state": "whole"}
    assert found["nowhere"] == OLD


def test_values_become_differences_where_the_licence_forbids_them():
    cards = licensed({"air": OLD, "aep": OLD})
    found = allowed({"air": PICTURE, "aep": PICTURE}, cards)
    assert found["aep"] == PICTURE
    assert found["air"]["differences"]
    assert found["air"]["lines"] == [[[0.0], [None], [3.75]], [[None], [0.0], [-0.5]]]
    assert found["air"]["titles"] == PICTURE["titles"]
    # A second time changes nothing; pictures without values, or of no sequence, are left alone.
    assert allowed(found, cards) == found
    others = {"mr": {"kind": "text", "tokens": [[1, 2]]}, "r52": {}}
    assert allowed(others, licensed({"mr": OLD, "r52": OLD})) == others


def test_what_is_recorded_against_the_licence_is_named():
    said = not_allowed({"air": PICTURE, "aep": PICTURE}, {"air": OLD, "aep": OLD})
    assert [line.split(";")[0].split(",")[0] for line in said] == [
        "data/cards.json: the licence of air isn't the registry's",
        "data/cards.json: the licence of aep isn't the registry's",
        "data/sequences.json: values of air",
    ]
    cards = licensed({"air": OLD, "aep": OLD})
    assert not_allowed(allowed({"air": PICTURE, "aep": PICTURE}, cards), cards) == []
