"""Layouts of parameters and results other than row-major, and memories other than that of the device.

Compiled programs work on row-major arrays. A parameter `f32[2,3]{0,1}` of the framework becomes a parameter `f32[3,2]`
that the program transposes first; results are transposed last. These transposes are fused into the loops that read or
write the arrays. JAX requests layouts and memories by the attributes `mhlo.layout_mode` and `mhlo.memory_kind` of the
entry function's arguments and results.
"""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from typing import Any

from hloom.errors import ArgumentError
from hloom.ir import Module
from hloom.layout import Layout, default_layout
from hloom.ops.control_flow import Call
from hloom.passes import clone_module
from hloom.passes.op_builder import OpBuilder, new_computation
from hloom.shape import Shape

MEMORY_SPACES = {"device": 0, "pinned_host": 5, "unpinned_host": 6}
"""Kinds of memory, as on XLA's CPU backend, and their numbers in layouts. All are the same memory."""
_MODE, _KIND = "mhlo.layout_mode", "mhlo.memory_kind"
_REQUESTS = [word.encode() for word in (_MODE.partition(".")[2], *MEMORY_SPACES) if word != "device"]
"""Words of which a program that requests a layout or another memory has one."""
Attributes = dict[str, Any]
"""Attributes of an argument or a result of a function, by name."""
_ORDER = re.compile(r"\{([\d,]*)\}\Z")


@functools.cache
def row_major(rank: int) -> tuple[int, ...]:
    """Dimensions of a row-major array from minor to major: rank - 1, .., 0."""
    return default_layout(rank).minor_to_major


def minor_to_major(shape: Shape) -> tuple[int, ...]:
    """Dimensions of an array from minor to major."""
    return row_major(shape.rank) if shape.layout is None else shape.layout.minor_to_major


def memory_kind(shape: Shape) -> str:
    """Returns the kind of the memory that holds an array."""
    space = 0 if shape.layout is None else shape.layout.memory_space
    return next((kind for kind, number in MEMORY_SPACES.items() if number == space), "device")


def set_entry_layouts(module: Module, program: bytes) -> None:
    """Sets the layouts of the entry to those that a StableHLO program requests, by default row-major on the device.

    The layouts of the entry's instructions result from shape inference and matter only for the mode `auto`.
    Raises NotImplementedError for tiled layouts, and ArgumentError for unknown kinds of memory.
    """
    parameters = module.entry.parameter_shapes
    outputs = module.entry.result_shape.elements
    arguments: list[Attributes] = [{}] * len(parameters)
    results: list[Attributes] = [{}] * len(outputs)
    if any(word in program for word in _REQUESTS):
        arguments, results = _entry_attributes(program)
    if len(arguments) != len(parameters) or len(results) != len(outputs):
        raise ArgumentError("the program's arguments and results do not match its entry function")
    module.entry_parameter_layouts = [
        _with_attributes(s, entry) for s, entry in zip(parameters, arguments, strict=True)
    ]
    module.entry_result_layout = Shape.tuple_of(
        _with_attributes(s, entry) for s, entry in zip(outputs, results, strict=True)
    )


def set_own_layouts(module: Module) -> None:
    """Sets the layouts of the entry to those of the module's header, row-major by default."""
    parameters = module.entry_parameter_layouts or module.entry.parameter_shapes
    results = (module.entry_result_layout or module.entry.result_shape).elements
    module.entry_parameter_layouts = [_with_layout(shape) for shape in parameters]
    module.entry_result_layout = Shape.tuple_of(map(_with_layout, results))


def _with_layout(shape: Shape) -> Shape:
    if not shape.is_array or shape.is_dynamic:
        return shape
    return shape.with_layout(Layout(minor_to_major(shape), memory_space=MEMORY_SPACES[memory_kind(shape)]))


def _entry_attributes(program: bytes) -> tuple[list[Attributes], list[Attributes]]:
    """The attributes of the arguments and of the results of the entry function."""
    from hloom.files.formats import is_text
    from hloom.stablehlo.mlir.bytecode import read_bytecode
    from hloom.stablehlo.mlir.ir import FunctionType
    from hloom.stablehlo.mlir.text import parse_mlir

    text = program if is_text(program) else read_bytecode(program)
    operations = parse_mlir(text.decode()).regions[0].block.operations
    main = next(o for o in operations if o.name == "func.func" and o.attributes.get("sym_name") == "main")
    type = main.attributes["function_type"]
    assert isinstance(type, FunctionType)
    found = []
    for name, count in (("arg_attrs", len(type.inputs)), ("res_attrs", len(type.results))):
        entries = main.attributes.get(name) or [{}] * count
        assert isinstance(entries, list)
        found.append([entry or {} for entry in entries])
    return found[0], found[1]


def _with_attributes(shape: Shape, attributes: Attributes) -> Shape:
    """Returns a shape with the layout and in the memory that attributes request."""
    shape, kind = _with_mode(shape, str(attributes.get(_MODE, "default"))), str(attributes.get(_KIND, "device"))
    if kind not in MEMORY_SPACES:
        raise ArgumentError(f"hloom's kinds of memory are {', '.join(MEMORY_SPACES)}, got {kind!r}")
    if shape.layout is None or kind == "device":
        return shape
    return shape.with_layout(replace(shape.layout, memory_space=MEMORY_SPACES[kind]))


def _with_mode(shape: Shape, mode: str) -> Shape:
    if not shape.is_array or shape.is_dynamic:
        return shape
    if mode == "auto" and shape.layout is not None:
        return shape  # the layout that shape inference chose, in which a transposed value needs no copy
    if mode in ("default", "auto"):
        return shape.with_layout(default_layout(shape.rank))
    order = _ORDER.match(mode)
    if order is None:
        raise NotImplementedError(f"hloom's arrays have no tiles: {shape} with layout {mode}")
    return shape.with_layout(Layout(tuple(map(int, filter(None, order[1].split(","))))))


def in_row_major(module: Module) -> Module:
    """Wraps a module so that its parameters and results are row-major arrays of the same memory.

    Returns the module itself if all of them are row-major already.
    """
    parameters = module.entry_parameter_layouts or module.entry.parameter_shapes
    results = (module.entry_result_layout or module.entry.result_shape).elements
    if all(minor_to_major(s) == row_major(s.rank) for s in (*parameters, *results) if s.is_array):
        return module
    outer = clone_module(module)
    inner = outer.entry
    entry = new_computation(outer, "entry")
    outer.computations.append(outer.computations.pop(0))
    outer.entry_computation = entry
    build = OpBuilder.of(entry)
    inputs = [build.parameter(index, _memory_shape(shape)) for index, shape in enumerate(parameters)]
    arguments = []
    for shape, parameter in zip(parameters, inputs, strict=True):
        arguments.append(build.transpose(parameter, _dimension_positions(shape)))
    call = build(Call(computation=inner), *arguments)
    values = []
    for index, shape in enumerate(results):
        values.append(build.transpose(build.element(call, index), minor_to_major(shape)[::-1]))
    build.tuple(*values)
    outer.set_default_entry_layouts()
    return outer


def _memory_shape(shape: Shape) -> Shape:
    """The row-major shape with the same memory."""
    sizes = tuple(shape.dimensions[d] for d in minor_to_major(shape)[::-1])
    return Shape.array(shape.element_type, sizes)


def _dimension_positions(shape: Shape) -> tuple[int, ...]:
    """Position of each dimension in the order from major to minor."""
    order = minor_to_major(shape)[::-1]
    return tuple(order.index(d) for d in range(shape.rank))
