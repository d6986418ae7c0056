"""Proofs of the expansion of dynamic sizes: padded arrays and sizes give the same valid elements, for all sizes."""

from __future__ import annotations

import pytest

import hloom as hl
from hloom.passes import clone_module
from hloom.passes.legalize.dynamic.padder import DynamicPadder
from hloom.prove import Proved, prove
from passes.legalize.test_dynamic_padder import BODIES, text_of

SLOW = ("sort across", "sort of several")
"""Sorts of eight elements of unknown number are too many choices; those of four are proved."""
PROVED = [name for name in BODIES if name not in (*SLOW, "while")]  # the size of the loop's result depends on its run


def check(text: str) -> None:
    before = hl.parse(text)
    after = clone_module(before)
    assert DynamicPadder().run(after)
    assert isinstance(verdict := prove(before, after), Proved), verdict


@pytest.mark.parametrize("name", PROVED[::12])
def test_expansions_of_dynamic_sizes_are_proved(name: str) -> None:
    check(text_of(BODIES[name]))


@pytest.mark.long
@pytest.mark.parametrize("name", PROVED)
def test_all_expansions_of_dynamic_sizes_are_proved(name: str) -> None:
    check(text_of(BODIES[name]))


@pytest.mark.long
@pytest.mark.parametrize("name", SLOW)
def test_expansions_of_sorts_are_proved_for_fewer_elements(name: str) -> None:
    text = text_of(BODIES[name])
    for old, new in (("<=8", "<=3"), ("[8", "[3"), (",<=4]", ",<=2]"), (",4]", ",2]")):
        text = text.replace(old, new)
    check(text)
