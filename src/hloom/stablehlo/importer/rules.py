"""Rules of ops that are not one HLO operation with the same operands: `RULES`, by op name.

A rule takes the body to which it adds instructions, the op, and the XlaOps of its operands; it returns those of the
results. Ops with sizes as operands are in `dynamic.py`, control flow is in `control_flow.py`, and collectives are in
`communication.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from hloom.broadcasting import Broadcasting
from hloom.builder import XlaOp
from hloom.errors import ArgumentError
from hloom.layout import Layout
from hloom.ops.attributes import CustomCallApiVersion, OutputOperandAlias
from hloom.ops.broadcast import Broadcast
from hloom.ops.control_flow import Call
from hloom.ops.custom_call import CustomCall
from hloom.ops.dot import Dot
from hloom.ops.elementwise_binary import Maximum, Minimum
from hloom.ops.sort import Sort
from hloom.ops.structure import AfterAll, Tuple
from hloom.shape import Shape
from hloom.stablehlo.attributes.values import integer, integers, required, string
from hloom.stablehlo.importer import chlo, communication, control_flow, dynamic, mhlo, quantized, shardy
from hloom.stablehlo.importer.body import Body, Rule, computation_of, packed_shape
from hloom.stablehlo.mlir.attribute_text import dictionary_text
from hloom.stablehlo.mlir.ir import (
    Attribute,
    DenseElements,
    DialectAttribute,
    ElidedElements,
    Number,
    Operation,
    Symbol,
    TensorType,
)
from hloom.stablehlo.mlir.types import shape_of
from hloom.stablehlo.operations import BY_NAME
from hloom.types import PrimitiveType

Ops = list[XlaOp]


# Values and shapes


def _constant(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    value = required(operation.attributes, "value")
    if isinstance(value, ElidedElements):
        return body.elided(shape_of(value.type))
    if isinstance(value, (bool, Number)):
        return body.scalar(value, operation.results[0].type)
    if not isinstance(value, DenseElements):
        raise ArgumentError(f"value is dense<..>, got {value!r}")
    return body.dense(value)


def _iota(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    return body.iota(shape_of(operation.results[0].type), integer(required(operation.attributes, "iota_dimension")))


def _broadcast_in_dim(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    """Drops dimensions of size 1 that are stretched, since HLO's broadcast does not stretch them."""
    operand, dimensions = dynamic.in_result_order(body, operation, operands[0])
    operands = [operand]
    shape = shape_of(operation.results[0].type)
    if shape.is_dynamic:
        return body.emit(operation, Broadcast(broadcast_dimensions=tuple(dimensions)), operands)[0]
    plan = Broadcasting.in_dim(operand.shape, shape.dimensions, dimensions)
    if plan.expanded:
        return body.broadcast_in_dim(operand, shape.dimensions, dimensions)
    return body._add(Broadcast(broadcast_dimensions=tuple(dimensions)), operands, plan.shape)


