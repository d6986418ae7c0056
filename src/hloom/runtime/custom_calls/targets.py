"""Looks up the functions of custom-call targets: those that users registered precede those that hloom declares."""

from __future__ import annotations

from collections.abc import Iterator

from hloom.errors import RuleError, close_names
from hloom.ir import Instruction, Module
from hloom.ops.custom_call import MARKERS, SHARD_MARKERS, CustomCall
from hloom.runtime.custom_calls.fortran import RoutineCall
from hloom.runtime.custom_calls.registry import DECLARED, REGISTERED, ROUTINES, Caller, binding_of, custom_call_of
from hloom.runtime.custom_calls.signature import Signature
from hloom.shape import Shape


def routine_call(instruction: Instruction) -> RoutineCall | None:
    """The BLAS or LAPACK routine of a custom call; None if its target is something else, or not registered yet."""
    _declare_own()
    name = custom_call_of(instruction).target_name
    caller = ROUTINES.get(name) if name not in REGISTERED else None
    return caller.routine_call(instruction) if caller is not None else None


def is_lapack_call(instruction: Instruction, routine: str, letters: str) -> bool:
    """Whether an instruction calls a routine of LAPACK for one of some types, by letter, that no user replaced."""
    names = {f"lapack_{letter}{routine}_ffi" for letter in letters} - REGISTERED.keys()
    return isinstance(instruction.op, CustomCall) and instruction.op.target_name in names


def check_targets(module: Module) -> None:
    """Checks calls of hloom's own targets against their signatures (CUSTOMCALL-7)."""
    for instruction in module.instructions():
        op = instruction.op
        if not isinstance(op, CustomCall) or op.target_name in REGISTERED:
            continue
        _declare_own()
        own = ROUTINES.get(op.target_name) or DECLARED.get(op.target_name)
        # Unbounded sizes that reach a run are reported there.
        if own is None or any(leaf.is_unbounded for leaf in _shapes(instruction)):
            continue
        try:
            binding_of(instruction, own.signature)
        except RuleError as error:
            raise error.at(repr(instruction)) from None


def signatures() -> dict[str, Signature]:
    """The signatures of all targets that hloom declares, by name."""
    _declare_own()
    return {name: own.signature for callers in (ROUTINES, DECLARED) for name, own in callers.items()}


def _shapes(instruction: Instruction) -> Iterator[Shape]:
    for shape in (instruction.shape, *instruction.operand_shapes):
        yield from shape.leaves()


def replaces_targets() -> bool:
    """Whether a user has registered a target that hloom also declares."""
    if not REGISTERED:
        return False
    _declare_own()
    return not REGISTERED.keys().isdisjoint(ROUTINES.keys() | DECLARED.keys())


def markers() -> frozenset[str]:
    """The targets that return their operand, except those that users registered a function for."""
    return frozenset({*MARKERS, *SHARD_MARKERS}).difference(REGISTERED)


def lookup(name: str) -> Caller:
    """The caller of a target; RuleError[CUSTOMCALL-5] if there is none."""
    _declare_own()
    known: dict[str, Caller] = {**ROUTINES, **DECLARED, **REGISTERED}
    if name in known:
        return known[name]
    message = f"no function is registered as {name!r}: use register_custom_call{close_names(name, known)}"
    raise RuleError("custom-call", "CUSTOMCALL-5", message)


def _declare_own() -> None:
    """Declares hloom's targets, which the first module with a custom call imports."""
    from hloom.runtime.custom_calls import lapack, standard_targets

    lapack.declare()
    standard_targets.declare()
