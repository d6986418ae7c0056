"""The verifier of modules: `verify_module` raises on the first violation of an invariant.

The module
 1. has an entry computation, which is one of its computations; computation names are unique and not empty;
 2. the computations that its instructions call are its own, and no computation calls itself, directly or not;
 3. `entry_computation_layout` has the shapes of the entry's parameters and result, up to layouts;
 4. aliases and donors name existing outputs and parameters, and no buffer is donated twice;
 5. `replica_count` and `num_partitions` are at least 1.

A computation
 6. has at least one instruction; its root is one of its instructions;
 7. has parameters numbered 0 .. n-1, each number once (GEN-12);
 8. has instructions with unique names that are not empty, listed so that operands come before their users; control
    predecessors come before their successors where the module is scheduled, and are never circular.

An instruction
 9. has operands in its own computation, and `users` are exactly the instructions that have it as an operand;
10. has the number of operands and the attributes that its operation declares, and a result shape that the shape
    rule of the operation infers (GEN-2), except for mixed floating-point types (`verifier.precision`);
11. has valid shardings, aliases and other annotations (`verifier.annotations`);
12. that starts an asynchronous operation is matched: one done takes its context, on the same channel (RECV-3,
    RECVDONE-2, SENDDONE-1).

Further rules apply to modules that run (`verifier.runnable`).
"""

from __future__ import annotations

from typing import NoReturn

from hloom.errors import HloomError, VerifyError
from hloom.ir import Computation, Instruction, Module
from hloom.ops.rules import listed
from hloom.ops.structure import Parameter
from hloom.shape import Shape
from hloom.verifier.annotations import check_annotations
from hloom.verifier.asynchronous import check_asynchronous_pairs
from hloom.verifier.precision import fits_in_one_precision


def verify_module(module: Module) -> list[Instruction]:
    """Checks all invariants listed above; returns the instructions that mix floating-point types.

    Raises VerifyError or RuleError naming the violated invariant and the location.
    """
    if not any(computation is module.entry_computation for computation in module.computations):
        _fail(f"module {module.name} has no ENTRY computation among its computations")
    if module.replica_count < 1 or module.num_partitions < 1:
        _fail(f"replica_count and num_partitions must be >= 1, got {module.replica_count}, {module.num_partitions}")
    names: set[str] = set()
    for computation in module.computations:
        if not computation.name or computation.name in names:
            _fail(f"computation names must be unique and not empty, got {computation.name!r} twice or empty")
        names.add(computation.name)
        _verify_structure(computation)
    _verify_call_graph(module)
    known: dict[tuple[int, ...], Instruction] = {}
    mixed = [instruction for instruction in module.instructions() if not _verify_instruction(instruction, known)]
    if module.is_scheduled:
        for computation in module.computations:
            _verify_schedule(computation)
    check_asynchronous_pairs(module)
    check_annotations(module)
    _verify_entry(module)
    return mixed


def _verify_instruction(instruction: Instruction, known: dict[tuple[int, ...], Instruction]) -> bool:
    """Checks invariant 10: operand count, attributes and result shape; returns whether it holds without mixed types.

    Raises HloomError with the instruction's location.
    """
    try:
        instruction.check(known)
    except HloomError as error:
        if not fits_in_one_precision(instruction):
            raise error.at(_location(instruction)) from None
        return False
    return True


def _verify_structure(computation: Computation) -> None:
    seen: set[Instruction] = set()
    names: set[str] = set()
    positions: list[int] = []
    reads = users = 0
    if not computation.instructions:
        _fail(f"computation {computation.name} has no instructions")
    for instruction in computation.instructions:
        if not instruction.name or instruction.name in names:
            _fail(f"instruction names must be unique and not empty in {computation.name}", instruction)
        names.add(instruction.name)
        if instruction.parent is not computation:
            _fail(f"its parent is not the computation {computation.name} that lists it", instruction)
        for operand in instruction.operands:
            if operand not in seen:
                _fail(f"operand %{operand.name} must come before it, in the same computation", instruction)
            if instruction not in operand.users:
                _fail(f"operand %{operand.name} does not list it among its users", instruction)
        if isinstance(instruction.op, Parameter):
            positions.append(instruction.op.number)
        seen.add(instruction)
        reads += len(instruction.operands) if len(instruction.operands) < 2 else len(set(instruction.operands))
        users += len(instruction.users)
    if reads != users:
        for instruction in computation.instructions:
            for user in instruction.users:
                if user not in seen or instruction not in user.operands:
                    _fail(f"user %{user.name} does not have it as an operand", instruction)
    if computation.root not in seen:
        _fail(f"the root of {computation.name} is not one of its instructions")
    if sorted(positions) != list(range(len(positions))):
        _fail(f"GEN-12: parameters of {computation.name} must be numbered 0 .. n-1 once each, got {sorted(positions)}")
    _verify_control_edges(computation, seen)


