"""Support of JAX's `custom_partitioning` and `inspect_array_sharding` in the SPMD partitioner.

Both are custom calls whose `backend_config` identifies a Python object of JAX, which lives as long as the executable.
`hloom.passes.spmd` calls these objects with jaxlib's shapes and shardings.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from jax._src import custom_partitioning, debugging
from jaxlib import xla_client as xc
from jaxlib.mlir import ir

from hloom.errors import ArgumentError
from hloom.ir import Instruction
from hloom.passes.spmd.planning.custom import PartitionedCall, register_inspector, register_partitioner
from hloom.pjrt.programs import read_stablehlo
from hloom.proto.annotations import read_sharding, write_sharding
from hloom.proto.schema import message_class
from hloom.shape import Shape
from hloom.sharding import Sharding

_INSPECTORS: weakref.WeakValueDictionary[str, Callable[[Any], None]] = weakref.WeakValueDictionary()
_IDS = itertools.count()


def install() -> None:
    """Registers the handlers of both custom calls with the partitioner."""
    register_partitioner(custom_partitioning._CUSTOM_PARTITIONING_CALL_NAME, _partition)
    register_inspector(debugging._INSPECT_SHARDING_CALL_NAME, _inspect)


def inspect_sharding_rule(ctx: Any, value: Any, *, callback: Callable[..., Any]) -> Any:
    """JAX's lowering rule for `inspect_array_sharding`, with an id in place of the function's address.

    The addresses that JAX puts into `backend_config` are not valid text.
    """
    keepalives = ctx.module_context.keepalives
    before = len(keepalives)
    results = debugging._inspect_sharding_lowering_rule(ctx, value, callback=callback)
    if len(keepalives) > before:  # on one device there is no call
        inspector_id = f"inspector {next(_IDS)}"
        _INSPECTORS[inspector_id] = keepalives[-1]
        operations = ir.InsertionPoint.current.block.operations
        operations[len(operations) - 1].attributes["backend_config"] = ir.StringAttr.get(inspector_id)
    return results


def _inspect(call: Instruction, sharding: Sharding) -> None:
    inspector = _INSPECTORS.get(call.backend_config)
    if inspector is None:
        raise ArgumentError("the function that inspects a sharding of this program was freed").at(repr(call))
    inspector(_to_jax(sharding))


def _partition(call: Instruction, operands: list[Sharding], results: list[Sharding]) -> PartitionedCall:
    """Partitions a call of `custom_partitioning` by the user's function."""
    shapes, result_shape = [*map(_shape, call.operand_shapes)], _shape(call.shape)
    result_shardings = [*map(_to_jax, results)]
    result_sharding = (
        xc.HloSharding.tuple_sharding(result_shape, result_shardings) if call.shape.is_tuple else result_shardings[0]
    )
    partition: Callable[..., Any] = custom_partitioning._custom_partitioning_partition
    try:
        program, operand_shardings, made = partition(
            shapes,
            [*map(_to_jax, operands)],
            result_shape,
            result_sharding,
            call.backend_config.encode("utf-8", "surrogateescape"),
        )
    except Exception as error:  # the user's function, or JAX's checks of what it returns
        raise ArgumentError(f"custom_partitioning: {type(error).__name__}: {error}").at(repr(call)) from error
    parts = made.tuple_elements() if call.shape.is_tuple else [made]
    return PartitionedCall(read_stablehlo(program), _from_jax(operand_shardings), _from_jax(parts))


def _shape(shape: Shape) -> Any:
    if shape.is_tuple:
        return xc.Shape.tuple_shape([_shape(element) for element in shape.elements])
    return xc.Shape.array_shape(shape.element_type.dtype, shape.dimensions)


def _to_jax(sharding: Sharding) -> Any:
    proto = xc.OpSharding()
    proto.ParseFromString(write_sharding(sharding).SerializeToString())
    return xc.HloSharding.from_proto(proto)


def _from_jax(shardings: Sequence[Any]) -> list[Sharding]:
    protos = (message_class("OpSharding").FromString(each.to_proto().SerializeToString()) for each in shardings)
    return [*map(read_sharding, protos)]
