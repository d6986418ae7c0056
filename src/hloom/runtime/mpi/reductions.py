"""Reductions for MPI: its predefined operations where they agree with XLA's, otherwise operations that hloom
compiles.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from hloom.analysis.monoids import monoid_of
from hloom.ir import Computation
from hloom.ops.elementwise_binary import Add, And, Maximum, Minimum, Monoid, Multiply, Or, Xor
from hloom.system.python_api import c_address
from hloom.system.records import record
from hloom.types import PrimitiveType

_TYPES_BY_SIZE = {1: "UINT8_T", 2: "UINT16_T", 4: "UINT32_T", 8: "UINT64_T", 16: "C_DOUBLE_COMPLEX"}
"""MPI types by size in bytes, for element types that MPI does not have."""


@record
class Reduction:
    """The MPI operation and the MPI element type that reduce arrays."""

    op: Any
    type: Any
    keep_alive: tuple[Any, ...] = ()
    """Objects that must live as long as the operation."""


MakeReduction = Callable[[str, PrimitiveType], "tuple[int, Any] | None"]
"""Function that compiles `void (given, held, int *length, type)` for an opcode and an element type.

It returns the address of the code, and an object that keeps it alive; None if it has no code for the reduction.
"""


def no_reduction(opcode: str, element_type: PrimitiveType) -> None:
    """The `MakeReduction` of backends that compile no reductions: returns None."""


def reduction_of(
    computation: Computation, element_type: PrimitiveType, make_reduction: MakeReduction
) -> Reduction | None:
    """Returns the reduction of a computation that applies one associative and commutative operation; None for
    others.
    """
    monoid = monoid_of(computation)
    if monoid is None:
        return None
    return _mpi_operation(element_type, monoid) or _compiled_operation(element_type, monoid.opcode, make_reduction)


def _mpi_operation(element_type: PrimitiveType, monoid: type[Monoid]) -> Reduction | None:
    """MPI's predefined operation, if there is one.

    Floating-point maximum and minimum are excluded, because MPI may lose a NaN; the sum of predicates is a logical or.
    """
    from mpi4py import MPI

    kind = element_type.dtype.kind if element_type.dtype.isbuiltin == 1 else ""
    if not kind or (kind == "f" and element_type.bits < 32):
        return None
    table: dict[str, dict[type[Monoid], Any]] = {
        "b": {Add: MPI.LOR, Or: MPI.LOR, Multiply: MPI.LAND, And: MPI.LAND, Xor: MPI.LXOR},
        "f": {Add: MPI.SUM, Multiply: MPI.PROD},
        "c": {Add: MPI.SUM},
        "i": {
            Add: MPI.SUM, Multiply: MPI.PROD, Maximum: MPI.MAX, Minimum: MPI.MIN,
            And: MPI.BAND, Or: MPI.BOR, Xor: MPI.BXOR,
        },
    }  # fmt: skip
    op = table["i" if kind == "u" else kind].get(monoid)
    return None if op is None else Reduction(op, MPI.Datatype.fromcode(element_type.dtype.char))


@functools.cache
def _compiled_operation(element_type: PrimitiveType, opcode: str, make_reduction: MakeReduction) -> Reduction | None:
    """An MPI operation whose code hloom compiles; None if there is no code for it."""
    from mpi4py import MPI

    function, reduction = mpi_functions().get("MPI_Op_create"), make_reduction(opcode, element_type)
    if reduction is None or not function:
        return None
    op = MPI.Op()
    create = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(function)
    if create(reduction[0], 1, MPI._addressof(op)):
        return None
    return Reduction(op, getattr(MPI, _TYPES_BY_SIZE[element_type.byte_width]), reduction)


def as_mpi_buffer(array: np.ndarray[Any, Any], reduction: Reduction) -> list[Any]:
    """The buffer argument that mpi4py takes for an array: its bytes, counts, and the MPI type of its elements."""
    return [array.reshape(-1).view(np.uint8), (array.size, 0), reduction.type]


_FUNCTIONS = (
    "MPI_Op_create", "MPI_Test", "MPI_Iallreduce", "MPI_Iallgather", "MPI_Ireduce_scatter_block", "MPI_Ialltoall",
    "MPI_Ialltoallv", "MPI_Ibcast", "MPI_Isend", "MPI_Irecv",
)  # fmt: skip


@functools.cache
def mpi_functions() -> dict[str, int]:
    """The addresses of the functions of MPI's C interface by name; empty if the process does not export them."""
    from mpi4py import MPI

    try:
        library = ctypes.CDLL(MPI.__file__)
        return {name: c_address(getattr(library, name)) for name in _FUNCTIONS}
    except (OSError, AttributeError):
        return {}
