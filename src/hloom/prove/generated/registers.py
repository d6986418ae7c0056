"""Symbolic evaluation of the low-level IR: functions of scalars without branches, on formulas.

Every register also says when it is poison, and division says when its behaviour is undefined, as LLVM defines them. The
bits of a NaN that is computed are those that LLVM allows: the default NaN of either sign, or a quieted operand.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import z3

from hloom.lir.control import Return
from hloom.lir.function import Function
from hloom.lir.instructions import Binary, Call, Compare, Convert, Extract, Insert, Instruction, Negate, Select
from hloom.lir.types import Type
from hloom.lir.values import Constant, Symbol, Value
from hloom.ops.attributes import ComparisonDirection
from hloom.prove.solver.arithmetic import leading_zeros, population
from hloom.prove.solver.conversions import COMPARISONS
from hloom.prove.solver.element import NEAREST, Element, choose, from_bits, from_number, known, sort_of
from hloom.prove.terms.term import Unsupported
from hloom.system.records import record
from hloom.types import PrimitiveType

FLOATS = {"half": PrimitiveType.F16, "float": PrimitiveType.F32, "double": PrimitiveType.F64}
NEVER = z3.BoolVal(False)


@record
class Register:
    """A bit-vector, a boolean (i1) or a float; a vector is a tuple of registers. `poison` is a z3 boolean."""

    value: Any
    poison: Any = NEVER


@dataclass
class Machine:
    """Evaluates functions; `undefined` collects the conditions of undefined behaviour."""

    undefined: list[Any] = field(default_factory=list)
    names: Iterator[int] = field(default_factory=itertools.count)

    def run(self, function: Function, arguments: Sequence[Register]) -> tuple[Register, ...]:
        """Returns the operands of the function's return. Raises Unsupported for branches, memory and unknown calls."""
        values = {p.text: a for p, a in zip(function.parameters, arguments, strict=True)}
        for instruction in function.instructions:
            operands = [self._operand(operand, values) for operand in instruction.operands]
            if isinstance(instruction, Return):
                return tuple(operands)
            values[instruction.text] = self._result(instruction, operands)
        raise Unsupported("a function without a return")

    def _operand(self, operand: Value, values: dict[str, Register]) -> Register:
        if operand.text in values:
            return values[operand.text]
        if isinstance(operand, Symbol):
            return Register(None)
        if isinstance(operand, Constant):
            if not operand.type.width:
                return _constant(operand.type, operand.lanes[0])
            return Register(tuple(_constant(operand.type.scalar, lane) for lane in operand.lanes))
        raise Unsupported(f"operand {operand}")

    def _result(self, instruction: Instruction, operands: list[Register]) -> Register:
        match instruction:
            case Insert():
                lanes = [*operands[0].value]
                lanes[instruction.lane] = operands[1]
                return Register(tuple(lanes))
            case Extract():
                lane: Register = operands[0].value[instruction.lane]
                return lane
            case Select():
                return _selected(*operands)
            case Call():
                return self._called(instruction, operands[1:])
        poison = z3.simplify(z3.Or(*(operand.poison for operand in operands)))
        values = [operand.value for operand in operands]
        if instruction.type.width or any(isinstance(value, tuple) for value in values):
            raise Unsupported(f"vectors: {instruction.line().strip()}")
        match instruction:
            case Binary():
                return self._binary(instruction, poison, *values)
            case Negate():
                return Register(_negated(values[0]), poison)
            case Compare():
                return Register(_compared(instruction.predicate, *values), poison)
            case Convert():
                return self._converted(instruction, poison, values[0])
        raise Unsupported(instruction.line().strip())

    # Arithmetic

    def _binary(self, instruction: Binary, poison: Any, x: Any, y: Any) -> Register:
        opcode = instruction.opcode
        if instruction.flags:
            raise Unsupported(instruction.line().strip())
        if isinstance(x, Element):
            if opcode not in _OF_FLOATS:
                raise Unsupported(opcode)
            return Register(self._computed(x.type, _OF_FLOATS[opcode](NEAREST, x.number, y.number), x, y), poison)
        if z3.is_bool(x):
            return Register(_OF_BOOLEANS[opcode](x, y), poison)
        if opcode in ("sdiv", "srem"):
            lowest = z3.BitVecVal(1 << (x.size() - 1), x.size())
            self.undefined.append(z3.Or(poison, y == 0, z3.And(x == lowest, y == -1)))
        elif opcode in ("udiv", "urem"):
            self.undefined.append(z3.Or(poison, y == 0))
        elif opcode in ("shl", "lshr", "ashr"):
            poison = z3.Or(poison, z3.UGE(y, x.size()))
        return Register(_OF_INTEGERS[opcode](x, y), poison)

    def _computed(self, type: PrimitiveType, number: Any, *operands: Element) -> Element:
        """Returns a float computed from others of its type."""
        return Element(type, lambda: self._bits(type, number, [operand.bits for operand in operands]), lambda: number)

    def _bits(self, type: PrimitiveType, number: Any, candidates: Sequence[Any]) -> Any:
        """Returns the bits of a number; those of NaN are the default ones of either sign, or of a candidate."""
        quiet = z3.BitVecVal(_quiet(type), type.bits)
        found = quiet | z3.BitVec(self._name(), type.bits) & _sign_mask(type)
        for candidate in candidates:
            is_nan = z3.fpIsNaN(z3.fpBVToFP(candidate, sort_of(type)))
            found = z3.If(z3.And(z3.Bool(self._name()), is_nan), candidate | quiet, found)
        return z3.If(z3.fpIsNaN(number), found, z3.fpToIEEEBV(number))

    def _name(self) -> str:
        return f"nan.{next(self.names)}"

    def _converted(self, instruction: Convert, poison: Any, x: Any) -> Register:
        type, opcode = instruction.type, instruction.opcode
        if opcode == "bitcast":
            bits = x.bits if isinstance(x, Element) else x
            return Register(from_bits(FLOATS[type.element], bits) if type.is_float else bits, poison)
        if opcode in ("fpext", "fptrunc"):
            target = FLOATS[type.element]
            number = z3.fpFPToFP(NEAREST, x.number, sort_of(target))
            return Register(
                Element(target, lambda: self._bits(target, number, [_payload(x, target)]), lambda: number), poison
            )
        if opcode in ("fptosi", "fptoui"):
            return _to_integer(x, type, opcode == "fptosi", poison)
        if z3.is_bool(x):
            ones = -1 if opcode in ("sext", "sitofp") else 1
            x = z3.If(x, z3.BitVecVal(ones, 32), z3.BitVecVal(0, 32))
            opcode = opcode if opcode.endswith("fp") else "resized"
        if opcode in ("sitofp", "uitofp"):
            convert = z3.fpSignedToFP if opcode == "sitofp" else z3.fpUnsignedToFP
            target = FLOATS[type.element]
            return Register(from_number(target, convert(NEAREST, x, sort_of(target))), poison)
        if type.element == "i1":
            return Register(z3.Extract(0, 0, x) == 1, poison)
        extend = z3.SignExt if opcode in ("sext", "resized") else z3.ZeroExt
        more = type.bits - x.size()
        return Register(extend(more, x) if more > 0 else z3.Extract(type.bits - 1, 0, x), poison)

    # Calls

    def _called(self, call: Call, arguments: list[Register]) -> Register:
        callee = call.operands[0]
        if not isinstance(callee, Symbol) or not callee.name.startswith("llvm.") or call.flags:
            raise Unsupported(call.line().strip())
        name = callee.name.removeprefix("llvm.")
        if name.startswith("x86.avx512.mask.range.s"):
            return self._range(arguments)
        poison = z3.simplify(z3.Or(*(argument.poison for argument in arguments)))
        values = [argument.value for argument in arguments]
        if call.type.width or any(isinstance(value, tuple) for value in values):
            raise Unsupported(call.line().strip())
        kind = name.rpartition(".")[0]
        if kind in _MOVES:
            return Register(_MOVES[kind](*values), poison)
        if kind in _ON_INTEGERS and not call.type.is_float:
            return Register(_ON_INTEGERS[kind](*values), poison)
        if kind in _ON_FLOATS and call.type.is_float:
            number = _ON_FLOATS[kind](*(value.number for value in values))
            return Register(self._computed(FLOATS[call.type.element], number, *values), poison)
        raise Unsupported(call.line().strip())

    def _range(self, arguments: list[Register]) -> Register:
        """Returns the larger or smaller of two numbers in the first lane, unknown for NaN (AVX-512's VRANGESS)."""
        (x, *_), (y, *_), rest = (argument.value for argument in arguments[:3])
        a, b = x.value.number, y.value.number
        is_maximum = z3.simplify(arguments[4].value).as_long() == 0b0101
        unknown = z3.Const(self._name(), a.sort())
        number = z3.If(z3.Or(z3.fpIsNaN(a), z3.fpIsNaN(b)), unknown, _extremum(is_maximum)(a, b))
        return Register((Register(from_number(x.value.type, number), z3.Or(x.poison, y.poison)), *rest[1:]))


