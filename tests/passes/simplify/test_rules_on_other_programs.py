"""Rewrite rules on programs that they leave alone: mixed precision, dynamic sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

import hloom as hl
from hloom.errors import HloomError
from hloom.ir import Instruction
from hloom.ops.elementwise_unary import Negate
from hloom.passes import clone_module
from hloom.passes.rewrite import RuleSet, rewrite
from hloom.passes.simplify.algebraic_simplifier import RULES
from hloom.verifier import verify_module
from passes.modules import difference, inputs, module, run
from passes.simplify.test_algebraic_simplifier import CASES

BODIES = list(dict.fromkeys(before for _, before, _ in CASES))
ALL_RULES = RuleSet(RULES)


def parsed(text: str) -> Iterator[hl.Module]:
    """Yields the module if the text is valid."""
    try:
        yield hl.parse(text)
    except HloomError:
        return


def of_mixed_precision(text: str) -> Iterator[hl.Module]:
    """Yields the module with the result of one instruction at a time in another float type."""
    lines = text.splitlines()
    for k, line in enumerate(lines):
        for other in ("bf16", "f64")[k % 2 :][:1]:
            changed = re.sub(r"= f32\[", f"= {other}[", line)
            if changed != line:
                yield from parsed("\n".join([*lines[:k], changed, *lines[k + 1 :]]))


def of_dynamic_sizes(text: str) -> Iterator[hl.Module]:
    """Yields the module with the first dimension of one parameter at a time dynamic, and shapes inferred from it."""
    for k, shape in enumerate(hl.parse(text).entry.parameter_shapes):
        if shape.rank:
            made = hl.parse(text)
            dynamic = (True, *[False] * (shape.rank - 1))
            made.entry.parameters[k].shape = hl.Shape.array(shape.element_type, shape.dimensions, dynamic)
            for instruction in made.entry.instructions:
                instruction.shape = inferred(instruction)
            made.set_default_entry_layouts()
            try:
                verify_module(made)
            except HloomError:
                continue
            yield made


def inferred(instruction: Instruction) -> hl.Shape:
    try:
        shape = instruction.op.infer(*instruction.op.bind(instruction.operand_shapes))
    except (HloomError, NotImplementedError):
        return instruction.shape
    return shape if shape.is_dynamic else instruction.shape


def check(before: hl.Module) -> int:
    """Applies all rules, checks that the module is valid and has the same results; returns the number of applications."""
    after = clone_module(before)
    applied = ALL_RULES.apply(after)
    verify_module(after)
    if not applied:
        assert after.to_text() == before.to_text()
        return 0
    arrays = [
        array[:-1] if shape.is_dynamic else array for array, shape in zip(inputs(before), before.entry.parameter_shapes)
    ]
    try:
        expected = run(before, arrays)
    except hl.RunError:
        return applied.total()
    found = difference(expected, run(after, arrays))
    assert found is None, f"{dict(applied)}: {found}\n{before.to_text()}\n{after.to_text()}"
    return applied.total()


VARIANTS = {"mixed precision": of_mixed_precision, "dynamic sizes": of_dynamic_sizes}
PARTS = 4


@pytest.mark.parametrize("part", [0, *(pytest.param(k, marks=pytest.mark.long) for k in range(1, PARTS))])
@pytest.mark.parametrize("variant", VARIANTS)
def test_rules_keep_modules_valid_and_their_results(variant: str, part: int) -> None:
    """GEN-5, GEN-7: a rule that does not hold for a mixture or a dynamic size does not apply there."""
    checked = applied = 0
    for body in BODIES[part::PARTS]:
        for before in VARIANTS[variant](module(body).to_text()):
            checked += 1
            applied += check(before)
    assert checked > 25 and (applied > 25 or variant == "dynamic sizes")


def test_long_patterns_do_not_match_mixed_precision() -> None:
    """GEN-5: bf16[4] negate(f32[4]) includes a rounding."""
    thrice = rewrite("negate(negate(negate(x)))")(lambda m: m.result(Negate(), m.x))
    for inner, changes in (("f32", 1), ("bf16", 0)):
        body = f"a = {inner}[4] negate(x); b = f32[4] negate(a); ROOT r = f32[4] negate(b)"
        assert thrice.run(module(body)) == changes


def test_floats_of_one_width_are_computed_in_f32(backend: str) -> None:
    """GEN-7: neither bf16 nor f16 represents the values of the other."""
    text = "HloModule m\nENTRY e { a = bf16[] constant(1)\n b = f16[] constant(1.001)\n ROOT r = f32[] subtract(b, a) }"
    equal = text.replace("f32[] subtract(b, a)", "pred[] compare(a, b), direction=EQ")
    assert hl.compile(text, backend)() == np.float16(1.001).astype(np.float32) - 1
    assert not hl.compile(equal, backend)()
