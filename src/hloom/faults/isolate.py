"""Extracts instructions of a module as a runnable module."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hloom.errors import ArgumentError, close_names
from hloom.faults.case import Case, interpret
from hloom.ir import Computation, Instruction, Module
from hloom.ops.structure import Parameter
from hloom.passes.extract import extract
from hloom.values import Value


def isolate(
    module: Module, names: Sequence[str], arguments: Sequence[Value] | None = None, occurrence: int = 1
) -> Case:
    """Extracts the instructions whose names match (`fusion.*`), all of one computation, as a module.

    Its parameters are their operands from outside, and its results are those of them that are used outside or unused.
    If the module's arguments are given, the case has the values of the operands in the `occurrence`-th run of the
    computation. Raises ArgumentError if no name matches, matches are in several computations, or they did not run.

    >>> from hloom import faults
    >>> text = "HloModule m  ENTRY e { x = f32[2] parameter(0)  y = f32[2] negate(x)  ROOT z = f32[2] add(y, y) }"
    >>> faults.isolate(hl.parse(text), ["z"], [np.float32([1, 2])]).arguments
    (array([-1., -2.], dtype=float32),)
    """
    chosen = _chosen(module, names)
    (computation,) = {i.parent for i in chosen}
    assert computation is not None
    inside = set(chosen)
    results = [i for i in chosen if i is computation.root or not i.users or not inside.issuperset(i.users)]
    outside = {o for i in chosen for o in i.operands if o not in inside}
    isolated, stand_for = extract(module.name, results, outside)
    if arguments is None:
        return Case(isolated)
    found = _values_read(module, computation, outside, arguments, occurrence)
    missing = [i for i in stand_for if i not in found]
    if missing:
        raise ArgumentError(
            f"%{missing[0].name} was not read: {computation.name} did not run {occurrence} times with these arguments"
        )
    return Case(isolated, tuple(found[i] for i in stand_for))


def _chosen(module: Module, names: Sequence[str]) -> list[Instruction]:
    """Instructions whose names match, all of one computation."""
    found = [i for i in module.instructions() if not isinstance(i.op, Parameter) and any(map(i.matches, names))]
    parents = {i.parent.name for i in found if i.parent is not None}
    if not found:
        hint = close_names(names[0].removeprefix("%"), (i.name for i in module.instructions()))
        raise ArgumentError(f"module {module.name} has no instruction {' or '.join(names)}{hint}")
    if len(parents) > 1:
        raise ArgumentError(
            f"{' and '.join(names)} are in several computations, {', '.join(sorted(parents))}: choose those of one"
        )
    return found


def _values_read(
    module: Module,
    computation: Computation,
    outside: Collection[Instruction],
    arguments: Sequence[Value],
    occurrence: int,
) -> dict[Instruction, Value]:
    """Values of the instructions `outside` in the `occurrence`-th run of the computation."""
    found: dict[Instruction, Value] = {}
    run = 1

    def observe(instruction: Instruction, operands: Sequence[Value], value: Value) -> None:
        nonlocal run
        if instruction.parent is computation and run == occurrence:
            read = zip(instruction.operands, operands, strict=True)
            found.update({operand: v for operand, v in read if operand in outside})
        run += instruction is computation.root

    interpret(module, arguments, observe)
    return found