def _constant(type: Type, number: Any) -> Register:
    if number is None:
        return Register(_zero(type), z3.BoolVal(True))
    if type.element == "i1":
        return Register(z3.BoolVal(bool(number)))
    if type.is_float:
        return Register(known(FLOATS[type.element], number))
    return Register(z3.BitVecVal(int(number), type.bits))


def _zero(type: Type) -> Any:
    zero: Any = _constant(type, 0).value
    return zero


def _selected(condition: Register, x: Register, y: Register) -> Register:
    chosen = z3.simplify(condition.value)
    poison = z3.simplify(z3.Or(condition.poison, z3.If(chosen, x.poison, y.poison)))
    if isinstance(x.value, Element):
        return Register(choose(chosen, x.value, y.value), poison)
    return Register(z3.If(chosen, x.value, y.value), poison)


# Numbers


_OF_FLOATS = {"fadd": z3.fpAdd, "fsub": z3.fpSub, "fmul": z3.fpMul, "fdiv": z3.fpDiv}
_OF_BOOLEANS: dict[str, Callable[[Any, Any], Any]] = {
    "and": z3.And, "or": z3.Or, "xor": z3.Xor, "add": z3.Xor, "sub": z3.Xor, "mul": z3.And,
}  # fmt: skip
_OF_INTEGERS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y,
    "and": lambda x, y: x & y, "or": lambda x, y: x | y, "xor": lambda x, y: x ^ y,
    "shl": lambda x, y: x << y, "ashr": lambda x, y: x >> y, "lshr": z3.LShR,
    "sdiv": lambda x, y: x / y, "srem": z3.SRem, "udiv": z3.UDiv, "urem": z3.URem,
}  # fmt: skip