def _broadcast(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    return body.broadcast(operands[0], integers(required(operation.attributes, "broadcast_sizes")))


def _convert(body: Body, operation: Operation, operands: Ops) -> Ops:
    """Converts element types; complex to real takes the real part."""
    (operand,), shape = operands, operands[0].shape
    declared = operation.results[0].type
    assert isinstance(declared, TensorType)
    element_type = shape_of(TensorType((), declared.element_type)).element_type
    if shape.element_type.is_complex and not element_type.is_complex:
        operand = body.real(operand)
    return [body.convert_element_type(operand, element_type)]


def _cbrt(body: Body, operation: Operation, operands: Ops) -> Ops:
    """The principal cube root of a complex z, e^(log(z) / 3), and 0 for 0."""
    (operand,) = operands
    if not operand.shape.element_type.is_complex:
        return body.row(BY_NAME["cbrt"], operation, operands)
    third = body.constant(np.asarray(1 / 3, operand.shape.element_type.dtype))
    root = body.exp(body.mul(body.log(operand), third))
    zero = body.zeros(operand.shape)
    return [body.select(body.eq(operand, zero), zero, root)]


def _extremum(declaration: type[Maximum | Minimum]) -> Rule:
    """The rule of maximum and minimum; complex numbers are ordered by real, then imaginary part."""

    def rule(body: Body, operation: Operation, operands: Ops) -> XlaOp:
        lhs, rhs = operands
        if not lhs.shape.element_type.is_complex:
            return body._add(declaration(), operands)
        first, second = (lhs, rhs) if declaration is Maximum else (rhs, lhs)
        same = body.eq(body.real(first), body.real(second))
        greater = body.or_(
            body.gt(body.real(first), body.real(second)),
            body.and_(same, body.gt(body.imag(first), body.imag(second))),
        )
        return body.select(greater, lhs, rhs)

    return rule


def _rng_bit_generator(body: Body, operation: Operation, operands: Ops) -> Ops:
    """Converts random bits to floats of the same width: HLO's random bits are integers (RNGBITGENERATOR-8)."""
    state, data = (shape_of(type_) for type_ in operation.result_types)
    kind = data.element_type
    bits = data if not kind.is_float else data.with_element_type(PrimitiveType[f"U{kind.bits}"])
    row = BY_NAME["rng_bit_generator"]
    op = row.declaration(**row.fields(operation.attributes, ()))
    result = body._add(op, operands, Shape.tuple_of([state, bits]))
    values = body.elements(result, 2)
    return values if bits is data else [values[0], body.bitcast_convert_type(values[1], kind)]


def _set_dimension_size(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    operand, size = operands
    value = body.constant_of(size)
    if value is not None:
        size = body.constant(np.int32(value.reshape(())))
    return body.set_dimension_size(operand, size, integer(required(operation.attributes, "dimension")))


def _sort(body: Body, operation: Operation, operands: Ops) -> Ops:
    """Adds a sort, whose dimension may count from the end."""
    row = BY_NAME["sort"]
    fields = row.fields(operation.attributes, [operand.shape for operand in operands])
    rank = operands[0].shape.rank if operands else 0
    if not -rank <= fields["dimension"] < rank:
        raise ArgumentError(f"dimension {fields['dimension']} must be in [-{rank}, {rank})")
    fields["dimension"] %= rank
    comparator = body.computation(operation.regions[0], "comparator")
    return body.emit(operation, row.declaration(**fields, comparator=comparator), operands)


def _optimization_barrier(body: Body, operation: Operation, operands: Ops) -> Ops:
    if len(operands) == 1:
        return [body.optimization_barrier(operands[0])]
    barrier = body.optimization_barrier(body.tuple(*operands) if operands else body._add(Tuple(), ()))
    return body.elements(barrier, len(operands))


def _create_token(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    return body._add(AfterAll(), ())


def _rng(body: Body, operation: Operation, operands: Ops) -> Ops:
    """Adds an rng; the sizes come from the third operand or the result's type."""
    row = BY_NAME["rng"]
    sizes = dynamic.result_sizes(body, operation, operands[2])
    shape = Shape.array(operands[0].shape.element_type, sizes)
    return [body._add(row.declaration(**row.fields(operation.attributes, ())), operands[:2], shape)]


# Deprecated ops


def _dot(body: Body, operation: Operation, operands: Ops) -> Ops:
    lhs, _ = operands
    precision = BY_NAME["dot_general"].codecs[1].read(operation.attributes, ())
    op = Dot(lhs_contracting_dims=(lhs.shape.rank - 1,), rhs_contracting_dims=(0,), **precision)
    return body.emit(operation, op, operands)


def _einsum(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    """Adds a dot for `ab,bc->ac`, or sums and a transpose for one operand; `...` is leading dimensions."""
    config = string(required(operation.attributes, "einsum_config")).replace(" ", "")
    sources, arrow, target = config.partition("->")
    terms = sources.split(",")
    if not arrow or len(terms) != len(operands):
        raise ArgumentError(f"einsum_config has a term for each operand and '->', got {config!r}")
    labels = [_expand_ellipsis(term, operand.shape.rank) for term, operand in zip(terms, operands, strict=True)]
    leading = max(map(_ellipsis_rank, terms, operands)) if "..." in target else 0
    result_rank = len(target.replace("...", "")) + leading
    result_labels = _expand_ellipsis(target, result_rank)
    reduced: Ops = []
    for i, operand in enumerate(operands):
        others = set(result_labels).union(*(labels[k] for k in range(len(labels)) if k != i))
        operand, labels[i] = _sum_unshared(body, operand, labels[i], others)
        reduced.append(operand)
    if len(reduced) == 1:
        return _transpose_to(body, reduced[0], labels[0], result_labels)
    element_type = body.element_type_of(operation.results[0].type)
    product, product_labels = _product(body, reduced[0], labels[0], reduced[1], labels[1], result_labels, element_type)
    return _transpose_to(body, product, product_labels, result_labels)


def _ellipsis_rank(term: str, operand: XlaOp) -> int:
    return operand.shape.rank - len(term.replace("...", "")) if "..." in term else 0


def _expand_ellipsis(term: str, rank: int) -> str:
    """Replaces an ellipsis by digits, numbered from the last dimension so that operands align at the end."""
    count = rank - len(term.replace("...", ""))
    if count < 0 or (count and "..." not in term):
        raise ArgumentError(f"the term {term!r} does not fit rank {rank}")
    return term.replace("...", "".join(str(k) for k in reversed(range(count))))


def _sum_unshared(body: Body, operand: XlaOp, labels: str, others: set[str]) -> tuple[XlaOp, str]:
    """Takes diagonals of repeated labels, and sums over labels that are not in `others`."""
    while len(set(labels)) < len(labels):
        repeated = next(label for label in labels if labels.count(label) > 1)
        first, second = [d for d, label in enumerate(labels) if label == repeated][:2]
        shape = Shape.array(PrimitiveType.S32, operand.shape.dimensions)
        mask = body.eq(body.iota(shape, first), body.iota(shape, second))
        operand = body.select(mask, operand, body.zeros(operand.shape))
        operand, labels = body.sum(operand, [second]), labels[:second] + labels[second + 1 :]
    summed = [d for d, label in enumerate(labels) if label not in others]
    if summed:
        operand = body.sum(operand, summed)
    return operand, "".join(label for label in labels if label in others)


def _product(
    body: Body, lhs: XlaOp, left: str, rhs: XlaOp, right: str, result_labels: str, element_type: PrimitiveType
) -> tuple[XlaOp, str]:
    shared = [label for label in left if label in right]
    batch = [label for label in shared if label in result_labels]
    summed = [label for label in shared if label not in result_labels]
    dot = Dot(
        lhs_batch_dims=tuple(map(left.index, batch)),
        lhs_contracting_dims=tuple(map(left.index, summed)),
        rhs_batch_dims=tuple(map(right.index, batch)),
        rhs_contracting_dims=tuple(map(right.index, summed)),
    )
    product = body._add(dot, [lhs, rhs], dot.infer(lhs.shape, rhs.shape).with_element_type(element_type))
    rest = [label for label in left + right if label not in shared]
    return product, "".join([*batch, *rest])


def _transpose_to(body: Body, operand: XlaOp, labels: str, result_labels: str) -> XlaOp:
    if sorted(labels) != sorted(result_labels):
        raise ArgumentError(f"the result's labels {result_labels!r} are not those that remain, {labels!r}")
    return (
        operand
        if labels == result_labels
        else body.transpose(operand, [labels.index(label) for label in result_labels])
    )


def _torch_index_select(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    """Gathers slices of the operand along `dim`; its first `batch_dims` dimensions are paired with the indices'."""
    operand, index = operands
    dim, batch = (integer(required(operation.attributes, name)) for name in ("dim", "batch_dims"))
    rank = operand.shape.rank
    if not 0 <= batch <= dim < rank:
        raise ArgumentError(f"0 <= batch_dims <= dim < {rank} is needed, got batch_dims {batch}, dim {dim}")
    sizes = [1 if d == dim or d < batch else size for d, size in enumerate(operand.shape.dimensions)]
    offsets = [*range(batch, dim), *range(dim + index.shape.rank - batch, rank + index.shape.rank - batch - 1)]
    return body.gather(
        operand,
        index,
        index_vector_dim=index.shape.rank,
        offset_dims=offsets,
        slice_sizes=sizes,
        collapsed_slice_dims=[dim],
        start_index_map=[dim],
        operand_batching_dims=list(range(batch)),
        start_indices_batching_dims=list(range(batch)),
    )


# Calls


def _call(body: Body, operation: Operation, operands: Ops) -> Ops:
    symbol = required(operation.attributes, "callee")
    return _call_function(body, operation, operands, symbol)[0]


def _call_function(
    body: Body, operation: Operation, operands: Ops, symbol: Attribute, **fields: Any
) -> tuple[Ops, XlaOp]:
    name = symbol.name if isinstance(symbol, Symbol) else string(symbol)
    function = body.context.function(operation, name)
    expected = body.context.function_type(function).inputs
    if len(expected) != len(operands):
        raise ArgumentError(f"@{name} takes {len(expected)} arguments, got {len(operands)}")
    values = map(body.size_of, operands if body.context.is_specialized else ())
    known_values = {i: value for i, value in enumerate(values) if value is not None}
    shapes = [operand.shape.without_layout() for operand in operands]
    computation = computation_of(body.context, function, shapes, known_values)
    result = body._add(Call(computation=computation, **fields), operands)
    count = len(operation.results)
    results = body.unpacked(result, count)
    sizes = body.context.known_results.get(id(computation), [None] * count)
    pairs = zip(results, sizes, strict=True)
    return [value if size is None else body.constant(size) for value, size in pairs], result


def _composite(body: Body, operation: Operation, operands: Ops) -> Ops:
    """Adds a call of the decomposition, with the composite's name, version and attributes as frontend attributes."""
    attributes = operation.attributes
    results, call = _call_function(body, operation, operands, required(attributes, "decomposition"), is_composite=True)
    given = attributes.get("composite_attributes") or {}
    if not isinstance(given, dict):
        raise ArgumentError("composite_attributes is a dictionary")
    version = integer(attributes["version"]) if "version" in attributes else 0
    call.instruction.frontend_attributes |= {
        "composite.attributes": dictionary_text(given),
        "composite.name": string(required(attributes, "name")),
        "composite.version": str(version),
    }
    return results


def _failed_assertion(body: Body, attributes: dict[str, Attribute], operands: Ops) -> NoReturn:
    """Raises ArgumentError with the program's message, in which {0}, {1} .. stand for the checked sizes."""
    message = string(attributes.get("error_message") or "an assertion about sizes does not hold")
    values = [body.constant_of(operand) for operand in operands]
    raise ArgumentError(re.sub(r"\{(\d)\}", lambda match: _size_text(values, int(match[1])), message))


def _size_text(values: list[Any], index: int) -> str:
    return str(values[index]) if index < len(values) else "?"


def _custom_call(body: Body, operation: Operation, operands: Ops) -> Ops:
    """Adds a custom call; targets such as `mhlo.erf` are imported as that op, with its `mhlo.attributes`."""
    attributes = operation.attributes
    target = string(required(attributes, "call_target_name"))
    if target.startswith(("mhlo.", "chlo.", "stablehlo.")) and "mhlo.attributes" in attributes:
        return _named_op(body, operation, operands, target)
    if target == "shape_assertion" and operands and (holds := body.constant_of(operands[0])) is not None:
        return [] if holds else _failed_assertion(body, attributes, operands[1:])
    if target == "stablehlo.dynamic_reduce_window":
        combiners = attributes.get("called_computations")
        (combiner,) = combiners if isinstance(combiners, list) else [combiners]
        return dynamic.reduce_window(body, operation, operands, _called_computation(body, operation, combiner))
    if target == "ApproxTopK":
        return _approximate_top_k(body, operation, operands)
    fields = BY_NAME["custom_call"].fields(attributes, ())
    fields |= _aliasing(attributes)
    if isinstance(attributes.get("mhlo.backend_config"), dict) and "api_version" not in attributes:
        fields["api_version"] = CustomCallApiVersion.API_VERSION_TYPED_FFI
    called = attributes.get("called_computations")
    if isinstance(called, list) and called:
        fields["called_computations"] = [_called_computation(body, operation, symbol) for symbol in called]
    shapes = [shape_of(type_) for type_ in operation.result_types]
    if isinstance(attributes.get("operand_layouts"), list):
        inputs = [operand.shape.without_layout() for operand in operands]
        fields["operand_layout_constraints"] = _layouts(inputs, attributes["operand_layouts"])
    if isinstance(attributes.get("result_layouts"), list):
        shapes = _layouts(shapes, attributes["result_layouts"])
    result = body._add(CustomCall(**fields).canonical(()), operands, packed_shape(shapes))
    result.instruction.backend_config = _backend_config(attributes)
    return body.unpacked(result, len(shapes))


def _approximate_top_k(body: Body, operation: Operation, operands: Ops) -> Ops:
    """The k largest elements along a dimension, computed exactly: operands are sorted and sliced."""
    config = operation.attributes.get("mhlo.backend_config")
    if not isinstance(config, dict):
        raise ArgumentError("ApproxTopK has its options in mhlo.backend_config")
    dimension = integer(required(config, "reduction_dim"))
    arrays = operands[: len(operands) // 2]
    called = required(operation.attributes, "called_computations")
    if not isinstance(called, list) or len(called) != 1:
        raise ArgumentError("ApproxTopK calls one computation")
    comparator = _called_computation(body, operation, called[0])
    sort = Sort(dimension=dimension, comparator=comparator)
    ordered = body.unpacked(body._add(sort, arrays), len(arrays))
    limits = [shape_of(declared).dimensions for declared in operation.result_types]
    return [body.slice(array, [0] * len(sizes), sizes) for array, sizes in zip(ordered, limits, strict=True)]


def _named_op(body: Body, operation: Operation, operands: Ops, target: str) -> Ops:
    inner = operation.attributes["mhlo.attributes"]
    dialect, _, short = target.partition(".")
    name = f"chlo.{short}" if f"chlo.{short}" in RULES or dialect == "chlo" else f"stablehlo.{short}"
    row = BY_NAME.get(short)
    if row is not None and not row.irregular:
        name = f"{row.dialect}.{short}"
    given = inner if isinstance(inner, dict) else {}
    regions = operation.regions
    stand_in = Operation(name, operation.operands, operation.results, given, regions, operation.location)
    stand_in.line, stand_in.column = operation.line, operation.column
    return body.results(stand_in, operands)


def _called_computation(body: Body, operation: Operation, symbol: Attribute) -> Any:
    function = body.context.function(operation, symbol.name if isinstance(symbol, Symbol) else string(symbol))
    inputs = body.context.function_type(function).inputs
    return computation_of(body.context, function, [shape_of(type_) for type_ in inputs])


def _layouts(shapes: Sequence[Shape], layouts: Attribute) -> list[Shape]:
    if not isinstance(layouts, list) or len(layouts) != len(shapes):
        raise ArgumentError(f"{len(shapes)} layouts are needed")
    return [
        shape.with_layout(Layout(integers(layout))) if shape.is_array else shape
        for shape, layout in zip(shapes, layouts, strict=True)
    ]


def _aliasing(attributes: dict[str, Attribute]) -> dict[str, Any]:
    entries = attributes.get("output_operand_aliases")
    aliases: list[OutputOperandAlias] = []
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, DialectAttribute) or not isinstance(entry.body, dict):
            raise ArgumentError("output_operand_aliases is a list of #stablehlo.output_operand_alias<..>")
        fields = entry.body
        aliases.append(
            OutputOperandAlias(
                integers(fields.get("output_tuple_indices", [])),
                integer(required(fields, "operand_index")),
                integers(fields.get("operand_tuple_indices", [])),
            )
        )
    return {"output_to_operand_aliasing": tuple(aliases)} if aliases else {}


def _backend_config(attributes: dict[str, Attribute]) -> str:
    """The backend config: a string itself, a dictionary as MLIR text, as in XLA."""
    config = attributes.get("mhlo.backend_config", attributes.get("backend_config", ""))
    return config if isinstance(config, str) else dictionary_text(config) if isinstance(config, dict) else ""


RULES: dict[str, Rule] = {
    "stablehlo.constant": _constant,
    "stablehlo.iota": _iota,
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.broadcast": _broadcast,
    "stablehlo.convert": _convert,
    "stablehlo.cbrt": _cbrt,
    "stablehlo.maximum": _extremum(Maximum),
    "stablehlo.minimum": _extremum(Minimum),
    "stablehlo.set_dimension_size": _set_dimension_size,
    "stablehlo.sort": _sort,
    "stablehlo.optimization_barrier": _optimization_barrier,
    "stablehlo.create_token": _create_token,
    "stablehlo.rng": _rng,
    "stablehlo.rng_bit_generator": _rng_bit_generator,
    "stablehlo.dot": _dot,
    "stablehlo.einsum": _einsum,
    "stablehlo.unary_einsum": _einsum,
    "stablehlo.torch_index_select": _torch_index_select,
    "stablehlo.composite": _composite,
    "stablehlo.custom_call": _custom_call,
    "func.call": _call,
    **dict.fromkeys(("chlo.constant", "arith.constant", "sdy.constant", "shape.const_shape"), _constant),
    **communication.RULES,
    **control_flow.RULES,
    **dynamic.RULES,
    **quantized.RULES,
    **chlo.RULES,
    **mhlo.RULES,
    **shardy.RULES,
}


def rule_of(operation: Operation) -> Rule | None:
    """The rule of an op, or None; arithmetic on quantised tensors is dequantised first."""
    if quantized.is_arithmetic_on_quantized(operation):
        return quantized.dequantize_op_quantize
    return RULES.get(operation.name) or RULES.get(operation.name.replace("mhlo.", "stablehlo.", 1))
