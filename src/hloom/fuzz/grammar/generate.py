"""Generates cases: an entry that grows by drawn operations, its computations, and the operations that are drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from hloom.faults.case import Case
from hloom.fuzz.grammar import (
    applied,
    arrays,
    calls,
    collectives,
    control,
    dynamic,
    indexed,
    patterns,
    products,
    transfers,
)
from hloom.fuzz.grammar.body import Body, Program
from hloom.fuzz.grammar.draw import Draw
from hloom.fuzz.grammar.proposals import PROPOSALS, SCALAR_WEIGHTS, WEIGHTS, grow
from hloom.ir import Computation, Instruction, Module, callees_first
from hloom.layout import Layout
from hloom.ops.communication import CopyStart, Infeed, Outfeed, Send, Transfer
from hloom.ops.control_flow import AsyncDone, AsyncUpdate, Call, Conditional, While
from hloom.ops.convert import Convert
from hloom.ops.operation import OPERATIONS, Operation
from hloom.ops.rng import Rng, RngGetAndUpdateState
from hloom.ops.select import Clamp, Select
from hloom.ops.structure import Domain
from hloom.ops.traits import Communication, Done, Start

FAMILIES = (applied, arrays, calls, collectives, control, dynamic, indexed, patterns, products, transfers)
"""The modules of proposals and patterns."""
LEFT_OUT: tuple[type, ...] = (
    AsyncDone, AsyncUpdate, Done, Domain, Rng, RngGetAndUpdateState, Start,
)  # fmt: skip
"""Operations that others propose with theirs, or whose results are not determined."""
STEPS = {1: 2.0, 2: 2.0, 3: 2.0, 5: 2.0, 8: 2.0, 14: 1.0, 25: 0.5}
"""Numbers of instructions that an entry grows by, with weights."""

WITH_LAYOUTS = 0.1
"""The share of modules whose arrays have layouts of their own."""
REPLICAS = {1: 8.0, 2: 1.0, 3: 0.5}
"""Numbers of replicas, which all have the same arguments, with weights."""


def draw_case(seed: int, reached: Mapping[tuple[str, str], int] | None = None, alone: bool = False) -> Case:
    """Returns the case of a seed: a module that is valid and the arguments of its parameters.

    `reached` are the counts of `pairs` in earlier modules: what they seldom had is drawn more often. A module that is
    `alone` has one replica, and neither infeeds nor outfeeds.
    """
    draw = Draw(seed, reached)
    program = Program(draw, replicas=1 if alone else draw.weighted(REPLICAS), alone=alone)
    body = Body(program, "entry")
    grow(body, draw.weighted(STEPS))
    body.end(_results(body))
    if draw.chance(WITH_LAYOUTS):
        _lay_out(body.computation, draw)
    module = _module(f"seed.{seed}", body.computation)
    module.replica_count = program.replicas
    return Case(module, tuple(program.arguments))


def _results(body: Body) -> list[Instruction]:
    """Returns the last value and some others that nothing uses."""
    values = body.values(lambda s: s.is_array or s.is_tuple)
    unused = [i for i in values if not i.users]
    if not unused:
        return [values[-1]] if values else [body.array("tuple")]
    others = body.draw.some(unused[:-1], 0.4)
    return [*others, unused[-1]]


def _lay_out(entry: Computation, draw: Draw) -> None:
    """Gives arrays of the entry random layouts, on which no result depends (GEN-9), but for those of bitcasts.

    Shapes of channels and queues have the layouts of their data.
    """
    bound = [i for i in entry.instructions if isinstance(i.op, (Send, Outfeed))]
    kept = {*bound, *(operand for instruction in bound for operand in instruction.operands)}
    for instruction in entry.instructions:
        shape = instruction.shape
        if shape.is_array and instruction not in kept and draw.chance(0.5):
            instruction.shape = shape.with_layout(Layout(tuple(draw.shuffled(range(shape.rank)))))


def _module(name: str, entry: Computation) -> Module:
    module = Module(name)
    for computation in callees_first(entry):
        module.add(computation, entry=computation is entry)
    module.set_default_entry_layouts()
    return module


def pairs(module: Module) -> Counter[tuple[str, str]]:
    """Counts the opcodes of a module, as (opcode, ""), and the pairs of opcode and element type of the operands.

    An instruction without array operands counts with the type of its result, a conversion also as `convert to` another.
    """
    found: Counter[tuple[str, str]] = Counter()
    for instruction in module.instructions():
        shapes = [*instruction.operand_shapes, instruction.shape]
        types = next((t for t in map(_types, shapes) if t), {""})
        found.update((instruction.opcode, text) for text in types)
        found[instruction.opcode, ""] += 1
        if isinstance(instruction.op, Convert):
            found["convert to", instruction.shape.element_type.text] += 1
    return found


def _types(shape: object) -> set[str]:
    return {leaf.element_type.text for leaf in shape.leaves() if leaf.is_array}  # type: ignore[attr-defined]


def _weights() -> dict[type[Operation], float]:
    drawn = {op for op in OPERATIONS.values() if not issubclass(op, LEFT_OUT)}
    drawn |= {CopyStart, Send}
    often = {op for op in PROPOSALS if not issubclass(op, (Infeed, Outfeed, Transfer))}
    return {op: 3.0 if op in often else 1.0 for op in sorted(drawn, key=lambda op: op.opcode)}


def _scalar_weights() -> dict[type[Operation], float]:
    fitting: Iterable[type[Operation]] = (Select, Clamp, Convert, Call, Conditional, While)
    found = {op: w for op, w in WEIGHTS.items() if op.elementwise and not issubclass(op, Communication)}
    return found | {op: 0.3 if op.calling_fields else 2.0 for op in fitting}


WEIGHTS.update(_weights())
SCALAR_WEIGHTS.update(_scalar_weights())
