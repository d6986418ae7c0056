"""Facts about operations stand on the operations: no file outside `ops/` lists opcodes, and few list classes.

A table is a constant of a module with two or more operations among its entries. Registries of functions are not tables:
their functions are what the file is for.
"""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Iterator

from conftest import ROOT
from hloom.ops.operation import OPERATIONS

SOURCE = ROOT / "src" / "hloom"
CLASSES = {declaration.__name__ for declaration in OPERATIONS.values()}

TABLES = {
    "backends/cpu/elements/functions/complex_math.py": (
        1,
        "the functions of complex arithmetic, which ops.py registers",
    ),
    "backends/cpu/elements/functions/vector_math.py": (1, "the functions of vector arithmetic, which ops.py registers"),
    "backends/cpu/llvm/native/memory.py": (1, "operations of atomics that have the names of opcodes"),
    "backends/cpu/kernels/usual.py": (1, "functions that kernels call, whose code is made in advance"),
    "fuzz/grammar/applied.py": (1, "combiners that random reductions have, and how often"),
    "fuzz/grammar/body.py": (1, "operations whose results are contexts"),
    "fuzz/grammar/dynamic.py": (1, "steps on arrays of dynamic sizes, and how often"),
    "fuzz/grammar/generate.py": (1, "operations that no step proposes on its own"),
    "fuzz/noise.py": (4, "how far each may differ from its exact result"),
    "fuzz/peer.py": (
        3,
        "functions with branch cuts, where the sign of a zero counts; with parts that are products; roundings that XLA gets wrong",
    ),
    "instances/attributes.py": (1, "operations whose attributes are drawn together"),
    "instances/operands.py": (2, "operations whose operands are drawn together; combiners of random reductions"),
    "loops/scalar_computation.py": (1, "callees that are inlined into expressions"),
    "passes/blocking/dimensions.py": (1, "operations that compute blocks with unchanged attributes"),
    "passes/blocking/regions.py": (1, "slices that blocks are read through"),
    "passes/legalize/nan_signs.py": (3, "how each treats the sign of a NaN, beyond movements"),
    "passes/simplify/constant_folding.py": (1, "operations cheap enough to evaluate at compile time"),
    "prove/generated/elements.py": (1, "operations whose machine code rounds"),
    "prove/generated/registers.py": (1, "instructions of the low-level IR that have the names of opcodes"),
    "prove/solver/cases.py": (1, "connectives by which conditions are divided into cases"),
    "prove/solver/encoder.py": (1, "operations that move bits, whose formulas need no arithmetic"),
    "prove/terms/concrete.py": (1, "operations that keep the bits of NaNs"),
    "prove/terms/functions.py": (1, "arithmetic that is logic on predicates"),
    "prove/terms/normal.py": (3, "the algebras that have a normal form"),
    "scaling/collective_times.py": (1, "the algorithm of each collective"),
    "stablehlo/importer/body.py": (1, "operations of StableHLO that regions may rematerialise"),
    "stablehlo/importer/size_bounds.py": (1, "operations on integers that rise or fall with each operand"),
    "stablehlo/operations.py": (1, "the regions of an operation of StableHLO"),
    "verifier/asynchronous.py": (1, "what a context may be passed to on the way to its done"),
}
"""The number of tables of each file, and why they are its own."""


@functools.cache
def found() -> tuple[Counter[str], Counter[str]]:
    """The number of tables of operation classes, or of opcodes, and of comparisons with opcodes, by file."""
    tables, comparisons = Counter[str](), Counter[str]()
    for path in sorted(SOURCE.rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        if not name.startswith("ops/"):
            text = path.read_text()
            tree = ast.parse(text)
            tables[name] += sum(map(is_table, constants(tree)))
            if ".opcode" in text:
                comparisons[name] += sum(map(compares_opcodes, ast.walk(tree)))
    return +tables, +comparisons


def constants(tree: ast.Module) -> Iterator[ast.AST]:
    """The parts of the values that a module assigns."""
    for statement in tree.body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            yield from ast.walk(statement.value)


def compares_opcodes(node: ast.AST) -> bool:
    sides = (node.left, *node.comparators) if isinstance(node, ast.Compare) else ()
    return any(isinstance(side, ast.Attribute) and side.attr == "opcode" for side in sides)


def is_table(node: ast.AST) -> bool:
    entries = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [])
    return sum(is_operation(entry) for entry in entries) >= max(2, 0.6 * len(entries))


def is_operation(entry: ast.expr | None) -> bool:
    if isinstance(entry, ast.Constant):
        return entry.value in OPERATIONS
    name = entry.attr if isinstance(entry, ast.Attribute) else entry.id if isinstance(entry, ast.Name) else ""
    return name in CLASSES


def test_tables_of_operations_are_listed_with_their_reasons() -> None:
    assert found()[0] == {name: count for name, (count, _) in TABLES.items()}


def test_comparisons_with_opcodes_are_few() -> None:
    """Passes ask for classes and traits. Comparing opcodes is the work of the pattern matcher and of diffs."""
    assert sum(found()[1].values()) <= 15, found()[1]
