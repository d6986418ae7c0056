"""Verdicts on rewrite rules and passes: what proofs on random instances of their patterns show.

    prove_rule(rule)    Evidence: proved instances by element type, a counterexample, and what the condition is for

Each instance is a valid module; the rewritten one has to be valid, and equal for all arguments. A rule with a condition
is applied without it as well, where it is false: a counterexample shows what the condition guards against.
"""

from __future__ import annotations

import dataclasses
import random
import re
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from hloom.errors import HloomError
from hloom.instances.draw import Instance, drawn_instance
from hloom.instances.palette import ARRAY_TYPES
from hloom.ir import Instruction, Module
from hloom.ops.operation import Operation
from hloom.ops.structure import Constant, Parameter
from hloom.passes.pattern import splat_source
from hloom.passes.pipeline import clone_module
from hloom.passes.rewrite import Match, Rule, RuleSet, always
from hloom.prove.equivalence import Proved, Refuted, prove
from hloom.text.attributes import write
from hloom.text.literals import print_literal
from hloom.text.parser import parse_module
from hloom.types import PrimitiveType
from hloom.verifier import verify_module

SECONDS = 15.0
"""Time of the solver for an instance."""
DRAWS = 150
"""Draws for an element type and a pattern, of which some match, and some are valid."""
WITHOUT, WITHOUT_SECONDS = 12, 1.0
"""Instances for each element type on which a condition is false and is taken away, and the time for each."""

Transform = Callable[[Module, str], int]
"""Rewrites a module at the instruction of that name; returns the number of changes."""


