"""Emission of indices: a scalar base, a stride from lane to lane, and a vector of the terms not affine in the lane."""

from __future__ import annotations

from typing import cast

from hloom.affine import Atom, Index, Quotient, Remainder, RuntimeIndex, Variable
from hloom.backends.cpu.elements.types import clamped, resized
from hloom.backends.cpu.nests.state import NestState
from hloom.lir import I64, Constant, Value, constant, lane_indices, type_of
from hloom.system.records import record


@record(slots=True)
class LaneIndex:
    """An index in each lane: base + stride * lane + extra."""

    base: Value
    """A scalar, i64."""
    stride: int = 0
    extra: Value | None = None
    """A vector; None for affine indices."""

    @property
    def is_uniform(self) -> bool:
        """Whether the index is the same in all lanes."""
        return not self.stride and self.extra is None

    def has_stride(self, stride: int) -> bool:
        """Whether lanes are a stride apart."""
        return self.stride == stride and self.extra is None


def lane_index(e: NestState, index: Index, uncached: bool = False) -> LaneIndex:
    """Emits an index. An uncached result is not kept for later uses in the scope."""
    b = e.builder
    key = ("terms", index.terms)
    found = e.known(key)
    if found is None:
        found = sum_terms(e, index.terms)
        if not uncached:
            e.scopes[-1][key] = found
    base, stride, extra = found
    if base is None:
        return LaneIndex(constant(I64, index.constant), stride, extra)
    if index.constant:
        base = b.binary("add", base, constant(I64, index.constant))
    return LaneIndex(base, stride, extra)


def sum_terms(e: NestState, terms: tuple[tuple[Atom, int], ...]) -> tuple[Value | None, int, Value | None]:
    """Emits the sum of coefficient * atom, as base, stride and extra; the base is None for an empty sum."""
    b = e.builder
    base: Value | None = None
    extra: Value | None = None
    coefficient = 0
    for atom, c in terms:
        is_contiguous = _is_lane(e, atom)
        if e.vector is not None and e.vector in atom.variables and not is_contiguous:
            part = atom_value(e, atom)
            part = b.binary("mul", part, constant(part.type, c)) if c != 1 else part
            extra = part if extra is None else b.binary("add", extra, part)
            continue
        coefficient += c if is_contiguous else 0
        value = atom_value(e, atom)
        if value.type.width:
            part = b.binary("mul", value, constant(value.type, c)) if c != 1 else value
            extra = part if extra is None else b.binary("add", extra, part)
            continue
        value = b.binary("mul", value, constant(I64, c)) if c != 1 else value
        base = value if base is None else b.binary("add", base, value)
    return base, coefficient, extra


def _is_lane(e: NestState, atom: Atom) -> bool:
    """Whether an atom grows by one from lane to lane: the counter of the vector loop, or its rest by whole vectors."""
    if e.vector is None or not isinstance(atom, Remainder):
        return atom is e.vector
    return atom.operand.is_atom(e.vector) and atom.divisor % e.lanes == 0


def atom_value(e: NestState, atom: Atom) -> Value:
    """The register of a loop variable, in the first lane, or of an atom that is emitted at its first use."""
    if isinstance(atom, Variable):
        return e.variables[atom]
    key = ("atom", atom)
    found = e.known(key)
    if found is None:
        found = e.scopes[-1][key] = emit_atom(e, atom)
    return cast(Value, found)


def emit_atom(e: NestState, atom: Atom) -> Value:
    """Emits a quotient, a remainder or a run-time integer."""
    b = e.builder
    if isinstance(atom, RuntimeIndex):
        return emit_runtime_index(e, atom)
    assert isinstance(atom, (Quotient, Remainder))
    if e.vector is not None and _is_lane(e, atom):
        return b.binary("urem", e.variables[e.vector], constant(I64, atom.divisor))
    operand = index_value(e, atom.operand)
    divisor = constant(operand.type, atom.divisor)
    quotient = isinstance(atom, Quotient)
    if atom.operand.low >= 0:
        return b.binary("udiv" if quotient else "urem", operand, divisor)
    rest = b.binary("srem", operand, divisor)
    zero = constant(operand.type, 0)
    rest = b.select(b.compare("slt", rest, zero), b.binary("add", rest, divisor), rest)
    if not quotient:
        return rest
    return b.binary("sdiv", b.binary("sub", operand, rest), divisor)


def emit_runtime_index(e: NestState, atom: RuntimeIndex) -> Value:
    """Emits a run-time integer, clamped in its own type, which may be wider than an index."""
    b, type = e.builder, atom.value.type
    value = cast(Value, e.value(atom.value))
    value = clamped(b, value, type.is_signed, atom.low, atom.high)
    return resized(b, value, e.index_element if value.type.width else "i64", type.is_signed)


def index_value(e: NestState, index: Index) -> Value:
    """Emits an index as one register: a vector if it depends on the lane."""
    b = e.builder
    at = lane_index(e, index)
    base = at.base
    if at.is_uniform:
        return base
    type = type_of(e.index_element, e.lanes)
    if isinstance(base, Constant):
        scalar: Value = constant(type.scalar, base.number)
    else:
        scalar = b.convert("trunc", base, "i32") if e.index_element == "i32" else base
    result = b.splat(scalar, e.lanes)
    stride = at.stride
    if stride:
        lanes = lane_indices(type)
        result = b.binary("add", result, b.binary("mul", lanes, constant(type, stride)) if stride != 1 else lanes)
    return b.binary("add", result, at.extra) if at.extra is not None else result
