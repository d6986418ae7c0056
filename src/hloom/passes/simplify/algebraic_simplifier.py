"""algsimp: rewrites instructions into fewer or cheaper ones. The rules are rows in `hloom.passes.simplify.rules`.

The law of rewrite rules:

 1. Results are preserved bit for bit for every input: -0 and +0 are different, infinities, NaNs and subnormal numbers
    are valid inputs, integers wrap. Only the sign and payload of NaNs may change: HLO does not specify them, and where
    a program observes them, `passes/legalize/nan_signs.py` has made them explicit before.
 2. A rule never adds work or memory, even if inner instructions of the pattern have other users. Reshapes and
    broadcasts are free; constants are computed once.
 3. A rule is not clever: pattern, condition and replacement take a few lines, and one line says why it is right.
 4. Rules do not undo each other. Together they establish a normal form: constants on the right, transposes and reshapes
    merged and late, broadcasts late and of operands without dimensions of size 1.
 5. A rule changes neither shapes nor layouts, and is local to one computation.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import ClassVar

from hloom.errors import ArgumentError
from hloom.ir import Module
from hloom.passes.rewrite import Rule, RuleSet, Settled
from hloom.passes.simplify.rules import arithmetic, reductions, shapes, slices, updates
from hloom.system.records import record

RULES: tuple[Rule, ...] = (*arithmetic.RULES, *shapes.RULES, *slices.RULES, *updates.RULES, *reductions.RULES)


@record
class AlgebraicSimplifier:
    """Applies rewrite rules until none applies: %y = add(%x, 0) -> %x.

    `without` names rules that are disabled. Instructions with dynamic shapes or control edges are left alone.
    """

    name: ClassVar[str] = "algsimp"
    optional: ClassVar[bool] = True
    settles: ClassVar[bool] = True
    without: tuple[str, ...] = ()

    def run(self, module: Module) -> int:
        """Applies the rules; returns the number of applications."""
        return self.apply(module).total()

    def apply(self, module: Module, settled: Settled | None = None) -> Counter[str]:
        """Applies the rules, where `settled` does not rule them out; returns the number of applications of each."""
        return _rule_set(self.without).apply(module, settled)


@functools.cache
def _rule_set(without: tuple[str, ...]) -> RuleSet:
    unknown = set(without) - {rule.name for rule in RULES}
    if unknown:
        known = ", ".join(sorted(rule.name for rule in RULES))
        raise ArgumentError(f"algsimp has no rule {', '.join(sorted(unknown))}; it has: {known}")
    return RuleSet([rule for rule in RULES if rule.name not in without])
