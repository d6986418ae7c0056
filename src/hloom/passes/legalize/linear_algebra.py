"""linear-algebra-to-lapack: cholesky and triangular-solve as calls of LAPACK and BLAS (spec 13, 114)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hloom.ir import Instruction, Module
from hloom.ops.attributes import ComparisonDirection, CustomCallApiVersion, Transpose
from hloom.ops.broadcast import Iota
from hloom.ops.compare import Compare
from hloom.ops.custom_call import CustomCall
from hloom.ops.linear_algebra import Cholesky, TriangularSolve
from hloom.ops.select import Select
from hloom.passes.legalize.eigenvectors import expanded_geev
from hloom.passes.op_builder import Expanders, OpBuilder, expand_all
from hloom.shape import Shape
from hloom.system.records import record
from hloom.types import PrimitiveType

_LETTERS = {PrimitiveType.F32: "s", PrimitiveType.F64: "d", PrimitiveType.C64: "c", PrimitiveType.C128: "z"}
_TRANSPOSE = {Transpose.NO_TRANSPOSE: "N", Transpose.TRANSPOSE: "T", Transpose.ADJOINT: "C"}


@record
class LinearAlgebraToLapack:
    """Before: cholesky, triangular-solve. After: custom calls of `lapack_spotrf_ffi`, `lapack_strsm_ffi`, or their
    variants for other types. Before: JAX's custom call `lapack_sgeev_ffi`. After: LAPACK's routine, and the conversion
    of its results.

    The other triangle of a Cholesky factor is set to zero, and the factors of matrices that have none to NaN. Narrow
    floats are computed in f32.
    """

    name: ClassVar[str] = "linear-algebra-to-lapack"
    operations: ClassVar[tuple[type, ...]] = (Cholesky, TriangularSolve, CustomCall)

    def run(self, module: Module) -> int:
        """Expands the instructions; returns their number."""
        return expand_all(module, _EXPANDERS)


_EXPANDERS = Expanders()
_EXPANDERS.add(CustomCall, expanded_geev)


@_EXPANDERS.rule(Cholesky)
def _cholesky(op: Cholesky, build: OpBuilder, old: Instruction, _: Module) -> Instruction:
    a = _computable(build, old.operands[0])
    rank = a.shape.rank
    info_shape = Shape.array(PrimitiveType.S32, a.shape.dimensions[:-2])
    both = Shape.tuple_of([a.shape.without_layout(), info_shape])
    call = _call(build, "potrf", [a], both, uplo="L" if op.lower else "U")
    factor, info = build.element(call, 0), build.element(call, 1)
    zero, nan = build.constant(0, a.shape.element_type), build.constant(np.nan, a.shape.element_type)
    zeros, nans = build.broadcast(zero, a.shape), build.broadcast(nan, a.shape)
    indices = a.shape.with_element_type(PrimitiveType.S32).without_layout()
    row, column = (build(Iota(iota_dimension=rank - k), shape=indices) for k in (2, 1))
    is_inside = build(Compare(direction=ComparisonDirection.GE if op.lower else ComparisonDirection.LE), row, column)
    no_error = build.broadcast(build.constant(0, PrimitiveType.S32), info_shape)
    succeeded = build(Compare(direction=ComparisonDirection.EQ), info, no_error)
    triangle = build(Select(), is_inside, factor, zeros)
    result = build(Select(), build.broadcast(succeeded, a.shape, tuple(range(rank - 2))), triangle, nans)
    return build.convert(result, old.shape.element_type)


@_EXPANDERS.rule(TriangularSolve)
def _triangular_solve(op: TriangularSolve, build: OpBuilder, old: Instruction, _: Module) -> Instruction:
    a, b = (_computable(build, operand) for operand in old.operands)
    attributes = {
        "side": "L" if op.left_side else "R",
        "uplo": "L" if op.lower else "U",
        "trans_x": _TRANSPOSE[op.transpose_a],
        "diag": "U" if op.unit_diagonal else "N",
    }
    return build.convert(_call(build, "trsm", [a, b], b.shape.without_layout(), **attributes), old.shape.element_type)


def _computable(build: OpBuilder, operand: Instruction) -> Instruction:
    """Converts the operand to f32 unless LAPACK supports its type."""
    is_there = operand.shape.element_type in _LETTERS
    return operand if is_there else build.convert(operand, PrimitiveType.F32)


def _call(build: OpBuilder, name: str, operands: list[Instruction], shape: Shape, **characters: str) -> Instruction:
    letter = _LETTERS[operands[0].shape.element_type]
    op = CustomCall(target_name=f"lapack_{letter}{name}_ffi", api_version=CustomCallApiVersion.API_VERSION_TYPED_FFI)
    call = build(op, *operands, shape=shape)
    call.backend_config = "{" + ", ".join(f"{key} = {ord(value)} : ui8" for key, value in characters.items()) + "}"
    return call
