"""The rules of all ops that are not one HLO operation with the same operands: `RULES`, by op name.

A rule takes the body to which it adds instructions, the op, and the XlaOps of its operands; it returns those of the
results.
"""

from __future__ import annotations

from hloom.stablehlo.importer.body import Rule
from hloom.stablehlo.importer.rules import (
    calls,
    chlo,
    communication,
    control_flow,
    custom_calls,
    dynamic,
    legacy,
    quantized,
    shardy,
    values,
)
from hloom.stablehlo.mlir.ir import Operation

RULES: dict[str, Rule] = {
    **values.RULES,
    **calls.RULES,
    **communication.RULES,
    **control_flow.RULES,
    **custom_calls.RULES,
    **dynamic.RULES,
    **quantized.RULES,
    **chlo.RULES,
    **legacy.RULES,
    **shardy.RULES,
}


def rule_of(operation: Operation) -> Rule | None:
    """The rule of an op, or None; arithmetic on quantised tensors is dequantised first."""
    if quantized.is_arithmetic_on_quantized(operation):
        return quantized.dequantize_op_quantize
    return RULES.get(operation.name) or RULES.get(operation.name.replace("mhlo.", "stablehlo.", 1))
