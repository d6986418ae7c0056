"""Rules of deprecated StableHLO ops, and of MHLO ops that StableHLO lacks: `RULES`, by op name."""

from __future__ import annotations

from hloom.builder import XlaOp
from hloom.errors import ArgumentError
from hloom.ops.attributes import Domain as DomainShardings
from hloom.ops.dot import Dot
from hloom.ops.operation import OPERATIONS
from hloom.ops.rng import RngGetAndUpdateState
from hloom.ops.structure import Domain
from hloom.shape import Shape
from hloom.stablehlo.attributes.numerics import Precisions
from hloom.stablehlo.attributes.values import integer, parameters, required, string
from hloom.stablehlo.importer.annotations import serialised_sharding
from hloom.stablehlo.importer.body import Body, Rule
from hloom.stablehlo.mlir.ir import DialectAttribute, Operation
from hloom.stablehlo.operations import BY_NAME
from hloom.types import PrimitiveType

Ops = list[XlaOp]


def _same(opcode: str) -> Rule:
    """The rule of an HLO operation with the same operands and no attributes; as in XLA, bitcasts lose layouts."""

    def rule(body: Body, operation: Operation, operands: Ops) -> Ops:
        return body.emit(operation, OPERATIONS[opcode](), operands)

    return rule


def _top_k(body: Body, operation: Operation, operands: Ops) -> Ops:
    return body.row(BY_NAME["top_k"], operation, operands)


def _ragged_dot(body: Body, operation: Operation, operands: Ops) -> Ops:
    """Converts the attribute to CHLO's, which has no nested dot dimension numbers."""
    name = "ragged_dot_dimension_numbers"
    flat = dict(parameters(required(operation.attributes, name), "ragged_dot"))
    flat |= parameters(flat.pop("dot_dimension_numbers", DialectAttribute("mhlo.dot", {})), "dot")
    operation.attributes[name] = DialectAttribute("mhlo.ragged_dot", flat)
    return body.row(BY_NAME["ragged_dot"], operation, operands)


def _domain(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    """Adds a domain, whose shardings are serialised protos."""
    texts = [string(required(operation.attributes, name)) for name in ("entry_metadata", "exit_metadata")]
    entry, exit_ = map(serialised_sharding, texts)
    return body._add(Domain(domain=DomainShardings("sharding", entry, exit_)), operands)


def _random_state(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    op = RngGetAndUpdateState(delta=integer(required(operation.attributes, "delta")))
    return body._add(op, operands)


# Deprecated ops


def _dot(body: Body, operation: Operation, operands: Ops) -> Ops:
    lhs, _ = operands
    precision = Precisions().read(operation.attributes, ())
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


RULES: dict[str, Rule] = {
    "stablehlo.dot": _dot,
    "stablehlo.einsum": _einsum,
    "stablehlo.unary_einsum": _einsum,
    "stablehlo.torch_index_select": _torch_index_select,
    "mhlo.add_dependency": _same("add-dependency"),
    "mhlo.bitcast": _same("bitcast"),
    "mhlo.copy": _same("copy"),
    "mhlo.domain": _domain,
    "mhlo.ragged_dot": _ragged_dot,
    "mhlo.stochastic_convert": _same("stochastic-convert"),
    "mhlo.topk": _top_k,
    "mhlo.trace": lambda body, operation, operands: [],
    "mhlo.xla.rng_get_and_update_state": _random_state,
}
