"""`dot` with an operand that is computed inside, as quantised weights are: a fusion whose root is the dot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hloom.backends.cpu.kernels.code import KernelCode, code_of, entry_function
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.products.computed_operand import ComputedOperand, Roles, computed_operand
from hloom.backends.cpu.kernels.products.dot import matmul_spec
from hloom.backends.cpu.kernels.products.matmul_plan import MULTIPLY_ADD_COST, MatmulSpec, accumulator
from hloom.backends.cpu.kernels.products.matrix import Matrix
from hloom.backends.cpu.kernels.products.matvec import Matvec
from hloom.ir import Instruction
from hloom.lir import Type, Value, type_of
from hloom.ops.control_flow import Fusion
from hloom.ops.dot import Dot
from hloom.ops.structure import Parameter
from hloom.target import Target

MAX_VECTORS = 8
"""Rows of the other operand with which the computed one is multiplied where it is read."""


def emit(op: Fusion, name: str, instruction: Instruction, target: Target) -> KernelCode | None:
    """Returns the code of a fusion whose root is a dot; None for other fusions."""
    dot = op.calls.root
    if not isinstance(dot.op, Dot):
        return None
    computed, other = dot.operands if isinstance(dot.operands[1].op, Parameter) else reversed(dot.operands)
    assert isinstance(other.op, Parameter)
    sources = [p for p in op.calls.parameters if p is not other]
    product = _product(dot, computed, sources)
    assert product is not None
    f = entry_function(name, instruction)
    operands = [f[f"operand{p.op.number}"] for p in sources if isinstance(p.op, Parameter)]
    return _code(name, f, product, target, f[f"operand{other.op.number}"], operands)


def can_compute(dot: Instruction, operand: Instruction, sources: Iterable[Instruction]) -> bool:
    """Whether there is code for a dot that computes an operand from these arrays."""
    return _product(dot, operand, sources) is not None


def _product(dot: Instruction, operand: Instruction, sources: Iterable[Instruction]) -> Matvec | None:
    """Returns the product as the computed matrix times a few vectors; None if there is no code for it."""
    op = dot.op
    assert isinstance(op, Dot)
    spec, is_lhs = matmul_spec(op, dot), dot.operands[0] is operand
    if spec is None or spec.batch * spec.m * spec.n * spec.k == 0 or spec.is_complex:
        return None
    spec = spec.transposed() if is_lhs else spec
    if spec.m > MAX_VECTORS or spec.n < 2 * MAX_VECTORS:
        return None
    try:
        accumulator(spec)
    except ValueError:
        return None
    computed = computed_operand(operand, _roles(op, operand, is_lhs), {source: k for k, source in enumerate(sources)})
    if computed.contiguous is None:
        return None
    return _matvec(spec, computed)


def _roles(op: Dot, operand: Instruction, is_lhs: bool) -> Roles:
    free = op.free(operand.shape.rank, is_lhs)
    if is_lhs:
        return op.lhs_batch_dims, free, op.lhs_contracting_dims
    return op.rhs_batch_dims, free, op.rhs_contracting_dims


def _matvec(spec: MatmulSpec, computed: ComputedOperand) -> Matvec:
    (a0, a1, a2), (c0, c1, c2) = spec.lhs_strides, spec.out_strides
    by_rows = computed.contiguous is computed.contracted
    matrix = Matrix(spec.rhs_type, *((0, 1) if by_rows else (1, 0)))
    vectors, out = Matrix(spec.lhs_type, a2, a1), Matrix(spec.out_type, c2, c1)
    return Matvec(spec.batch, spec.n, spec.k, spec.m, matrix, vectors, out, (0, a0, c0), computed)


def _code(
    name: str, f: KernelFunction, p: Matvec, target: Target, vectors: Value, arrays: Sequence[Value]
) -> KernelCode:
    """Completes the entry, which runs tasks that each have a share of the rows."""
    sums = _sums(p)
    vector = type_of(sums.element, target.vector_bytes * 8 // sums.bits)
    shares = p.shares(vector, target)
    on = f.threads_if(target.is_worth_threads(p.batch * p.m * p.k * MULTIPLY_ADD_COST))
    f.run_chunks(f"{name}.task", f.pack(vectors, f["result0"], *arrays), p.batch * shares, on)
    return code_of(name, [p.task(f"{name}.task", vector, shares), f])


def _sums(p: Matvec) -> Type:
    strides = (0, 0, 0)
    return accumulator(MatmulSpec(1, 1, 1, 1, p.matrix.type, p.vectors.type, p.out.type, strides, strides, strides))
