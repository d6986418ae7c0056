"""Reads programs in the formats that PJRT names, as modules with a flat interface.

`mlir`: StableHLO. jaxlib, which reads every version of its bytecode, converts it to HLO; without jaxlib hloom reads the
text format itself. `hlo` and `hlo_with_config`: serialised HloModuleProto and HloModuleProtoWithConfig, as PyTorch/XLA
sends them. PJRT has no tuples, so parameters and results are the leaves of the module's tuples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hloom.errors import ArgumentError, ProtoError, RuleError
from hloom.ir import Module
from hloom.ops.control_flow import Call
from hloom.passes.op_builder import OpBuilder, new_computation
from hloom.pjrt import special_functions
from hloom.pjrt.layouts import set_entry_layouts, set_own_layouts
from hloom.proto.reader import module_from_proto, read_module
from hloom.proto.schema import message_class
from hloom.shape import Shape
from hloom.sharding import Sharding, ShardingType
from hloom.system.records import record

_MESSAGES = {"hlo": "HloModuleProto", "hlo_with_config": "HloModuleProtoWithConfig"}


@record
class Source:
    """The bytes of a program and the name of their format."""

    format: str
    content: bytes

    @property
    def serialized(self) -> bytes:
        """The name of the format, a newline, and the bytes."""
        return self.format.encode() + b"\n" + self.content

    @staticmethod
    def deserialized(serialized: bytes) -> Source:
        """Inverse of `serialized`."""
        format, _, content = serialized.partition(b"\n")
        return Source(format.decode("utf-8", "replace"), content)

    def read(self) -> Module:
        """Reads the module; its parameters are arrays and its result is a tuple of arrays.

        Raises HloomError for bytes that are not a program of the format.
        """
        if self.format != "mlir" and self.format not in _MESSAGES:
            known = ", ".join(["mlir (StableHLO)", *_MESSAGES])
            raise ArgumentError(f"hloom compiles programs of the formats {known}, got {self.format!r}")
        module = flatten(read_stablehlo(self.content) if self.format == "mlir" else self._from_proto())
        for parameter in module.entry.parameters:
            if parameter.shape.is_unbounded:
                message = "programs of a framework have no unbounded dimensions"
                raise RuleError("parameter", "SL-25", message).at(repr(parameter))
        return module

    def _from_proto(self) -> Module:
        from google.protobuf.message import DecodeError

        try:
            proto = message_class(_MESSAGES[self.format]).FromString(self.content)
        except DecodeError as error:
            raise ProtoError(f"the program is not a serialised {_MESSAGES[self.format]}: {error}") from None
        return module_from_proto(proto if self.format == "hlo" else proto.hlo_module)

    def set_layouts(self, module: Module) -> None:
        """Sets the layouts of the module's entry to those that the program requests."""
        if self.format == "mlir":
            set_entry_layouts(module, self.content)
        else:
            set_own_layouts(module)


def read_stablehlo(content: bytes) -> Module:
    """Reads StableHLO text or bytecode. A module that jaxlib converted has not been verified."""
    try:
        from jaxlib import _jax
    except ImportError:
        return _read_text(content)
    try:
        computation = _jax.mlir.mlir_module_to_xla_computation(content, use_tuple_args=False, return_tuple=True)
    except Exception as error:
        raise ArgumentError(f"the program is not StableHLO that this jaxlib can read: {error}") from None
    module = read_module(message_class("HloModuleProto").FromString(computation.as_serialized_hlo_module_proto()))
    special_functions.expand(module)
    return module


def _read_text(content: bytes) -> Module:
    from hloom.files.formats import is_text
    from hloom.stablehlo.importer.module import parse_stablehlo

    if not is_text(content):
        raise ArgumentError("StableHLO bytecode is read by jaxlib, which is not installed: pass the program as text")
    return parse_stablehlo(content.decode())


# Flat interfaces


def flatten(module: Module) -> Module:
    """Wraps the entry so that it takes the leaves of its parameters and returns a tuple of the leaves of its result."""
    entry = module.entry
    result = entry.result_shape
    if not any(s.is_tuple for s in (*entry.parameter_shapes, *result.elements)) and result.is_tuple:
        return module
    layouts = module.entry_parameter_layouts or entry.parameter_shapes
    outer = new_computation(module, "flat")
    module.computations.append(module.computations.pop(0))
    build = OpBuilder.of(outer)
    arguments, leaf_count = [], 0
    for parameter in entry.parameters:
        leaves = [
            build.parameter(leaf_count + k, leaf.without_layout()) for k, leaf in enumerate(parameter.shape.leaves())
        ]
        for leaf, sharding in zip(leaves, _leaf_shardings(parameter.sharding, parameter.shape), strict=True):
            leaf.sharding = sharding
        arguments.append(build.assemble(parameter.shape, iter(leaves)))
        leaf_count += len(leaves)
    called = build(Call(computation=entry), *arguments)
    outer.root = build.tuple(*build.leaves(called))
    shardings = _leaf_shardings(entry.root.sharding, result)
    if all(shardings) and shardings:
        outer.root.sharding = Sharding(ShardingType.TUPLE, tuple_shardings=tuple(s for s in shardings if s is not None))
    _move_donations(module)
    module.entry_computation = outer
    module.entry_parameter_layouts = [leaf for shape in layouts for leaf in shape.leaves()]
    module.entry_result_layout = Shape.tuple_of((module.entry_result_layout or result).leaves())
    return module


def _leaf_shardings(sharding: Sharding | None, shape: Shape) -> list[Sharding | None]:
    """The sharding of each leaf of a value."""
    if sharding is None or sharding.type is not ShardingType.TUPLE:
        return [sharding] * len(list(shape.leaves()))
    parts = zip(sharding.tuple_shardings, shape.elements, strict=True)
    return [leaf for part, element in parts for leaf in _leaf_shardings(part, element)]


def _move_donations(module: Module) -> None:
    """Rewrites aliases and donors for the flat interface: tuple indices become ordinals of leaves."""
    parameters = _leaf_ordinals(Shape.tuple_of(module.entry.parameter_shapes))
    outputs = _leaf_ordinals(module.entry.result_shape)
    module.input_output_alias = [
        replace(
            alias,
            output_index=(outputs[alias.output_index],),
            parameter_number=parameters[alias.parameter_number, *alias.parameter_index],
            parameter_index=(),
        )
        for alias in module.input_output_alias
        if alias.output_index in outputs and (alias.parameter_number, *alias.parameter_index) in parameters
    ]
    module.buffer_donors = [
        replace(donor, parameter_number=parameters[donor.parameter_number, *donor.parameter_index], parameter_index=())
        for donor in module.buffer_donors
        if (donor.parameter_number, *donor.parameter_index) in parameters
    ]


def _leaf_ordinals(shape: Shape) -> dict[tuple[int, ...], int]:
    """Ordinal of each leaf, by its tuple index."""
    return {index: number for number, index in enumerate(_leaf_indices(shape))}


def _leaf_indices(shape: Shape) -> Iterator[tuple[int, ...]]:
    if not shape.is_tuple:
        yield ()
    for k, element in enumerate(shape.elements):
        yield from ((k, *rest) for rest in _leaf_indices(element))
