"""Writes docs/proofs.md, the verdicts on rewrite rules and passes: `python tools/verdicts.py`.

python tools/verdicts.py                      # the page, from the record of the last run of proofs
python tools/verdicts.py --prove              # proves all of them, some minutes, and records the outcomes
python tools/verdicts.py --prove add-zero     # proves one, or those whose names are given, and shows the outcome
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import verdicts_tables
from hloom.instances.palette import ARRAY_TYPES
from hloom.ops.operation import OPERATIONS, Operation
from hloom.ops.traits import Movement
from hloom.passes.pattern import Pattern
from hloom.passes.rewrite import always
from hloom.prove.verdicts import Evidence, instances, prove_rule, prove_transform
from hloom.text.printer import print_module
from verdict_cases import ALLOWED, ELSEWHERE, LIKE, PASSES, RULES

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "docs" / "proofs.json"
PAGE = ROOT / "docs" / "proofs.md"

FEW, MANY = 4, 100
"""Modules for each element type: of most rules, and of those that only move elements."""

INTRODUCTION = """# Proofs of rewrite rules and passes

Made by `python tools/verdicts.py` from `docs/proofs.json`, the record of the last run of all proofs (`--prove`, two
and a half minutes of one core); the long tests repeat it. For each rule, random modules match its pattern
(`src/hloom/instances/`): ranks and sizes of 0 to 3, attributes in range, special constants, up to {few} modules that
the rule changes for each of {types} element types, or {many} if the rule only moves elements. The rewritten module has
to be valid, and a solver proves that it returns the same bits for all arguments (`src/hloom/prove/`), where all NaNs
are equal. Small formats are tried on all values.

A rule with a condition is applied without it as well, where it is false. The last column shows what the condition is
for: a counterexample; *to apply*, if the replacement cannot be built without it; or *profit*, if the results are equal
anyway: such a condition keeps work down, or keeps rules from undoing each other.

