from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from pfrnn.study.seeding import derive_seed

AXES = st.lists(st.one_of(st.text(max_size=8), st.integers(0, 99)), max_size=4)


@given(st.integers(0, 2**32), AXES)
def test_seed_is_repeatable_and_in_range(base: int, axes: list[str | int]) -> None:
    seed = derive_seed(base, *axes)
    assert seed == derive_seed(base, *axes)
    assert 0 <= seed < 2**63


@given(AXES, AXES)
def test_other_axes_give_another_seed(first: list[str | int], second: list[str | int]) -> None:
    assert (derive_seed(0, *first) == derive_seed(0, *second)) == (first == second)


def test_axes_do_not_run_into_each_other() -> None:
    assert derive_seed(0, "ab", "c") != derive_seed(0, "a", "bc")
    assert derive_seed(0, "a", 1) != derive_seed(0, "a", "1")
    assert derive_seed(1, 2) != derive_seed(12)


def test_seed_is_the_documented_function() -> None:
    """The same on every machine: written out by hand from the docstring."""
    text = b"int:2020"
    other = b"str:air"
    digest = hashlib.sha256()
    for part in (text, other):
        digest.update(len(part).to_bytes(4, "big") + part)
    assert derive_seed(2020, "air") == int.from_bytes(digest.digest()[:8], "big") >> 1
