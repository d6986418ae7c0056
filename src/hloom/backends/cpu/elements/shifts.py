"""Shifts, and rotations, which programs write as disjunctions of two shifts."""

from __future__ import annotations

from hloom.backends.cpu.elements.types import rounded
from hloom.lir import Builder, Constant, Value, constant, is_constant_below
from hloom.lir.instructions import Binary, Call
from hloom.types import PrimitiveType


def shift(b: Builder, instruction: str, x: Value, y: Value, type: PrimitiveType) -> Value:
    """Emits a shift by LLVM's name, with XLA's results for amounts that are not below the width."""
    # Unsigned types narrower than a byte are zero-extended: their sign bit is not that of the register.
    bits = type.bits
    if instruction == "ashr" and bits < 8:
        amount = constant(x.type, 8 - bits)
        x = b.binary("ashr", b.binary("shl", x, amount), amount)
    if instruction == "lshr" and bits < 8:
        x = b.binary("and", x, constant(x.type, (1 << bits) - 1))
    if is_constant_below(y, bits):
        return rounded(b, b.binary(instruction, x, y), type)
    inside = b.compare("ult", y, constant(y.type, bits))
    safe = b.select(inside, y, constant(y.type, 0 if instruction != "ashr" else bits - 1))
    shifted = b.binary(instruction, x, safe)
    if instruction != "ashr":
        shifted = b.select(inside, shifted, constant(x.type, 0))
    return rounded(b, shifted, type)


def disjunction(b: Builder, x: Value, y: Value) -> Value:
    """Emits an `or`; that of two shifts which rotate a value is one instruction, which LLVM takes long to find."""
    rotation = _rotation(x, y) or _rotation(y, x)
    if rotation is None:
        return b.binary("or", x, y)
    value, amount = rotation
    return b.intrinsic("fshl", value, value, amount)


def exclusive_or(b: Builder, x: Value, y: Value) -> Value:
    """Emits an `xor`; that of a rotated vector, as each iteration of random bits and of hashes has one, is fenced.

    LLVM looks for known bits of the operands of each operation, six operations back, which takes it longer than all its
    other work on such code, and finds none.
    """
    result = b.binary("xor", x, y)
    is_mixing = result.type.width and result.type.bits >= 32 and any(map(_is_rotated, (x, y)))
    return b.fence(result) if is_mixing else result


def _is_rotated(x: Value) -> bool:
    return isinstance(x, Call) and x.operands[0].text.startswith("@llvm.fshl")


def _rotation(left: Value, right: Value) -> tuple[Value, Value] | None:
    """Returns the value that is shifted to the left and to the right by constants that together are its width, and the
    first of them; None for other values.
    """
    match left, right:
        case (
            Binary(opcode="shl", operands=[value, Constant() as up]),
            Binary(opcode="lshr", operands=[same, Constant() as down]),
        ) if value is same:
            pairs = zip(up.lanes, down.lanes, strict=True)
            if all(a is not None and b is not None and a + b == value.type.bits for a, b in pairs):
                return value, up
    return None