def _verify_control_edges(computation: Computation, own: set[Instruction]) -> None:
    if not any(instruction.control_predecessors for instruction in computation.instructions):
        return
    for instruction in computation.instructions:
        for before in instruction.control_predecessors:
            if before not in own or instruction not in before.control_successors:
                _fail(f"control predecessor %{before.name} is not matched in the same computation", instruction)
    waiting = {i: len(set(i.operands) | set(i.control_predecessors)) for i in computation.instructions}
    ready = [instruction for instruction, count in waiting.items() if not count]
    done = 0
    while ready:
        instruction = ready.pop()
        done += 1
        for after in {**instruction.users, **dict.fromkeys(instruction.control_successors)}:
            waiting[after] -= 1
            if not waiting[after]:
                ready.append(after)
    if done != len(computation.instructions):
        _fail(f"control dependencies of {computation.name} are circular")


def _verify_schedule(computation: Computation) -> None:
    position = {instruction: i for i, instruction in enumerate(computation.instructions)}
    for instruction in computation.instructions:
        for before in instruction.control_predecessors:
            if position[before] > position[instruction]:
                _fail(f"is_scheduled: control predecessor %{before.name} must come before it", instruction)


def _verify_call_graph(module: Module) -> None:
    own = {id(computation) for computation in module.computations}
    done: set[int] = set()
    for start in module.computations:
        if id(start) in done:
            continue
        path = [(start, start.called_computations())]
        active = {id(start)}
        while path:
            computation, callees = path[-1]
            for callee in callees:
                if id(callee) not in own:
                    _fail(f"{computation.name} calls {callee.name}, which is not a computation of the module")
                if id(callee) in active:
                    _fail(f"computation {callee.name} calls itself, by way of {computation.name}")
                if id(callee) not in done:
                    path.append((callee, callee.called_computations()))
                    active.add(id(callee))
                    break
            else:
                path.pop()
                active.remove(id(computation))
                done.add(id(computation))


def _verify_entry(module: Module) -> None:
    entry = module.entry
    parameters = entry.parameter_shapes
    layouts = module.entry_parameter_layouts
    if layouts is not None and (
        len(layouts) != len(parameters) or not all(a.compatible(b) for a, b in zip(layouts, parameters, strict=True))
    ):
        _fail(f"entry_computation_layout has parameters {listed(layouts)}, the entry {listed(parameters)}")
    result = module.entry_result_layout
    if result is not None and not result.compatible(entry.result_shape):
        _fail(f"entry_computation_layout has the result {result}, the entry {entry.result_shape}")
    donated: set[tuple[int, tuple[int, ...]]] = set()
    for alias in module.input_output_alias:
        buffer = (alias.parameter_number, alias.parameter_index)
        _subshape(entry.result_shape, alias.output_index, "output")
        _verify_donor(buffer, parameters, donated)
    for donor in module.buffer_donors:
        _verify_donor((donor.parameter_number, donor.parameter_index), parameters, donated)


def _verify_donor(
    buffer: tuple[int, tuple[int, ...]], parameters: list[Shape], donated: set[tuple[int, tuple[int, ...]]]
) -> None:
    number, index = buffer
    if not 0 <= number < len(parameters):
        _fail(f"an alias or donor names parameter {number}; the entry has {len(parameters)}")
    _subshape(parameters[number], index, f"parameter {number}")
    if buffer in donated:
        _fail(f"parameter {number} at {list(index)} is donated twice")
    donated.add(buffer)


def _subshape(shape: Shape, index: tuple[int, ...], what: str) -> Shape:
    try:
        return shape.subshape(index)
    except HloomError:
        _fail(f"an alias or donor names {what} at {list(index)}, which {shape} does not have")


def _location(instruction: Instruction) -> str:
    where = f" ({instruction.location})" if instruction.location else ""
    return f"{instruction!r}{where}"


def _fail(message: str, instruction: Instruction | None = None) -> NoReturn:
    error = VerifyError(message if instruction is None else f"%{instruction.name}: {message}")
    raise error.at(_location(instruction)) if instruction is not None else error
