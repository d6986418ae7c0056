"""The graph of a module as JSON data for the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hloom.faults.graph_diff import attributes, value_ids
from hloom.ir import Computation, Instruction, Module
from hloom.ops.structure import Constant, Parameter
from hloom.text import print_module

Json = dict[str, Any]
MAX_TEXT = 600


def graph_of(module: Module) -> Json:
    """Computations of a module, callers first. Operands are indices of instructions, callees of computations."""
    computations = [module.entry, *(c for c in reversed(module.computations) if c is not module.entry)]
    indices = {computation: k for k, computation in enumerate(computations)}
    texts, like = _texts(module), _likeness(module)
    return {"computations": [_computation(c, indices, texts, like) for c in computations]}


def mark_only(graph: Json, instructions: Sequence[Instruction]) -> None:
    """Marks instructions that a compared module lacks."""
    names = {(i.parent.name, i.name) for i in instructions if i.parent is not None}
    for computation in graph["computations"]:
        for each in computation["instructions"]:
            if (computation["name"], each["name"]) in names:
                each["only"] = True


def _likeness(module: Module) -> dict[Instruction, int]:
    """Numbers that instructions share which have the same operation, attributes and shape, and call the same.

    Values of constants do not count.
    """
    values: dict[Instruction, int] = value_ids(module, {})
    ids: dict[Any, int] = {}
    found: dict[Instruction, int] = {}
    for i in values:
        held = () if isinstance(i.op, Constant) else (attributes(i), tuple(values[c.root] for c in i.op.computations))
        found[i] = ids.setdefault((i.opcode, str(i.shape), held), len(ids))
    return found


def _computation(
    computation: Computation,
    indices: dict[Computation, int],
    texts: dict[tuple[str, str], str],
    like: dict[Instruction, int],
) -> Json:
    positions = {instruction: k for k, instruction in enumerate(computation.instructions)}
    return {
        "name": computation.name,
        "root": positions[computation.root],
        "instructions": [
            _instruction(i, positions, indices, texts.get((computation.name, i.name), repr(i))) | {"like": like[i]}
            for i in computation.instructions
        ],
    }


def _instruction(
    instruction: Instruction, positions: dict[Instruction, int], indices: dict[Computation, int], text: str
) -> Json:
    found: Json = {
        "name": instruction.name,
        "op": instruction.opcode,
        "shape": str(instruction.shape),
        "bytes": instruction.shape.byte_size if instruction.shape.is_static else 0,
        "operands": [positions[operand] for operand in instruction.operands],
        "text": text[:MAX_TEXT],
    }
    if not instruction.op.elementwise and (mapped := instruction.indexing_map()):
        found["elements"] = str(mapped)
    if instruction.op.calling_fields:
        found["calls"] = [indices[computation] for computation in instruction.op.computations]
    if instruction.sharding is not None:
        found["sharding"] = str(instruction.sharding)
    scope = instruction.scope.rpartition("/")[0]
    if scope:
        found["scope"] = scope
    source = source_of(instruction)
    if source:
        found["source"] = source
    if isinstance(instruction.op, Parameter):
        found["number"] = instruction.op.number
    return found


def source_of(instruction: Instruction) -> str:
    """Source of an instruction, as far as known: the name of the traced operation, file and line."""
    parts = [instruction.scope, instruction.source, instruction.location]
    return "\n".join(dict.fromkeys(part for part in parts if part))


def _texts(module: Module) -> dict[tuple[str, str], str]:
    """Line of each instruction in the module's text, by the names of computation and instruction."""
    found: dict[tuple[str, str], str] = {}
    inside = ""
    for line in print_module(module, metadata=False, short=True).split("\n"):
        if line.endswith("{") and not line.startswith(" "):
            inside = line.removeprefix("ENTRY ").split(" ")[0].lstrip("%").split("(")[0]
        elif " = " in line:
            name = line.strip().removeprefix("ROOT ").split(" = ")[0].lstrip("%")
            found[inside, name] = line.strip()
    return found
