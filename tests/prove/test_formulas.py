"""Formulas: on constants the solver's meaning of each element-wise operation has the values of the interpreter."""

from __future__ import annotations

import os

import pytest
import z3

from hloom.errors import RuleError
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.compare import Compare
from hloom.ops.convert import BitcastConvert, Convert, ReducePrecision, StochasticConvert
from hloom.ops.elementwise_binary import Complex
from hloom.ops.operation import OPERATIONS, Operation
from hloom.prove.solver.decide import samples
from hloom.prove.solver.element import FORMATS, identical
from hloom.prove.solver.encoder import Encoder
from hloom.prove.terms.concrete import applied, to_codes
from hloom.prove.terms.functions import TOTAL
from hloom.prove.terms.term import from_code, node, variable
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


def has_formula(value: object) -> bool:
    return z3.is_bv_value(value) or z3.is_true(value) or z3.is_false(value) or z3.is_fp_value(value)


@pytest.mark.parametrize("type", [pytest.param(t, marks=[pytest.mark.long] * (t not in DEFAULT)) for t in TYPES])
def test_formulas_have_the_values_of_the_interpreter(type: PrimitiveType) -> None:
    for op, result in operations(type):
        names = [variable(type, f"x{k}") for k in range(max(1, len(op.operands)))]
        arrays = list(samples(names).values())
        arrays = [array[: VALUES if type.bits > 4 else 12] for array in arrays]
        wanted = applied(op, result, arrays)
        codes = zip(*(to_codes(type, array) for array in arrays), strict=True)
        for row, want in zip(codes, to_codes(result, wanted), strict=True):
            term = node(result, op, [from_code(type, code) for code in row])
            element = Encoder(is_opaque=False).element(term)
            value = z3.simplify(element.number if result in FORMATS else element.bits)
            if not has_formula(value):
                break  # an unknown function
            if result in FORMATS:
                same = identical(element.number, Encoder(False).element(from_code(result, want)).number)
                assert z3.is_true(z3.simplify(same)), (op, result, row, value, want)
            else:
                got = int(z3.is_true(value)) if result.is_pred else value.as_long()
                assert got == want, (op, result, row, got, want)
