"""The invariants of functions and modules, as lists of what is wrong.

Operands have the types that their instructions take; a value is computed on every path to its uses; every block ends
with a terminator; functions are called with their types; and modules agree on the types of functions.
"""

from __future__ import annotations

from collections.abc import Iterator

from hloom.lir.blocks import Blocks
from hloom.lir.control import BranchIf, Do, EndLoop, If, Loop, Phi, Return, Switch
from hloom.lir.function import Declaration, Function, Global, LirModule, Need
from hloom.lir.instructions import (
    Address,
    AtomicUpdate,
    Binary,
    Call,
    Compare,
    CompareExchange,
    Convert,
    Extract,
    Insert,
    Instruction,
    Load,
    Negate,
    Select,
    Shuffle,
    Store,
)
from hloom.lir.types import I1, I64, PTR, VOID, type_of
from hloom.lir.values import Constant, Parameter, Symbol, Value

_OF_FLOATS = ("fadd", "fsub", "fmul", "fdiv", "frem")
_BITS = {"trunc": 1, "fptrunc": 1, "zext": -1, "sext": -1, "fpext": -1, "bitcast": 0}
"""Conversions, by the sign of the difference between the sizes of operand and result."""


def verify_module(module: LirModule) -> list[str]:
    """Returns what is wrong with a module: with each function, and between them."""
    functions = module.all_functions()
    problems = [f"{function.name}: {problem}" for function in functions for problem in verify(function)]
    types: dict[str, Declaration] = {}
    for function in functions:
        for need in [function, *function.needs.values()]:
            if not isinstance(need, Global):
                own = _declaration(need)
                if types.setdefault(own.name, own) != own:
                    problems.append(f"{function.name}: {own.text()}, but elsewhere {types[own.name].text()}")
    return problems


def _declaration(need: Declaration | Function) -> Declaration:
    return need if isinstance(need, Declaration) else need.declaration


def verify(function: Function) -> list[str]:
    """Returns what is wrong with a function."""
    blocks = Blocks(function)
    problems = list(blocks.problems)
    for instruction in function.instructions:
        found = [*_types(instruction), *_callees(function, instruction)]
        if isinstance(instruction, Return):
            returned = instruction.operands[0].type if instruction.operands else VOID
            found += [f"the function returns {function.result}"] if returned is not function.result else []
        problems += [f"{instruction.line().strip()}: {problem}" for problem in found]
    return [*problems, *_uses(function, blocks)]


def _types(instruction: Instruction) -> Iterator[str]:
    """Yields the operands of an instruction that have wrong types."""
    types = [operand.type for operand in instruction.operands]
    match instruction:
        case Binary():
            if types[0] is not types[1]:
                yield "the types of the operands differ"
            if types[0].is_float != (instruction.opcode in _OF_FLOATS):
                yield f"{instruction.opcode} is not for {types[0]}"
        case Negate():
            yield from () if types[0].is_float else ("a negation is of floats",)
        case Compare():
            if types[0] is not types[1]:
                yield "the types of the operands differ"
            if types[0].is_float and instruction.predicate[0] not in "ou":
                yield f"{instruction.predicate} is not for floats"
        case Select():
            if types[1] is not types[2]:
                yield "the types of the operands differ"
            if types[0] not in (I1, type_of("i1", types[1].width)):
                yield "the condition is no i1"
        case Convert():
            yield from _conversion(instruction)
        case Shuffle() if types[0] is not types[1]:
            yield "the types of the vectors differ"
        case Shuffle() if max(instruction.lanes) >= 2 * types[0].width:
            yield "there are not as many lanes"
        case Extract() | Insert() if not 0 <= instruction.lane < types[0].width:
            yield "there are not as many lanes"
        case Insert() if types[1] is not types[0].scalar:
            yield "the scalar is of another type"
        case Address() if types[0].element != "ptr" or types[1].is_float:
            yield "an address is a pointer and an index"
        case Load() if types[0] is not PTR:
            yield "the address is no pointer"
        case Store() if types[1] is not PTR:
            yield "the address is no pointer"
        case AtomicUpdate() | CompareExchange() if types[0] is not PTR:
            yield "the address is no pointer"
        case Call() if types[0] is not PTR:
            yield "the callee is no pointer"
        case Loop():
            carried = [I64, *(value.type for value in instruction.carried)]
            if types != carried or [value.type for value in instruction.end.operands[2:]] != carried[1:]:
                yield "the types of loop-carried values differ"
        case EndLoop() if types[:2] != [I64, I64]:
            yield "step and stop are i64"
        case BranchIf() | If() | Do() if types[0] is not I1:
            yield "the condition is no i1"
        case Switch() if types[0].is_float or types[0].width:
            yield "the index is no integer"
        case Phi() if any(type is not instruction.type for type in types):
            yield "the types of the values differ"


