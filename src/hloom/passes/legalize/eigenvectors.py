"""Expansion of JAX's custom call for eigenvectors of general matrices into LAPACK's routine and HLO.

For real matrices LAPACK returns real arrays, in which a pair of conjugate eigenvectors has two columns
with its real and imaginary parts.
"""

from __future__ import annotations

import re

from hloom.ir import Instruction, Module
from hloom.ops.attributes import ComparisonDirection, SliceDimension
from hloom.ops.compare import Compare
from hloom.ops.custom_call import CustomCall
from hloom.ops.elementwise_binary import Complex
from hloom.ops.elementwise_unary import Negate
from hloom.ops.pad import Concatenate
from hloom.ops.select import Select
from hloom.ops.slice import Slice
from hloom.passes.op_builder import OpBuilder
from hloom.runtime.custom_calls.lapack import unpacked_geev
from hloom.runtime.custom_calls.registry import REGISTERED, binding_of
from hloom.shape import Shape


def expanded_geev(op: CustomCall, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
    """Expands a custom call of `lapack_sgeev_ffi` or its variants for other types; returns None for other calls."""
    target = re.fullmatch(r"lapack_([sdcz])geev_ffi", op.target_name)
    if target is None or op.target_name in REGISTERED:
        return None
    binding_of(old, unpacked_geev(target[1]))
    (a,) = old.operands
    shapes = [s.without_layout() for s in old.shape.elements]
    if not a.shape.element_type.is_complex:
        shapes[2:4] = [a.shape.without_layout()] * 2
    call = build(op.replace(target_name=f"lapack_{target[1]}geev"), a, shape=Shape.tuple_of(shapes))
    call.backend_config = old.backend_config
    *values, left, right, info = build.elements(call)
    if not a.shape.element_type.is_complex:
        left, right = (_unpacked(build, values[1], vectors) for vectors in (left, right))
    return build.tuple(*values, left, right, info)


def _unpacked(build: OpBuilder, imaginary: Instruction, vectors: Instruction) -> Instruction:
    """Returns complex eigenvectors from LAPACK's real columns and the imaginary parts of the eigenvalues.

    Of a conjugate pair of eigenvalues the one with the positive imaginary part comes first.
    """
    shape = vectors.shape
    along = (*range(shape.rank - 2), shape.rank - 1)
    zero = build.broadcast(build.constant(0, imaginary.shape.element_type), imaginary.shape)
    is_first, is_second = (
        build.broadcast(build(Compare(direction=direction), imaginary, zero), shape, along)
        for direction in (ComparisonDirection.GT, ComparisonDirection.LT)
    )
    zeros = build.broadcast(build.constant(0, shape.element_type), shape)
    own = build(Select(), is_second, build(Negate(), vectors), zeros)
    imag = build(Select(), is_first, _rotated(build, vectors, 1), own)
    return build(Complex(), build(Select(), is_second, _rotated(build, vectors, -1), vectors), imag)


def _rotated(build: OpBuilder, vectors: Instruction, by: int) -> Instruction:
    """Rotates the columns to the left by `by`: 1 moves each column to the index of the previous one."""
    sizes = vectors.shape.dimensions
    at = by % sizes[-1] if sizes[-1] else 0
    if not at:
        return vectors
    whole = [SliceDimension(0, size, 1) for size in sizes[:-1]]
    parts = [build(Slice(slice=(*whole, SliceDimension(*ends, 1))), vectors) for ends in ((at, sizes[-1]), (0, at))]
    return build(Concatenate(dimension=len(sizes) - 1), *parts)
