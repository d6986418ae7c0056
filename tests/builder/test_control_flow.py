"""Calls and control flow through the builder."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl


def test_a_composite_call_names_what_its_decomposition_means() -> None:
    b = hl.XlaBuilder("m")
    twice = b.composite_call(lambda x: x + x, b.parameter(0, hl.f32[2], "x"), name="math.twice", version=1)
    assert twice.instruction.frontend_attributes == {"composite.name": "math.twice", "composite.version": "1"}
    assert hl.compile(b.build(twice))(np.float32([1, 2])).tolist() == [2, 4]
    with pytest.raises(hl.RuleError, match="COMPOSITECALL-3"):
        b.composite_call(lambda x: x, twice, name="", version=1)
