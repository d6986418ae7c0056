"""Validates a transformation of a module: a proof, at smaller sizes where the module is large, or a counterexample.

Where the solver does not decide, trial arguments may still show a difference.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hloom.errors import HloomError
from hloom.faults.case import interpret
from hloom.ir import Module
from hloom.prove import equivalence
from hloom.prove.equivalence import Proved, Refuted, Undecided, Verdict, difference
from hloom.prove.sizes import Sizes, smaller_sizes, stretched, with_sizes, work
from hloom.prove.trials import has_open_sums, tried

MAX_WORK = 4096
"""Elements that an instruction computes or reduces, up to which modules are proved at their own sizes."""


def prove(before: Module, after: Module, seconds: float = 60.0) -> Verdict:
    """Decides whether two modules have equal results for all arguments, within `seconds` of the solver.

    Modules that are too large are proved at smaller sizes, which the verdict states; a counterexample is one of the
    modules as they are. Raises ArgumentError if parameters or results have different shapes.
    """
    large = max(map(work, (before, after))) > MAX_WORK
    sizes = smaller_sizes(before, after) if large else {}
    verdict = _prove_smaller(before, after, sizes, seconds) if large else equivalence.prove(before, after, seconds)
    if not isinstance(verdict, Undecided) or any(map(has_open_sums, (before, after))):
        return verdict
    try:
        found = tried(before, lambda arguments: interpret(after, arguments))
    except HloomError:
        return verdict
    return verdict if found is None else Refuted(*found)


def _prove_smaller(before: Module, after: Module, sizes: Sizes, seconds: float) -> Verdict:
    smaller = [with_sizes(module, sizes) for module in (before, after)]
    if not sizes or None in smaller or max(work(module) for module in smaller if module is not None) > MAX_WORK:
        return Undecided(f"instructions have more than {MAX_WORK} elements, and sizes that positions depend on")
    one, other = smaller
    assert one is not None and other is not None
    verdict = equivalence.prove(one, other, seconds)
    if isinstance(verdict, Proved):
        return replace(verdict, sizes=tuple(sizes.items()))
    if isinstance(verdict, Undecided):
        return Undecided(f"with {sizes_text(sizes.items())}: {verdict.reason}")
    arguments = stretched(verdict.arguments, before.entry.parameter_shapes)
    results = [interpret(module, arguments) for module in (before, after)]
    found = difference(results[0], results[1])
    if found:
        return Refuted(arguments, results[0], results[1], found)
    return Undecided(f"with {sizes_text(sizes.items())} the results differ, but not at the sizes of the modules")


def sizes_text(sizes: Iterable[tuple[int, int]]) -> str:
    """Describes sizes that are replaced by others: `2 for 1024, 3 for 768`."""
    return ", ".join(f"{new} for {old}" for old, new in sizes)
