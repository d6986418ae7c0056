"""Rules of MHLO ops that are HLO operations but not StableHLO ops: `RULES`, by op name."""

from __future__ import annotations

from hloom.builder import XlaOp
from hloom.ops.attributes import Domain as DomainShardings
from hloom.ops.operation import OPERATIONS
from hloom.ops.rng import RngGetAndUpdateState
from hloom.ops.structure import Domain
from hloom.stablehlo.attributes.values import integer, parameters, required, string
from hloom.stablehlo.importer.annotations import serialised_sharding
from hloom.stablehlo.importer.body import Body, Rule
from hloom.stablehlo.mlir.ir import DialectAttribute, Operation
from hloom.stablehlo.operations import BY_NAME

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


RULES: dict[str, Rule] = {
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
