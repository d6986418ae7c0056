"""Proofs of code: the instructions of one element of an operation compute what the operation means.

An element is loaded from its representation in memory, the operation is applied, and the result is stored, as the
emitters of `backends/cpu/elements/` write it. Prior art: Alive2 for LLVM.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import z3

from hloom.affine import IndexSpace
from hloom.api import compile
from hloom.backends.cpu.elements import ops
from hloom.backends.cpu.elements.types import Element as Registers
from hloom.backends.cpu.elements.types import load_element, memory_element, parts, store_element
from hloom.ir import Computation, Module
from hloom.lir import Builder, Function, Parameter, type_of
from hloom.loops.expressions import Apply, Load
from hloom.ops.elementwise_binary import Add, Divide, Multiply, Subtract
from hloom.ops.elementwise_unary import Sqrt
from hloom.ops.operation import Operation
from hloom.passes.op_builder import OpBuilder
from hloom.prove.equivalence import Proved, Undecided
from hloom.prove.generated.choices import is_false_in_all_cases
from hloom.prove.generated.registers import Machine, Register
from hloom.prove.solver import conversions
from hloom.prove.solver.conversions import FORMULAS
from hloom.prove.solver.decide import are_different
from hloom.prove.solver.element import FORMATS, Element, from_bits, identical
from hloom.prove.solver.encoder import Encoder
from hloom.prove.terms.concrete import from_codes
from hloom.prove.terms.functions import LAWS, apply
from hloom.prove.terms.term import Unsupported, variable
from hloom.shape import Shape
from hloom.types import PrimitiveType

MAX_BITS = 16
"""Bits of all operands, up to which compiled code is run on all values."""
ARITHMETIC = (Add, Subtract, Multiply, Divide, Sqrt)
"""Operations whose results are rounded."""


def prove_element(
    op: Operation, type: PrimitiveType, operands: Sequence[PrimitiveType], seconds: float = 60.0
) -> Proved | Undecided | str:
    """Decides whether the code of an element-wise operation computes its meaning, for all operands.

    `type` and `operands` are element types. The code must not be undefined or poison either. Where the solver knows no
    formula and operands have few bits, compiled code is run on all of them. Returns the bits of operands for which the
    result is wrong.
    """
    is_solved = (op in FORMULAS or op in LAWS) and all(
        t in FORMATS or t.is_integer or t.is_pred for t in (type, *operands)
    )
    if not is_solved and sum(t.bits for t in operands) <= MAX_BITS:
        return _tried(op, type, operands)
    if not is_solved:
        return Undecided(f"{op.opcode} of {', '.join(map(str, operands))} has no formula")
    try:
        return _decided(_wrong(op, type, operands), seconds)
    except Unsupported as error:
        return Undecided(str(error))


def _decided(wrong: Sequence[z3.BoolRef], seconds: float) -> Proved | Undecided | str:
    for formula in wrong:
        if is_false_in_all_cases(formula):
            continue
        general = _generalised(formula)
        if not general.eq(formula) and _checked(general, seconds) is None:
            continue
        found = _checked(formula, seconds)
        if found is not None:
            return found
    return Proved()


def _checked(formula: z3.BoolRef, seconds: float) -> Undecided | str | None:
    solver = z3.Solver()
    solver.set("timeout", int(1000 * seconds))
    solver.add(formula)
    found = solver.check()
    if found == z3.unknown:
        return Undecided(f"the solver stopped: {solver.reason_unknown()}")
    if found == z3.unsat:
        return None
    values = {str(name): solver.model()[name] for name in solver.model() if str(name).startswith("x")}
    return ", ".join(f"{name} = {value}" for name, value in sorted(values.items()))


def _tried(op: Operation, type: PrimitiveType, operands: Sequence[PrimitiveType]) -> Proved | str:
    """Compares compiled code with the interpreter on all operands."""
    codes = np.arange(1 << sum(t.bits for t in operands))
    arrays = []
    for t in operands:
        arrays.append(from_codes(t, codes & ((1 << t.bits) - 1)))
        codes = codes >> t.bits
    module, entry = Module("element"), Computation("element")
    build = OpBuilder.of(entry)
    given = [build.parameter(k, Shape.array(t, (len(codes),))) for k, t in enumerate(operands)]
    entry.root = build(op, *given, shape=Shape.array(type, (len(codes),)))
    module.add(entry, entry=True)
    module.set_default_entry_layouts()
    a, b = (compile(module, backend)(*arrays) for backend in ("interpreter", "cpu"))
    differ = are_different(type, np.asarray(a), np.asarray(b))
    at = int(np.argmax(differ))
    return ", ".join(f"x{k} = {array[at]}" for k, array in enumerate(arrays)) if differ.any() else Proved()


def _generalised(formula: z3.BoolRef) -> z3.BoolRef:
    """Returns a formula with unknown numbers instead of sums, products, quotients and roots: how they are rounded to a
    narrower format does not depend on how they came about."""
    results: dict[int, z3.ExprRef] = {}
    stack: list[z3.ExprRef] = [formula]
    seen = set[int]()
    while stack:
        term = stack.pop()
        if term.get_id() in seen:
            continue
        seen.add(term.get_id())
        if z3.is_app(term) and term.decl().kind() in _ROUNDED:
            results.setdefault(term.get_id(), term)
        else:
            stack += term.children()
    return z3.substitute(formula, *((term, z3.FreshConst(term.sort())) for term in results.values()))


_ROUNDED = (z3.Z3_OP_FPA_ADD, z3.Z3_OP_FPA_SUB, z3.Z3_OP_FPA_MUL, z3.Z3_OP_FPA_DIV, z3.Z3_OP_FPA_SQRT)


def _wrong(op: Operation, type: PrimitiveType, operands: Sequence[PrimitiveType]) -> list[z3.BoolRef]:
    """Returns conditions of which none may hold."""
    encoder, machine = Encoder(is_opaque=False), Machine()
    terms = [variable(t, f"x{k}") for k, t in enumerate(operands)]
    raw = [in_memory(encoder.element(term), f"beyond{k}") for k, term in enumerate(terms)]
    (found,) = machine.run(element_function(op, type, operands), raw)
    if type in FORMATS and type.bits < 32 and isinstance(op, ARITHMETIC):
        meaning = _rounded(op, type, raw)
    else:
        meaning = encoder.element(apply(op, type, terms))
    is_wrong = _differ(from_memory(found, type), meaning)
    return [z3.simplify(formula) for formula in (*machine.undefined, found.poison, is_wrong)]


def _rounded(op: Operation, type: PrimitiveType, raw: Sequence[Register]) -> Element:
    """Returns the result of arithmetic of narrow floats: that of f32, rounded (GEN-7).

    The operands in f32 are those that the code loads, which proofs of conversions to f32 compare with their meaning.
    """
    b = Builder(Function("loaded", [Parameter("x", type_of(memory_element(type)))]))
    (register,) = parts(load_element(b, b.function.parameters[0], type))
    b.ret(register)
    function = b.finish()
    wide = [Machine().run(function, [operand])[0].value for operand in raw]
    return conversions.converted(FORMULAS[op](op, PrimitiveType.F32, wide), type)


def _differ(a: Element, b: Element) -> z3.BoolRef:
    """Returns whether two elements differ; all NaNs are equal."""
    return z3.Not(identical(a.number, b.number)) if a.type in FORMATS else a.bits != b.bits


def element_function(op: Operation, type: PrimitiveType, operands: Sequence[PrimitiveType]) -> Function:
    """Returns the function of an element: its parameters and result are as in memory."""
    b = Builder(Function("element", [Parameter(f"x{k}", type_of(memory_element(t))) for k, t in enumerate(operands)]))
    index = IndexSpace().constant(0)
    expression = Apply(op, type, tuple(Load(t, k, index, 1) for k, t in enumerate(operands)))
    loaded: list[Registers] = [load_element(b, p, t) for p, t in zip(b.function.parameters, operands, strict=True)]
    (register,) = parts(ops.apply(b, expression, loaded))
    b.ret(store_element(b, register, type))
    return b.finish()


def in_memory(element: Element, name: str) -> Register:
    """Returns an element as it is in memory; bits beyond its width are unknown."""
    if element.type.is_pred:
        return Register(z3.If(element.bits, z3.BitVecVal(1, 8), z3.BitVecVal(0, 8)))
    if memory_element(element.type) in ("half", "float", "double"):
        return Register(element)
    missing = 8 - element.type.bits
    return Register(z3.Concat(z3.BitVec(name, missing), element.bits) if missing > 0 else element.bits)


def from_memory(register: Register, type: PrimitiveType) -> Element:
    """Returns an element, given as it is in memory."""
    value = register.value
    if isinstance(value, Element):
        return value
    return from_bits(type, value == 1 if type.is_pred else z3.Extract(type.bits - 1, 0, value))
