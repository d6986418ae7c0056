"""Calls and control flow through the builder."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import hloom as hl


def test_a_composite_call_names_its_decomposition() -> None:
    b = hl.XlaBuilder("m")
    twice = b.composite_call(lambda x: x + x, b.parameter(0, hl.f32[2], "x"), name="math.twice", version=1)
    assert twice.instruction.frontend_attributes == {"composite.name": "math.twice", "composite.version": "1"}
    assert hl.compile(b.build(twice))(np.float32([1, 2])).tolist() == [2, 4]
    with pytest.raises(hl.RuleError, match="COMPOSITECALL-3"):
        b.composite_call(lambda x: x, twice, name="", version=1)


COMPOSITE = """HloModule m
double {{ x = f32[] parameter(0)
  ROOT y = f32[] add(x, x) }}
ENTRY e {{
  a = f32[] parameter(0)
  ROOT r = f32[] call(a), to_apply=double, is_composite=true,
    frontend_attributes{equals}{{composite.name="my.op", composite.attributes={{n = 1 : i32}}, composite.version="2"}}
}}"""


@pytest.mark.parametrize("equals", ["=", " = "])
def test_a_composite_is_a_call_with_frontend_attributes(equals: str) -> None:
    """COMPOSITECALL-2: read with spaces around the equals sign too, printed without."""
    module = hl.parse(COMPOSITE.format(equals=equals))
    attributes = module.entry.root.frontend_attributes
    assert {key: attributes[f"composite.{key}"] for key in ("name", "version")} == {"name": "my.op", "version": "2"}
    assert module.entry.root.op.is_composite
    text = module.to_text()
    assert "is_composite=true" in text and "frontend_attributes={composite." in text
    assert float(hl.compile(module)(np.float32(4))) == 8


def test_the_arguments_of_a_composite_are_called_args_and_computation() -> None:
    """COMPOSITECALL-4."""
    names = list(inspect.signature(hl.XlaBuilder.composite_call).parameters)
    assert names[1:3] == ["computation", "args"]
    b = hl.XlaBuilder("composite")
    x = b.parameter(0, hl.f32[2])
    made = b.composite_call(lambda v: v + v, x, name="my.op", composite_attributes="{n = 1 : i32}", version=3)
    root = b.build(made).entry_computation.root
    assert (root.opcode, root.frontend_attributes["composite.version"]) == ("call", "3")