@dataclass
class Evidence:
    """The outcomes of the instances of a rule or a pass.

    `outcomes` counts them: "proved", with the clauses that the proof rests on, or the reason of an undecided one.
    `guard` is the counterexample without the condition, or what happens without it; "" if there is no condition.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)
    counterexample: str = ""
    guard: str = ""

    @property
    def instances(self) -> int:
        """Number of instances that the rule changed."""
        return self.outcomes.total()


def prove_rule(
    rule: Rule, like: Sequence[str] = (), *, per_type: int = 4, types: Sequence[PrimitiveType] = ARRAY_TYPES
) -> Evidence:
    """Proves a rule on instances of its pattern, or of more specific patterns: `per_type` for each element type."""
    patterns = like or (rule.pattern,)
    evidence = prove_transform(rule.name, patterns, once(rule), per_type=per_type, types=types)
    if rule.when is not always:
        evidence.guard = _without_condition(rule, patterns, types)
    return evidence


def prove_transform(
    name: str,
    patterns: Sequence[str],
    transform: Transform,
    *,
    per_type: int,
    types: Sequence[PrimitiveType] = ARRAY_TYPES,
) -> Evidence:
    """Proves a transformation on instances of patterns: `per_type` for each of them and each element type.

    Stops at the first counterexample.
    """
    evidence = Evidence()
    for type in types:
        for pattern in patterns:
            count = 0
            for instance in instances(name, pattern, type):
                after = clone_module(instance.module)
                if transform(after, instance.root):
                    count += 1
                    _judge(evidence, type, instance, after)
                if evidence.counterexample:
                    return evidence
                if count == per_type:
                    break
    return evidence


def instances(name: str, pattern: str, type: PrimitiveType) -> Iterator[Instance]:
    """Yields the instances of a pattern among some draws; the same ones in each run.

    HLO text with `T` for the element type, instead of a pattern, is an instance.
    """
    if pattern.startswith("HloModule"):
        yield from _parsed(re.sub(r"\bT\b", str(type), pattern))
        return
    chance = random.Random(zlib.crc32(f"{name} {pattern} {type}".encode()))
    for _ in range(DRAWS):
        sizes = [chance.choice([0, 1, 1, 1, 2, 2, 2, 3, 3, 3]) for _ in range(chance.choice([0, 0, 1, 1, 2, 2, 3]))]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # special values overflow in narrow types
            instance = drawn_instance(pattern, chance, type, sizes)
        if instance is not None:
            yield instance


def _parsed(text: str) -> Iterator[Instance]:
    try:
        module = parse_module(text)
        verify_module(module)
    except HloomError:
        return
    yield Instance(module, module.entry.root.name)


def _judge(evidence: Evidence, type: PrimitiveType, instance: Instance, after: Module) -> None:
    outcome, example = judged(instance, after)
    evidence.outcomes[outcome] += 1
    if any(type in i.shape.leaf_types for i in instance.module.instructions()):
        evidence.types[str(type)] += 1
    if example:
        evidence.counterexample = example


def judged(instance: Instance, after: Module, seconds: float = SECONDS) -> tuple[str, str]:
    """Returns the outcome of a proof that a rewritten module is valid and equal; and a counterexample, else ""."""
    before = instance.module
    shown = expression(_named(before, instance.root))
    try:
        verify_module(after)
    except HloomError as error:
        return "not valid", f"{shown} becomes {str(error).splitlines()[0]}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # special values overflow
        verdict = prove(before, after, seconds)
    if isinstance(verdict, Refuted):
        return "refuted", f"{shown} {verdict.difference}"
    if isinstance(verdict, Proved):
        return " ".join(["proved", *verdict.clauses]), ""
    return verdict.reason.splitlines()[0], ""


# Rules


def once(rule: Rule) -> Transform:
    """Returns the transformation that applies a rule once, at the given instruction."""

    def transform(module: Module, name: str) -> int:
        root = _named(module, name)
        here = dataclasses.replace(rule, when=lambda m: m.root is root and rule.when(m))
        return RuleSet([here]).apply(module).total()

    return transform


def _named(module: Module, name: str) -> Instruction:
    return next(instruction for instruction in module.entry.instructions if instruction.name == name)


def _without_condition(rule: Rule, patterns: Sequence[str], types: Sequence[PrimitiveType]) -> str:
    """Returns a counterexample of a rule without its condition, or what happens on instances where it is false."""
    seen: Counter[str] = Counter()
    examples: list[str] = []
    for type in types:
        for pattern in patterns:
            count = 0
            for instance in instances(rule.name, pattern, type):
                outcome, example = _applied_without_condition(rule, instance)
                examples += [example] * (example not in ("", *examples))
                seen[outcome] += 1
                count += outcome != ""
                if count == WITHOUT:
                    break
        if examples:
            return max(examples, key=lambda example: (_shows_an_exception(example), f"{type}[" in example))
    return next((kind for kind in ("no replacement", "equal") if seen[kind]), "never false")


def _shows_an_exception(example: str) -> bool:
    """Whether a counterexample is about a NaN or the sign of a zero."""
    return "nan" in example or {"0.0", "-0.0"} <= {*re.split("[ ,]+", example)}


def _applied_without_condition(rule: Rule, instance: Instance) -> tuple[str, str]:
    """Returns the outcome of a rule without its condition where that is false, and a counterexample; ("", "") else."""
    after = clone_module(instance.module)
    root = _named(after, instance.root)
    is_false = False

    def when(m: Match) -> bool:
        nonlocal is_false
        here = m.root is root and not rule.when(m)
        is_false = is_false or here
        return here

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            changes = RuleSet([dataclasses.replace(rule, when=when)]).apply(after).total()
    except Exception:  # whatever a replacement raises for a match that it is not for
        return "no replacement", ""
    if not is_false:
        return "", ""
    if not changes:
        return "no replacement", ""
    outcome, example = judged(instance, after, WITHOUT_SECONDS)
    return ("equal" if outcome.startswith("proved") else outcome), example


# Text


def expression(instruction: Instruction) -> str:
    """Returns the text of an instruction with its operands inside: `add(f32[2], 0)`, with shapes for parameters."""
    op, source = instruction.op, splat_source(instruction)
    if isinstance(op, Parameter):
        return str(instruction.shape)
    constant = (source or instruction).op
    if isinstance(constant, Constant):
        text = print_literal(constant.literal)
        return text if source is None else text.strip("{ }")
    shown = [
        f"{field.text}={write(field.kind, value)}"
        for field in op.fields
        if field not in op.calling_fields and (value := getattr(op, field.name)) != field.default
    ]
    called = [computation.root.opcode for computation in op.computations]
    text = f"{op.opcode}({', '.join([*map(expression, instruction.operands), *shown, *called])})"
    return text if type(op).infer is not Operation.infer else f"{instruction.shape} {text}"