{summary}
"""


def evidence_of(name: str) -> Evidence:
    """Proves a rule or a pass."""
    rule = next((rule for rule in RULES if rule.name == name), None)
    if rule is not None:
        return prove_rule(rule, LIKE.get(name, ()), per_type=MANY if _moves(rule.root) else FEW)
    case = next(case for case in PASSES if case.step.name == name)
    with limits(case.limits):
        return prove_transform(name, case.patterns, lambda module, _: case.step.run(module), per_type=1)


def _moves(pattern: Pattern) -> bool:
    """Whether a pattern only moves elements: its instances differ by attributes more than by their element types."""
    own = not pattern.opcode or issubclass(OPERATIONS.get(pattern.opcode, Operation), Movement)
    return own and all(map(_moves, pattern.operands or ()))


@contextlib.contextmanager
def limits(values: dict[str, Any]) -> Iterator[None]:
    """Sets global variables of modules for a while."""
    variables = [(import_module(path.rpartition(".")[0]), path.rpartition(".")[2]) for path in values]
    before = [getattr(module, name) for module, name in variables]
    try:
        for (module, name), value in zip(variables, values.values(), strict=True):
            setattr(module, name, value)
        yield
    finally:
        for (module, name), value in zip(variables, before, strict=True):
            setattr(module, name, value)


# The record


def patterns() -> dict[str, list[str]]:
    """Returns the patterns of the instances of each rule and pass, by its name."""
    rules = {rule.name: [*LIKE.get(rule.name, (rule.pattern,))] for rule in RULES}
    return rules | {case.step.name: [*case.patterns] for case in PASSES}


def as_record(name: str, evidence: Evidence) -> dict[str, Any]:
    """Returns what the record has of a rule or a pass."""
    return {
        "patterns": patterns()[name],
        "drawn": drawn(name),
        "outcomes": dict(sorted(evidence.outcomes.items())),
        "types": [str(type) for type in ARRAY_TYPES if evidence.types[str(type)]],
        "counterexample": evidence.counterexample,
        "guard": evidence.guard,
    }


def drawn(name: str) -> int:
    """Returns a checksum of the first instances of the patterns of a rule or a pass for a few element types."""
    few = [(pattern, type) for pattern in patterns()[name] for type in ARRAY_TYPES[::6]]
    first = [instance.module for each in few for instance in itertools.islice(instances(name, *each), 1)]
    return zlib.crc32("".join(map(print_module, first)).encode())


def recorded() -> dict[str, Any]:
    """Returns the record of the last run, by the names of rules and passes."""
    found: dict[str, Any] = json.loads(RECORD.read_text())
    return found


def prove_all(names: Sequence[str]) -> None:
    """Proves rules and passes, and writes their outcomes to the record."""
    record = recorded() if RECORD.exists() else {}
    known = patterns()
    for name in names or known:
        start = time.monotonic()
        record[name] = as_record(name, evidence_of(name))
        print(f"{name}: {verdict(name, record[name])} ({time.monotonic() - start:.1f} s)", flush=True)
        RECORD.write_text(json.dumps({name: record[name] for name in known if name in record}, indent=1) + "\n")


# Verdicts


def verdict(name: str, row: dict[str, Any]) -> str:
    """Returns the verdict of a row of the record, in a few words."""
    if row["counterexample"]:
        return f"false: {row['counterexample']}"
    words = []
    for outcome, count in sorted(row["outcomes"].items(), key=lambda item: not item[0].startswith("proved")):
        first, _, clauses = outcome.partition(" ")
        if first != "proved":
            words.append(f"allowed by {ALLOWED[name]} ({count})" if name in ALLOWED else f"open: {outcome} ({count})")
        else:
            words.append(f"allowed by {clauses} ({count})" if clauses else f"proved ({count})")
    return ", ".join(words) or "no instance"


def element_types(names: Sequence[str]) -> str:
    """Returns element types in a few words: kinds of which there are most, with exceptions, and the names of others."""
    if len(names) == len(ARRAY_TYPES):
        return "all"
    by_kind: dict[str, list[str]] = {}
    for type in ARRAY_TYPES:
        kind = "integers" if type.is_integer else {"PRED": "pred", "FLOAT": "floats"}.get(type.kind.name, "complex")
        by_kind.setdefault(kind, []).append(str(type))
    return ", ".join(filter(None, (_of_kind(kind, every, names) for kind, every in by_kind.items())))


def _of_kind(kind: str, every: Sequence[str], names: Sequence[str]) -> str:
    missing = [name for name in every if name not in names]
    if len(missing) <= 2 < len(every) or not missing:
        return f"{kind} but {' '.join(missing)}" if missing else kind
    return " ".join(name for name in every if name in names)


GUARDS = {"no replacement": "to apply", "equal": "profit", "never false": "profit"}


def summary(record: dict[str, Any]) -> str:
    """Returns how many rules and passes are proved, are allowed by a clause on some modules, and are open."""
    texts = {name: verdict(name, row) for name, row in record.items()}
    allowed = [name for name, text in texts.items() if "allowed" in text]
    is_open = [name for name, text in texts.items() if "open" in text or "false" in text]
    modules = sum(sum(row["outcomes"].values()) for row in record.values())
    return (
        f"{len(RULES)} rules and {len(PASSES)} passes, on {modules:,} modules: "
        f"{len(texts) - len(allowed) - len(is_open)} proved, {len(is_open)} open,\n"
        f"{len(allowed)} allowed by a clause on some modules ({', '.join(allowed)})."
    )


def page(record: dict[str, Any]) -> str:
    """Returns the page."""
    words = {"types": len(ARRAY_TYPES), "few": FEW, "many": MANY, "summary": summary(record)}
    lines = [INTRODUCTION.format(**words), "## Rules\n"]
    lines += [
        "| rule | pattern | because | verdict (modules) | element types | without its condition |",
        "|---" * 6 + "|",
    ]
    for rule in RULES:
        row = record[rule.name]
        guard = "" if rule.when is always else GUARDS.get(row["guard"], row["guard"])
        lines.append(
            _row(rule.name, f"`{rule.pattern}`", rule.why, verdict(rule.name, row), element_types(row["types"]), guard)
        )
    lines += ["\n## Passes\n", _row("pass", "patterns", "verdict (modules)", "element types"), "|---" * 4 + "|"]
    for case in PASSES:
        name, row = case.step.name, record[case.step.name]
        texts = any(pattern.startswith("HloModule") for pattern in case.patterns)
        shown = (
            "modules in `tools/verdict_texts.py`" if texts else ", ".join(f"`{pattern}`" for pattern in case.patterns)
        )
        shown = "the patterns of all rules" if len(case.patterns) > len(PASSES) else shown
        lines.append(_row(name, shown, verdict(name, row), element_types(row["types"])))
    lines += ["\nOther passes:\n", *(f"- {name}: {reason}." for name, reason in ELSEWHERE.items())]
    return "\n".join(lines) + "\n" + verdicts_tables.section(verdicts_tables.recorded())


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--prove"]:
        prove_all(sys.argv[2:])
    PAGE.write_text(page(recorded()))
