"""The loops of kernels that are more than a loop nest, read from their low-level IR."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from hloom.lir import Function
from hloom.lir.control import End, EndLoop, If, Loop, While
from hloom.lir.instructions import Binary, Call, Convert, Instruction, Load, Negate, Shuffle, Store
from hloom.lir.values import Symbol, Value

SHOWN = (Load, Store, Binary, Negate, Convert, Shuffle, Call)
"""Instructions that an outline counts; addresses and the like are left out."""
ADDRESSING = ("i64", "ptr")
"""Types of indices and addresses, whose arithmetic is left out."""

_TYPES = re.compile(r"(\.(v\d+)?[fip]\d+)+$")


def outline(functions: Iterable[Function]) -> str:
    """Returns loops and conditions, indented, with the work between them: `64 x fma <8 x float>`, without addresses."""
    entry_first = reversed([*functions])
    return "\n\n".join("\n".join([f"{function.name}:", *_lines(function)]) for function in entry_first)


def _lines(function: Function) -> Iterator[str]:
    depth, counts = 1, Counter[str]()
    for instruction in function.instructions:
        opened, closed = _opening(instruction), isinstance(instruction, (EndLoop, End))
        if (opened or closed) and counts:
            yield f"{'  ' * depth}{', '.join(_counted(counts))}"
            counts.clear()
        if closed:
            depth -= 1
        if opened:
            yield f"{'  ' * depth}{opened}"
            depth += 1
        elif isinstance(instruction, SHOWN) and (name := _name(instruction)):
            counts[name] += 1
    if counts:
        yield f"{'  ' * depth}{', '.join(_counted(counts))}"


def _counted(counts: Counter[str]) -> Iterator[str]:
    return (name if count == 1 else f"{count} x {name}" for name, count in counts.items())


def _opening(instruction: Instruction) -> str:
    """The line of an instruction that begins a block; "" for others."""
    if isinstance(instruction, Loop):
        step, stop = instruction.end.operands[:2]
        by = "" if step.text == "1" else f" step {step.text}"
        return f"for {instruction.index.text} in {_short(instruction.operands[0])} .. {_short(stop)}{by}:"
    if isinstance(instruction, If):
        return f"if {'not ' if instruction.is_negated else ''}{_short(instruction.operands[0])}:"
    return "while:" if isinstance(instruction, While) else ""


def _short(value: Value, depth: int = 2) -> str:
    """A value as arithmetic on constants and named values, as far as it is short."""
    symbols = {"add": "+", "sub": "-", "mul": "*", "udiv": "/", "sdiv": "/", "shl": "<<"}
    if depth and isinstance(value, Binary) and (symbol := symbols.get(value.opcode)):
        a, b = (_short(operand, depth - 1) for operand in value.operands)
        return f"({a} {symbol} {b})"
    if depth and isinstance(value, Call) and isinstance(value.operands[0], Symbol):
        arguments = ", ".join(_short(operand, depth - 1) for operand in value.operands[1:])
        return f"{_callee(value)}({arguments})"
    return value.text


def _name(instruction: Instruction) -> str:
    """Kind of work and its type; "" for arithmetic on indices."""
    if isinstance(instruction, Call) and instruction.type.text not in ADDRESSING:
        return f"{_callee(instruction)} {instruction.type.text}".removesuffix(" void")
    type_ = instruction.operands[0].type if isinstance(instruction, Store) else instruction.type
    kind = getattr(instruction, "opcode", type(instruction).__name__.lower())
    return "" if type_.text in ADDRESSING else f"{kind} {type_.text}"


def _callee(call: Call) -> str:
    """Name of a called function: of an intrinsic without its types."""
    callee = call.operands[0]
    if not isinstance(callee, Symbol):
        return callee.text
    is_intrinsic = callee.name.startswith("llvm.")
    return _TYPES.sub("", callee.name.removeprefix("llvm.")) if is_intrinsic else callee.name
