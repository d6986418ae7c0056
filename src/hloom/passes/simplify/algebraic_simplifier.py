"""algsimp: rewrites instructions into fewer or cheaper ones. The rules are rows in `hloom.passes.simplify.rules`.

The law of rewrite rules:

 1. For every input the result is the same bit for bit: -0 and +0 are different, infinities and NaNs are inputs,
    integers wrap, subnormal numbers count. Only which NaN a NaN is may change: HLO does not say, and where a program
    sees it, `passes/expand/nan_signs.py` has settled it before.
 2. The result never takes more work or more memory: not for other users of what the pattern goes through either.
    Reshapes and broadcasts are free; constants are computed once.
 3. A rule is not clever: pattern, condition and replacement take a few lines, and one line says why it is right.
 4. Rules do not undo each other. What they bring about in common is a normal form: constants on the right, transposes
    and reshapes merged and late, broadcasts late and of operands without dimensions of size 1.
 5. A rule changes neither shapes nor layouts, and stays within one computation.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from hloom.errors import ArgumentError
from hloom.ir import Module
from hloom.passes.rewrite import Rule, RuleSet
from hloom.passes.simplify.rules import arithmetic, reductions, shapes, slices, updates

RULES: tuple[Rule, ...] = (*arithmetic.RULES, *shapes.RULES, *slices.RULES, *updates.RULES, *reductions.RULES)


@dataclass(frozen=True)
class AlgebraicSimplifier:
    """Applies rewrite rules until none applies: %y = add(%x, 0) -> %x.

    `without` names rules to leave out. Instructions with dynamic shapes or control edges stay.
    """

    name: ClassVar[str] = "algsimp"
    optional: ClassVar[bool] = True
    settles: ClassVar[bool] = True
    without: tuple[str, ...] = ()

    def run(self, module: Module) -> int:
        return self.apply(module).total()

    def apply(self, module: Module) -> Counter[str]:
        """As `run`, but gives the number of changes of each rule."""
        return _rule_set(self.without).apply(module)


@functools.cache
def _rule_set(without: tuple[str, ...]) -> RuleSet:
    unknown = set(without) - {rule.name for rule in RULES}
    if unknown:
        known = ", ".join(sorted(rule.name for rule in RULES))
        raise ArgumentError(f"algsimp has no rule {', '.join(sorted(unknown))}; it has: {known}")
    return RuleSet([rule for rule in RULES if rule.name not in without])
