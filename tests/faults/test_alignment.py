"""Counterparts of instructions in another module, by what they compute, their neighbours, and their names."""

from __future__ import annotations

import hloom as hl
from hloom.faults.alignment import align

CHAIN = """HloModule m
ENTRY e { x = f32[4] parameter(0)
  a = f32[4] sine(x)
  b = f32[4] add(a, x)
  c = f32[4] multiply(b, a)
  ROOT d = f32[4] tanh(c) }"""


def names(one: str, other: str) -> dict[str, str]:
    return {i.name: j.name for i, j in align(hl.parse(one), hl.parse(other)).items()}


def renamed(text: str) -> str:
    """A program with names that other instructions had: c is the former b, and d the former c."""
    for old, new in (("d", "t"), ("c", "d"), ("b", "c"), ("a", "b")):
        text = text.replace(f" {old} =", f" {new} =").replace(f"({old}", f"({new}").replace(f", {old})", f", {new})")
    return text


def test_equal_modules_have_their_own_names() -> None:
    assert names(CHAIN, CHAIN) == {name: name for name in "xabcd"}


def test_names_that_shift_do_not_mislead() -> None:
    """Users of a change compute other values, but their operands and users tell them apart."""
    changed = renamed(CHAIN).replace("sine(x)", "cosine(x)")
    assert "c = f32[4] add(b, x)" in changed
    assert names(CHAIN, changed) == {"x": "x", "b": "c", "c": "d", "d": "t"}


def test_an_instruction_that_became_another_keeps_its_name() -> None:
    assert names(CHAIN, CHAIN.replace("add(a, x)", "subtract(a, x)")) == {name: name for name in "xabcd"}


def test_what_one_module_lacks_has_no_counterpart() -> None:
    shorter = CHAIN.replace("ROOT d = f32[4] tanh(c)", "").replace("  c =", "  ROOT c =")
    assert names(CHAIN, shorter) == {name: name for name in "xabc"}
    assert names(shorter, CHAIN) == {name: name for name in "xabc"}