def _compared(predicate: str, x: Any, y: Any) -> Any:
    if isinstance(x, Element):
        is_nan = z3.Or(z3.fpIsNaN(x.number), z3.fpIsNaN(y.number))
        if predicate in ("ord", "uno"):
            return is_nan if predicate == "uno" else z3.Not(is_nan)
        holds = COMPARISONS[ComparisonDirection[predicate[1:].upper()]][0](x.number, y.number)
        return z3.Or(is_nan, holds) if predicate[0] == "u" else z3.And(z3.Not(is_nan), holds)
    if z3.is_bool(x):
        x, y = (z3.If(value, z3.BitVecVal(1, 1), z3.BitVecVal(0, 1)) for value in (x, y))
    _, of_signed, of_unsigned = COMPARISONS[ComparisonDirection[predicate[-2:].upper()]]
    return (of_unsigned if predicate[0] == "u" else of_signed)(x, y)


def _to_integer(x: Element, type: Type, is_signed: bool, poison: Any) -> Register:
    """Truncates; numbers beyond the range of the integer are poison."""
    number = (z3.fpToSBV if is_signed else z3.fpToUBV)(z3.RTZ(), x.number, z3.BitVecSort(type.bits))
    low, high = (-(1 << (type.bits - 1)), 1 << (type.bits - 1)) if is_signed else (0, 1 << type.bits)
    whole = z3.fpRoundToIntegral(z3.RTZ(), x.number)
    sort = sort_of(x.type)
    limits = [z3.simplify(z3.fpRealToFP(NEAREST, z3.RealVal(limit), sort)) for limit in (low, high)]
    inside = z3.And(z3.fpGEQ(whole, limits[0]), z3.fpLT(whole, limits[1]))
    return Register(number, z3.simplify(z3.Or(poison, z3.Not(inside))))


