"""Rules of collectives, asynchronous ops and host transfers: `RULES`, by op name."""

from __future__ import annotations

import numpy as np

from hloom.builder import XlaOp
from hloom.errors import ArgumentError
from hloom.layout import Layout
from hloom.ops.collectives import AllReduce, AllToAll
from hloom.ops.communication import Infeed, Outfeed, Recv, RecvDone, Send, SendDone
from hloom.ops.rules import result_shape
from hloom.ops.structure import AfterAll, Tuple
from hloom.shape import Shape
from hloom.stablehlo.attributes.communication import Groups
from hloom.stablehlo.attributes.values import integer, integers, required, table
from hloom.stablehlo.importer.body import Body, Rule
from hloom.stablehlo.importer.rules.calls import call_function
from hloom.stablehlo.mlir.ir import Attribute, DenseElements, Operation
from hloom.stablehlo.mlir.types import shape_of
from hloom.stablehlo.operations import BY_NAME

Ops = list[XlaOp]


def _all_to_all(body: Body, operation: Operation, operands: Ops) -> Ops:
    """Splits, exchanges and concatenates each operand; HLO's array form does so along a single dimension.

    MHLO also has HLO's tuple form: one whole operand for each member of a group.
    """
    attributes = operation.attributes
    if "split_dimension" not in attributes and operation.name.startswith("mhlo."):
        op = AllToAll(**BY_NAME["all_to_all"].fields(attributes, ()))
        return body.emit(operation, op, operands)
    split, concat, count = (
        integer(required(attributes, name)) for name in ("split_dimension", "concat_dimension", "split_count")
    )
    fields = BY_NAME["all_to_all"].fields(attributes, ())
    results: Ops = []
    for operand in operands:
        sizes = operand.shape.dimensions
        if not 0 <= split < len(sizes) or not 0 <= concat < len(sizes) or count < 1 or sizes[split] % count:
            raise ArgumentError(f"cannot split dimension {split} of {operand.shape} in {count} and join {concat}")
        if split == concat:
            results.append(body._add(AllToAll(**fields, split_dimension=split), [operand]))
            continue
        # The parts become a separate dimension, moved before the dimension to concatenate and collapsed with it.
        parts = body.reshape(operand, [*sizes[:split], count, sizes[split] // count, *sizes[split + 1 :]])
        parts = body._add(AllToAll(**fields, split_dimension=split), [parts])
        order = [d for d in range(len(sizes) + 1) if d != split]
        order.insert(concat, split)
        moved = body.transpose(parts, order)
        results.append(body.collapse(moved, [concat, concat + 1]))
    return results


def _collective_reduce(body: Body, operation: Operation, operands: Ops) -> Ops:
    """Adds an all-reduce whose result only the first member of each group keeps; the others get zeros."""
    row = BY_NAME["all_reduce"]
    if "has_dynamic_root" in operation.attributes:
        raise ArgumentError("a root that is known at run time (has_dynamic_root) is not supported")
    fields = row.fields(operation.attributes, ())
    groups = fields["replica_groups"].groups
    reducer = body.computation(operation.regions[0], "computation")
    reduced = body.emit(operation, AllReduce(**fields, computation=reducer), operands)
    if fields["use_global_device_ids"]:
        raise ArgumentError("use_global_device_ids is not supported")
    me = body.partition_id() if fields["channel_id"] else body.replica_id()
    keeps = body.constant(False)
    for root in [group[0] for group in groups if group] or [0]:
        keeps = body.or_(keeps, body.eq(me, body.constant(np.uint32(root))))
    return [
        body.select(body.broadcast(keeps, result.shape.dimensions), result, body.zeros(result.shape))
        for result in reduced
    ]


def _cross_replica_sum(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    """CROSSREPLICASUM-1: adds an all-reduce with addition."""
    groups = Groups().read(operation.attributes, ())["replica_groups"]
    return body.cross_replica_sum(operands[0], groups.groups)


def _async_start(body: Body, operation: Operation, operands: Ops) -> Ops:
    """Performs the whole operation, as the exporter does for HLO's starts; a future of several results is a tuple.

    The operation is a region in StableHLO, and a function in MHLO.
    """
    function = operation.attributes.get("called_computation")
    if function is not None:
        # A sharding is of the whole bundle (operands, results, context), which there is not.
        operation.attributes.pop("mhlo.sharding", None)
        results, call = call_function(body, operation, operands, function)
        return [body.packed(results) if call is None else call]
    (region,) = operation.regions
    body.values |= dict(zip(region.block.arguments, operands, strict=True))
    results = body.block(region)
    return [body.packed(results)]


def _async_update(body: Body, operation: Operation, operands: Ops) -> Ops:
    return operands


def _async_done(body: Body, operation: Operation, operands: Ops) -> Ops:
    return body.unpacked(operands[0], len(operation.results))


def _infeed(body: Body, operation: Operation, operands: Ops) -> Ops:
    """Adds an infeed, whose result is a tuple of data and a token."""
    config = BY_NAME["infeed"].fields(operation.attributes, ())
    shapes = [shape_of(type_) for type_ in operation.result_types[:-1]]
    layouts = operation.attributes.get("layout")
    if isinstance(layouts, list) and len(layouts) == len(shapes):
        shapes = [_laid_out(shape, layout) for shape, layout in zip(shapes, layouts, strict=True)]
    data = Shape.tuple_of(shapes)
    # Infeeds read in the order of the text; in HLO, tokens must order them.
    last = body.last_infeed
    tokens = operands if last is None or last is operands[0] else [body._add(AfterAll(), [*operands, last])]
    fed = body._add(Infeed(**config), tokens, Infeed.result_of(data))
    values, body.last_infeed = body.elements(fed, 2)
    return [*body.elements(values, len(shapes)), body.last_infeed]


def _laid_out(shape: Shape, layout: Attribute) -> Shape:
    order = integers(layout)
    return shape.with_layout(Layout(order)) if shape.rank and len(order) == shape.rank else shape


def _outfeed(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    *data, token = operands
    value = body._add(Tuple(), data)
    config = BY_NAME["outfeed"].fields(operation.attributes, ())
    return body._add(Outfeed(**config, outfeed_shape=value.shape), [value, token])


def _send(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    *data, token = operands
    value = body.packed(data)
    fields = BY_NAME["send"].fields(operation.attributes, ())
    started = body._add(Send(**fields), [value, token])
    _transfer_pairs(operation, started)
    return body._add(SendDone(**fields), [started])


def _recv(body: Body, operation: Operation, operands: Ops) -> Ops:
    fields = BY_NAME["recv"].fields(operation.attributes, ())
    shapes = [shape_of(type_) for type_ in operation.result_types[:-1]]
    data = result_shape(shapes)
    started = body._add(Recv(**fields), operands, Recv.result_of(data))
    _transfer_pairs(operation, started)
    done = body._add(RecvDone(**fields), [started])
    value, token = body.elements(done, 2)
    return [*body.unpacked(value, len(shapes)), token]


def _transfer_pairs(operation: Operation, started: XlaOp) -> None:
    pairs = operation.attributes.get("source_target_pairs")
    if isinstance(pairs, DenseElements) and pairs.values.size:
        text = ",".join(f"{{{source},{target}}}" for source, target in table(pairs))
        started.instruction.frontend_attributes["_xla_send_recv_source_target_pairs"] = f"{{{text}}}"


RULES: dict[str, Rule] = {
    "stablehlo.all_to_all": _all_to_all,
    "stablehlo.collective_reduce": _collective_reduce,
    "stablehlo.cross-replica-sum": _cross_replica_sum,
    "stablehlo.async_start": _async_start,
    "mhlo.async_update": _async_update,
    "stablehlo.async_done": _async_done,
    "stablehlo.infeed": _infeed,
    "stablehlo.outfeed": _outfeed,
    "stablehlo.send": _send,
    "stablehlo.recv": _recv,
}
