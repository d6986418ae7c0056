"""`dot` as a matrix product."""

from __future__ import annotations

import functools
from dataclasses import replace

from hloom.backends.cpu.kernels.code import KernelCode
from hloom.backends.cpu.kernels.products.matmul import emit_matmul, emit_packed_matmul
from hloom.backends.cpu.kernels.products.product import MatmulSpec
from hloom.backends.cpu.kernels.products.sums import can_multiply
from hloom.ir import Instruction
from hloom.ops.dot import Dot
from hloom.passes.fusion.dot_operands import stride_of
from hloom.target import Target


def emit(op: Dot, name: str, instruction: Instruction, target: Target) -> KernelCode | None:
    """Returns the code of a dot with one stride for each role (`DotOperands` ensures that); None for types without
    code.
    """
    spec = matmul_spec(op, instruction)
    if spec is None or not can_multiply(spec.lhs_type, spec.rhs_type, spec.out_type):
        return None
    code = emit_matmul(name, spec, target)
    return replace(code, packed=functools.cache(functools.partial(emit_packed_matmul, name, spec, target)))


def matmul_spec(op: Dot, instruction: Instruction) -> MatmulSpec | None:
    """Returns the sizes and strides of a dot; None if a role has no single stride."""
    lhs, rhs = instruction.operand_shapes
    batch, m, k = (
        stride_of(lhs, role) for role in (op.lhs_batch_dims, op.lhs_free_dims(lhs.rank), op.lhs_contracting_dims)
    )
    right = (op.rhs_batch_dims, op.rhs_contracting_dims, op.rhs_free_dims(rhs.rank))
    rhs_batch, rhs_k, n = (stride_of(rhs, role) for role in right)
    if batch is None or m is None or k is None or rhs_batch is None or rhs_k is None or n is None:
        return None
    return MatmulSpec(
        batch[0],
        m[0],
        n[0],
        k[0],
        lhs.element_type,
        rhs.element_type,
        instruction.shape.element_type,
        (batch[1], m[1], k[1]),
        (rhs_batch[1], rhs_k[1], n[1]),
        (m[0] * n[0], n[0], 1),
    )
