"""Proposals for collectives over the replicas of a program, where all replicas come to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.fuzz.grammar.applied import combiner
from hloom.fuzz.grammar.body import Body
from hloom.fuzz.grammar.proposals import proposal
from hloom.ir import Instruction
from hloom.ops.async_collectives import (
    AllGatherDone,
    AllGatherStart,
    AllReduceDone,
    AllReduceStart,
    CollectivePermuteDone,
    CollectivePermuteStart,
)
from hloom.ops.attributes import IotaReplicaGroups, ReplicaGroups
from hloom.ops.broadcast import Broadcast
from hloom.ops.collectives import AllGather, AllReduce, AllToAll, CollectiveBroadcast, CollectivePermute, ReduceScatter
from hloom.ops.convert import Convert
from hloom.ops.device_index import ReplicaId
from hloom.ops.elementwise_binary import Add, Multiply
from hloom.ops.operation import Operation
from hloom.ops.ragged_all_to_all import RaggedAllToAll
from hloom.ops.rules import result_shape
from hloom.shape import Shape, scalar
from hloom.types import PrimitiveType


def _groups(body: Body) -> tuple[dict[str, Any], int]:
    """Returns replica groups as an attribute, all replicas in one or each alone, and the size of a group."""
    count = body.program.replicas
    if body.draw.chance(0.3):
        return {"replica_groups": ReplicaGroups(tuple((k,) for k in range(count)))}, 1
    forms = (ReplicaGroups(), ReplicaGroups((tuple(range(count)),)), IotaReplicaGroups(1, count, (count,)))
    return {"replica_groups": body.draw.pick(forms)}, count


def _operands(body: Body, opcode: str, low: int = 0) -> list[Instruction]:
    """Returns one or two arrays of one element type."""
    first = body.array(opcode, low=low)
    return [first, body.want(first.shape)] if body.draw.chance(0.2) else [first]


def _scaled(shapes: list[Shape], dimension: int, size: Any) -> Shape:
    changed = [
        Shape.array(s.element_type, (size(n) if d == dimension else n for d, n in enumerate(s.dimensions)))
        for s in shapes
    ]
    return result_shape(changed)


def _opened(body: Body, made: Instruction) -> Instruction:
    body.opened(made)
    return made


@proposal(AllReduce)
def _all_reduce(body: Body, declaration: type[AllReduce]) -> Instruction:
    operands, (groups, _) = _operands(body, "all-reduce"), _groups(body)
    computation = combiner(body, [operands[0].shape.element_type]).computation
    if body.draw.chance(0.3):
        start = body.add(AllReduceStart(computation=computation, **groups), *operands)
        return _opened(body, body.add(AllReduceDone(), start))
    return _opened(body, body.add(AllReduce(computation=computation, **groups), *operands))


@proposal(AllGather)
def _all_gather(body: Body, declaration: type[AllGather]) -> Instruction:
    operands, (groups, size) = _operands(body, "all-gather", 1), _groups(body)
    dimension = body.draw.below(operands[0].shape.rank)
    shapes = [operand.shape for operand in operands]
    result = _scaled(shapes, dimension, lambda n: n * size)
    if body.draw.chance(0.3):
        sources = result_shape(shapes)
        op = AllGatherStart(all_gather_dim=dimension, **groups)
        start = body.add(op, *operands, shape=Shape.tuple_of([sources, result]))
        return _opened(body, body.add(AllGatherDone(), start))
    return _opened(body, body.add(AllGather(all_gather_dim=dimension, **groups), *operands, shape=result))


@proposal(ReduceScatter)
def _reduce_scatter(body: Body, declaration: type[ReduceScatter]) -> Instruction:
    groups, size = _groups(body)
    operand = body.array("reduce-scatter", low=1, fits=lambda s: any(n % size == 0 for n in s.dimensions))
    dimension = body.draw.pick([d for d, n in enumerate(operand.shape.dimensions) if n % size == 0])
    computation = combiner(body, [operand.shape.element_type]).computation
    op = ReduceScatter(scatter_dimension=dimension, computation=computation, **groups)
    return body.add(op, operand, shape=_scaled([operand.shape], dimension, lambda n: n // size))


@proposal(AllToAll)
def _all_to_all(body: Body, declaration: type[AllToAll]) -> Instruction:
    groups, size = _groups(body)
    if body.draw.chance(0.5):
        first = body.array("all-to-all")
        return _opened(body, body.add(AllToAll(**groups), *(body.want(first.shape) for _ in range(size))))
    operand = body.array("all-to-all", low=1, fits=lambda s: any(n % size == 0 for n in s.dimensions))
    dimension = body.draw.pick([d for d, n in enumerate(operand.shape.dimensions) if n % size == 0])
    return body.add(AllToAll(split_dimension=dimension, **groups), operand)


@proposal(CollectivePermute)
def _permute(body: Body, declaration: type[CollectivePermute]) -> Instruction:
    draw, count = body.draw, body.program.replicas
    pairs = tuple(zip(draw.shuffled(range(count)), draw.shuffled(range(count)), strict=True))[: draw.between(0, count)]
    operand = body.array("collective-permute")
    if draw.chance(0.3):
        shape = Shape.tuple_of([operand.shape, operand.shape])
        start = body.add(CollectivePermuteStart(source_target_pairs=pairs), operand, shape=shape)
        return body.add(CollectivePermuteDone(), start)
    return body.add(CollectivePermute(source_target_pairs=pairs), operand)


@proposal(CollectiveBroadcast)
def _broadcast(body: Body, declaration: type[Operation]) -> Instruction:
    groups, _ = _groups(body)
    return body.add(CollectiveBroadcast(**groups), body.array("collective-broadcast"))


@proposal(RaggedAllToAll)
def _ragged_all_to_all(body: Body, declaration: type[RaggedAllToAll]) -> Instruction:
    """Slices of one size between all replicas: each writes its own rows of the others' outputs."""
    draw, (groups, size) = body.draw, _groups(body)
    operand = body.array("ragged-all-to-all", low=1)
    most, *row = operand.shape.dimensions
    count, spare = draw.between(0, most), draw.between(0, 2)
    output = body.want(Shape.array(operand.shape.element_type, (size * count + spare, *row)))
    starts = body.constant(np.asarray([draw.between(0, most - count) for _ in range(size)], np.int32))
    counts = body.constant(np.full(size, count, np.int32))
    first = body.add(Convert(), body.add(ReplicaId()), shape=scalar(PrimitiveType.S32))
    own = body.add(Multiply(), first, body.constant(np.asarray(count if size > 1 else 0, np.int32)))
    target = body.add(Add(), own, body.constant(np.asarray(draw.between(0, spare), np.int32)))
    targets = body.add(Broadcast(), target, shape=counts.shape)
    return body.add(RaggedAllToAll(**groups), operand, output, starts, counts, targets, counts)
