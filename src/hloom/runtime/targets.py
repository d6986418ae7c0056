"""Finding the function of a custom-call target: those that users registered, then those that hloom declares."""

from __future__ import annotations

import difflib

from hloom.errors import RuleError
from hloom.ir import Instruction
from hloom.runtime import lapack, standard_targets
from hloom.runtime.custom_calls import DECLARED, REGISTERED, ROUTINES, Caller, site_of
from hloom.runtime.fortran import RoutineCall


def routine_call(instruction: Instruction) -> RoutineCall | None:
    """The routine that a custom call is; None where its target is something else, or not registered yet."""
    _declare_own()
    name = instruction.op.target_name  # type: ignore[attr-defined]
    caller = ROUTINES.get(name) if name not in REGISTERED else None
    return caller.plan(site_of(instruction)) if caller is not None else None


def replaces_targets() -> bool:
    """Whether somebody registered a target of their own for one that hloom declares."""
    _declare_own()
    return not REGISTERED.keys().isdisjoint(ROUTINES.keys() | DECLARED.keys())


def markers() -> frozenset[str]:
    """The targets that hand on their operand, and that nobody has registered a function for."""
    return frozenset(standard_targets.MARKERS).difference(REGISTERED)


def lookup(name: str) -> Caller:
    """The registered target; RuleError[CUSTOMCALL-5] where there is none."""
    _declare_own()
    known: dict[str, Caller] = {**ROUTINES, **DECLARED, **REGISTERED}
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, 3)
    hint = f"; registered are {', '.join(close)}" if close else ""
    raise RuleError(
        "custom-call", "CUSTOMCALL-5", f"no function is registered as {name!r}: use register_custom_call{hint}"
    )


def _declare_own() -> None:
    lapack.declare()
    standard_targets.declare()
