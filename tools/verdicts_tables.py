"""Records proofs of partitioning and generated code, operation by operation: a section of docs/proofs.md.

python tools/verdicts_tables.py           # proves all, half an hour, and records the outcomes
python tools/verdicts_tables.py add dot   # proves those of some operations

`tools/verdicts.py` writes the page from the record.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "docs" / "proofs_tables.json"
SHARDINGS, SECONDS = 40, 10.0
"""Random shardings of each operation, and the time of the solver for the code of an element."""

SECTION = f"""
## Partitioning and generated code

Made from `docs/proofs_tables.json`, which `python tools/verdicts_tables.py` records; the long tests in `tests/prove/`
repeat parts. Each operation, on small arrays, is partitioned with {SHARDINGS} random shardings of its operands and
results, over 2 to 4 partitions (tiled, replicated, partial sums, blocks beyond the end): all partitions are evaluated
in lock-step, and the blocks, put together, are the whole result for all arguments. Its loop nests, as lowered and as
scheduled for vectors of 32 and 64 bytes, store the elements that the operation computes. The instructions of one
element, with LLVM's poison and undefined behaviour, compute what the operation means; compiled code of elements of few
bits is run on all of them. *GEN-13*: up to the order of sums.

Of products of narrow floats that are sharded along the sum, partial sums are rounded before they are added: they are
not proved, and not listed.

| operation | shardings | nests | code of one element |
|---|---|---|---|
"""


def prove_all(names: Sequence[str]) -> None:
    """Proves the operations of some names, or all, and writes their outcomes to the record."""
    sys.path.append(str(ROOT / "tests"))
    from prove.sharded_operations import opcode_of, templates
    from prove.test_code import ELEMENTS
    from prove.test_nests import LARGE

    record = recorded() if RECORD.exists() else {}
    opcodes = {*map(opcode_of, (*templates(), *LARGE)), *(op.opcode for op, _, _ in ELEMENTS.values())}
    for opcode in sorted(opcodes & {*names} if names else opcodes):
        mine = [template for template in templates() if opcode_of(template) == opcode]
        large = [template for template in LARGE if opcode_of(template) == opcode]
        record[opcode] = {
            "shardings": _counted(_shardings(mine)),
            "nests": _counted(_nests([*mine, *large])),
            "elements": _counted(_element(name, *e) for name, e in ELEMENTS.items() if e[0].opcode == opcode),
        }
        print(opcode, row(record[opcode]), flush=True)
        RECORD.write_text(json.dumps(dict(sorted(record.items())), indent=1) + "\n")


def recorded() -> dict[str, Any]:
    """Returns the record of the last run, by opcode."""
    found: dict[str, Any] = json.loads(RECORD.read_text())
    return found


def _counted(verdicts: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(verdicts).items()))


def _text(verdict: Any) -> str:
    """Returns a verdict in a few words."""
    from hloom.prove import Proved, Undecided

    if isinstance(verdict, Proved):
        return " ".join(["proved", *verdict.clauses])
    return f"open: {verdict.reason}" if isinstance(verdict, Undecided) else f"false: {verdict}"


def _shardings(mine: Sequence[str]) -> Iterable[str]:
    from hloom.prove import prove_partitioned
    from prove.sharded_operations import sharded

    for template in mine:
        for seed in range(SHARDINGS):
            yield _text(prove_partitioned(*sharded(template, seed)))


def _nests(mine: Sequence[str]) -> Iterable[str]:
    from hloom.backends.cpu.elements.ops import can_apply
    from hloom.loops.lower import can_lower
    from hloom.prove.generated.nests import prove_lowering
    from prove.test_nests import AVX2, AVX512, operation

    for template in mine:
        if can_lower(operation(template), can_apply):
            yield from (_text(prove_lowering(operation(template), target)) for target in (None, AVX2, AVX512))


def _element(name: str, *element: Any) -> str:
    from hloom.prove.generated.elements import prove_element
    from prove.test_code import bits_of_f16_are_seen

    if bits_of_f16_are_seen(element):
        return "moved as bits"
    text = _text(prove_element(*element, seconds=SECONDS))
    if "no formula" in text:
        return "open: more than 16 bits of narrow floats"
    return text if text == "proved" else f"{text}: {name}"


# The page


def section(record: dict[str, Any]) -> str:
    """Returns the section."""
    rows = [f"| `{opcode}` | {' | '.join(row(outcomes))} |" for opcode, outcomes in record.items()]
    return SECTION + "\n".join(rows) + "\n" + totals(record)


def row(outcomes: dict[str, Any]) -> list[str]:
    """Returns the cells of an operation."""
    return [_listed(outcomes[kind]) for kind in ("shardings", "nests", "elements")]


def _listed(counts: dict[str, int]) -> str:
    order = sorted(counts.items(), key=lambda item: not item[0].startswith("proved"))
    return ", ".join(f"{text} ({count})" for text, count in order).replace("\n", " ")


def totals(record: dict[str, Any]) -> str:
    """Returns how many proofs there are of each kind."""
    kinds = {"shardings": "shardings", "nests": "kernels", "elements": "functions of elements"}
    counts = []
    for kind, text in kinds.items():
        proved = sum(n for o in record.values() for verdict, n in o[kind].items() if verdict.startswith("proved"))
        counts.append(f"{proved} of {sum(sum(o[kind].values()) for o in record.values())} {text}")
    return f"\nProved in all: {', '.join(counts)}.\n"


if __name__ == "__main__":
    prove_all(sys.argv[1:])
