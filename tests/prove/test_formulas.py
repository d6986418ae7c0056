"""Formulas: on constants the solver's meaning of each element-wise operation has the values of the interpreter."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import z3

from hloom.errors import RuleError
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.compare import Compare
from hloom.ops.convert import BitcastConvert, Convert, ReducePrecision, StochasticConvert
from hloom.ops.elementwise_binary import Complex
from hloom.ops.operation import OPERATIONS, Operation
from hloom.prove.solver.decide import samples
from hloom.prove.solver.encoder import Encoder
from hloom.prove.terms.concrete import applied, from_codes, to_codes
from hloom.prove.terms.functions import TOTAL
from hloom.prove.terms.term import node, variable
from hloom.shape import Shape
from hloom.types import PrimitiveType

VALUES = min(60, int(os.environ.get("HLOOM_CASES", "60")))
TYPES = [t for t in PrimitiveType if t.is_array and not t.is_complex]
DEFAULT = (PrimitiveType.S4, PrimitiveType.PRED)


def operations(type: PrimitiveType) -> list[tuple[Operation, PrimitiveType]]:
    """All element-wise operations on a type, with the types of their results."""
    found: list[Operation] = [
        declaration()
        for declaration in OPERATIONS.values()
        if declaration.elementwise and not any(field.required for field in declaration.fields)
    ]
    found += [Compare(direction=d, type=t) for d in ComparisonDirection for t in (None, TOTAL)]
    found += [ReducePrecision(exponent_bits=e, mantissa_bits=m) for e, m in ((5, 10), (8, 7), (2, 1), (4, 3), (11, 0))]
    results = []
    for op in found:
        try:
            shape = op.infer(*op.bind([Shape.array(type, ())] * max(1, len(op.operands))))
        except (RuleError, NotImplementedError):
            continue
        results.append((op, shape.element_type))
    results += [(Convert(), to) for to in TYPES]
    results += [(BitcastConvert(), to) for to in TYPES if to.bits == type.bits and not to.is_pred and not type.is_pred]
    return [(op, to) for op, to in results if not isinstance(op, (Complex, StochasticConvert))]


def value_of(formula: Any, result: PrimitiveType) -> int | None:
    """The bits of a formula without variables; None for an unknown function."""
    value = z3.simplify(formula)
    if result.is_pred:
        return int(z3.is_true(value)) if z3.is_true(value) or z3.is_false(value) else None
    return value.as_long() if z3.is_bv_value(value) else None


def is_nan(type: PrimitiveType, code: int) -> bool:
    return type.is_float and bool(np.isnan(from_codes(type, [code]).astype(np.float64)[0]))


@pytest.mark.parametrize("type", [pytest.param(t, marks=[pytest.mark.long] * (t not in DEFAULT)) for t in TYPES])
def test_formulas_have_the_values_of_the_interpreter(type: PrimitiveType) -> None:
    for op, result in operations(type):
        names = [variable(type, f"x{k}") for k in range(max(1, len(op.operands)))]
        arrays = [array[: VALUES if type.bits > 4 else 12] for array in samples(names).values()]
        wanted = to_codes(result, applied(op, result, arrays))
        encoder = Encoder(is_opaque=False)
        formula = encoder.element(node(result, op, names)).bits
        for *row, want in zip(*(to_codes(type, array) for array in arrays), wanted, strict=True):
            known = [(encoder.variables[x], _constant(type, code)) for x, code in zip(names, row, strict=True)]
            got = value_of(z3.substitute(formula, *known), result)
            if got is None:
                break
            assert got == want or (is_nan(result, got) and is_nan(result, want)), (op, result, row, got, want)


def _constant(type: PrimitiveType, code: int) -> Any:
    return z3.BoolVal(bool(code)) if type.is_pred else z3.BitVecVal(code, type.bits)