def _conversion(instruction: Convert) -> Iterator[str]:
    source, target = instruction.operands[0].type, instruction.type
    sizes = [max(type.width, 1) * type.bits for type in (source, target)]
    sign = _BITS.get(instruction.opcode)
    if sign is not None and (sizes[0] > sizes[1]) - (sizes[0] < sizes[1]) != sign:
        yield f"{instruction.opcode} does not convert {source} to {target}"
    if instruction.opcode != "bitcast" and source.width != target.width:
        yield "the numbers of lanes differ"


def _callees(function: Function, instruction: Instruction) -> Iterator[str]:
    """Yields the symbols that the function does not need, and the calls of other types than declared."""
    for operand in instruction.operands:
        if isinstance(operand, Symbol) and operand.name not in function.needs:
            yield f"@{operand.name} is unknown"
    if isinstance(instruction, Call) and isinstance(instruction.operands[0], Symbol):
        need: Need | None = function.needs.get(instruction.operands[0].name)
        if isinstance(need, (Declaration, Function)):
            declared = _declaration(need)
            types = tuple(operand.type for operand in instruction.operands[1:])
            if (declared.result, declared.parameters) != (instruction.type, types):
                yield f"called with other types than in {declared.text()}"


def _uses(function: Function, blocks: Blocks) -> Iterator[str]:
    """Yields the uses of values that are not computed on every path to them."""
    defined: dict[str, tuple[str, int]] = {parameter.text: ("entry", -1) for parameter in function.parameters}
    instructions = list(zip(function.instructions, blocks.of, strict=True))
    for position, (instruction, block) in enumerate(instructions):
        own = [instruction.index, *instruction.carried] if isinstance(instruction, Loop) else [instruction]
        for value in own:
            if value.text and value.text in defined:
                yield f"there are two values {value.text}"
            if value.text:
                start = instruction.label if isinstance(instruction, Loop) else block
                defined[value.text] = (start, position)
    for position, (instruction, block) in enumerate(instructions):
        if block not in blocks.dominators:
            continue
        sources = instruction.labels if isinstance(instruction, Phi) else [block] * len(instruction.operands)
        if isinstance(instruction, Phi) and set(sources) != blocks.predecessors(block):
            yield f"{instruction.line().strip()}: the blocks before are {sorted(blocks.predecessors(block))}"
        for operand, source in zip(instruction.operands, sources, strict=True):
            if not _is_computed(operand, source, position, isinstance(instruction, Phi), defined, blocks):
                yield f"{instruction.line().strip()}: {operand.text} is not computed on every path"


def _is_computed(
    operand: Value, block: str, position: int, at_end: bool, defined: dict[str, tuple[str, int]], blocks: Blocks
) -> bool:
    """Whether an operand is a constant, or computed before a position of a block on every path."""
    if isinstance(operand, (Constant, Symbol, Parameter)) and operand.text not in defined:
        return not isinstance(operand, Parameter)
    if operand.text not in defined:
        return False
    own, own_position = defined[operand.text]
    if own == block:
        return at_end or own_position < position
    return own in blocks.dominators.get(block, {own})


def check_module(module: LirModule) -> None:
    """Raises AssertionError if something is wrong with a module."""
    problems = verify_module(module)
    assert not problems, "\n".join(problems)
