"""Comparison of two modules as graphs."""

from __future__ import annotations

from hloom.ir import Computation, Instruction, Module

_HEADER = (
    "name", "is_scheduled", "replica_count", "num_partitions", "entry_parameter_layouts", "entry_result_layout",
    "input_output_alias", "buffer_donors", "frontend_attributes", "stack_frames", "extra_attributes",
)  # fmt: skip
_INSTRUCTION = ("name", "shape", "metadata", "frontend_attributes", "sharding", "backend_config", "extra_attributes")


def difference(a: Module, b: Module, ignore: frozenset[str] = frozenset()) -> str | None:
    """Describes the first difference between two modules; None if they are the same graph.

    Names, shapes with layouts, attributes, order and annotations all count, except the fields named in `ignore`.
    """
    for field in _HEADER:
        if field not in ignore and getattr(a, field) != getattr(b, field):
            return f"{field}: {getattr(a, field)!r} and {getattr(b, field)!r}"
    names_a, names_b = ([c.name for c in m.computations] for m in (a, b))
    if names_a != names_b:
        return f"computations {names_a} and {names_b}"
    if a.entry.name != b.entry.name:
        return f"entries {a.entry.name} and {b.entry.name}"
    for ca, cb in zip(a.computations, b.computations, strict=True):
        found = _computation_difference(ca, cb, ignore)
        if found:
            return f"computation {ca.name}: {found}"
    return None


def _computation_difference(a: Computation, b: Computation, ignore: frozenset[str]) -> str | None:
    if len(a.instructions) != len(b.instructions):
        return f"{len(a.instructions)} and {len(b.instructions)} instructions"
    if a.root.name != b.root.name or a.execution_thread != b.execution_thread:
        return f"root or thread: {a.root.name}, {a.execution_thread} and {b.root.name}, {b.execution_thread}"
    for ia, ib in zip(a.instructions, b.instructions, strict=True):
        found = _instruction_difference(ia, ib, ignore)
        if found:
            return f"{ia!r}: {found}"
    return None


def _instruction_difference(a: Instruction, b: Instruction, ignore: frozenset[str]) -> str | None:
    for field in _INSTRUCTION:
        if field not in ignore and getattr(a, field) != getattr(b, field):
            return f"{field}: {getattr(a, field)!r} and {getattr(b, field)!r}"
    if a.opcode != b.opcode:
        return f"opcodes {a.opcode} and {b.opcode}"
    for attribute in a.op.fields:
        left, right = a.op.__dict__[attribute.name], b.op.__dict__[attribute.name]
        if list(attribute.kind.computations(left)):
            left, right = (tuple(c.name for c in attribute.kind.computations(v)) for v in (left, right))
        if left != right:
            return f"{attribute.name}: {left!r} and {right!r}"
    for role in ("operands", "control_predecessors"):
        names = [[i.name for i in getattr(x, role)] for x in (a, b)]
        if names[0] != names[1]:
            return f"{role} {names[0]} and {names[1]}"
    return None