def _extremum(is_maximum: bool) -> Callable[[Any, Any], Any]:
    def function(x: Any, y: Any) -> Any:
        both_zero = z3.And(z3.fpIsZero(x), z3.fpIsZero(y))
        less = z3.Or(z3.fpLT(x, y), z3.And(both_zero, z3.fpIsNegative(x)))
        chosen = z3.If(less, *((y, x) if is_maximum else (x, y)))
        return z3.If(z3.fpIsNaN(x), x, z3.If(z3.fpIsNaN(y), y, chosen))

    return function


_ON_FLOATS: dict[str, Callable[..., Any]] = {
    "sqrt": lambda x: z3.fpSqrt(NEAREST, x),
    "floor": lambda x: z3.fpRoundToIntegral(z3.RTN(), x),
    "ceil": lambda x: z3.fpRoundToIntegral(z3.RTP(), x),
    "trunc": lambda x: z3.fpRoundToIntegral(z3.RTZ(), x),
    "rint": lambda x: z3.fpRoundToIntegral(NEAREST, x),
    "roundeven": lambda x: z3.fpRoundToIntegral(NEAREST, x),
    "round": lambda x: z3.fpRoundToIntegral(z3.RNA(), x),
    "fma": lambda x, y, z: z3.fpFMA(NEAREST, x, y, z),
    "maximum": _extremum(is_maximum=True),
    "minimum": _extremum(is_maximum=False),
}


_ON_INTEGERS: dict[str, Callable[..., Any]] = {
    "umin": lambda x, y: z3.If(z3.ULT(x, y), x, y), "umax": lambda x, y: z3.If(z3.ULT(x, y), y, x),
    "smin": lambda x, y: z3.If(x < y, x, y), "smax": lambda x, y: z3.If(x < y, y, x),
    "usub.sat": lambda x, y: z3.If(z3.UGT(x, y), x - y, z3.BitVecVal(0, x.size())),
    "ctlz": lambda x, zero_is_poison: leading_zeros(x), "ctpop": population,
}  # fmt: skip


# The bits of floats


def _quiet(type: PrimitiveType) -> int:
    """Returns the bits of the default NaN, without a sign."""
    significand = int(sort_of(type).sbits())
    return ((1 << (int(sort_of(type).ebits()) + 1)) - 1) << (significand - 2)


def _sign_mask(type: PrimitiveType) -> Any:
    return z3.BitVecVal(1 << (type.bits - 1), type.bits)


def _payload(x: Element, target: PrimitiveType) -> Any:
    """Returns the bits of a NaN in another format: its sign, and the high bits of its payload."""
    own, other = int(sort_of(x.type).sbits()) - 1, int(sort_of(target).sbits()) - 1
    payload = z3.Extract(own - 1, 0, x.bits)
    payload = (
        z3.Concat(payload, z3.BitVecVal(0, other - own)) if other > own else z3.Extract(own - 1, own - other, payload)
    )
    exponent = z3.BitVecVal(-1, int(sort_of(target).ebits()))
    return z3.Concat(z3.Extract(x.type.bits - 1, x.type.bits - 1, x.bits), exponent, payload)


def _with_sign(x: Element, sign: Any, number: Callable[[], Any]) -> Element:
    """Returns a float with another sign, a bit-vector of one bit; `number` is its number."""
    return Element(x.type, lambda: z3.Concat(sign, z3.Extract(x.type.bits - 2, 0, x.bits)), number)


def _sign(x: Element) -> Any:
    return z3.Extract(x.type.bits - 1, x.type.bits - 1, x.bits)


def _negated(x: Element) -> Element:
    return _with_sign(x, ~_sign(x), lambda: z3.fpNeg(x.number))


def _copied_sign(x: Element, y: Element) -> Element:
    magnitude = z3.fpAbs(x.number)
    return _with_sign(x, _sign(y), lambda: z3.If(_sign(y) == 1, z3.fpNeg(magnitude), magnitude))


_MOVES: dict[str, Callable[..., Any]] = {
    "fabs": lambda x: _with_sign(x, z3.BitVecVal(0, 1), lambda: z3.fpAbs(x.number)),
    "copysign": _copied_sign,
    "arithmetic.fence": lambda x: x,
}
