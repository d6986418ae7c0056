"""What MPI reduces with: its own operations where they are XLA's, else operations that hloom compiles."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hloom.ir import Computation
from hloom.monoids import monoid_of
from hloom.runtime.python_api import c_address
from hloom.types import PrimitiveType

_TYPES_BY_SIZE = {1: "UINT8_T", 2: "UINT16_T", 4: "UINT32_T", 8: "UINT64_T", 16: "C_DOUBLE_COMPLEX"}
"""MPI's types of so many bytes, by which elements travel that MPI has no type for."""


@dataclass(frozen=True)
class Reduction:
    """How MPI reduces arrays: its operation, and its type of an element."""

    op: Any
    type: Any
    keep_alive: tuple[Any, ...] = ()
    """What has to live as long as the operation."""


MakeReduction = Callable[[str, PrimitiveType], "tuple[int, Any] | None"]
"""Makes a function `void (given, held, int *length, type)` that reduces arrays by an operation on elements of a type.

It gives the function's address, and what has to live as long; None where it has no code for that.
"""


def no_reduction(opcode: str, element_type: PrimitiveType) -> None:
    """What a backend makes that has no code."""


def reduction_of(
    computation: Computation, element_type: PrimitiveType, make_reduction: MakeReduction
) -> Reduction | None:
    """The reduction of a computation that applies one associative and commutative operation; None for any other."""
    monoid = monoid_of(computation)
    if monoid is None:
        return None
    return _mpi_operation(element_type, monoid.opcode) or _compiled_operation(
        element_type, monoid.opcode, make_reduction
    )


def _mpi_operation(element_type: PrimitiveType, opcode: str) -> Reduction | None:
    """MPI's own operation. Of floats MPI may lose a NaN in a maximum; of predicates a sum is an or."""
    from mpi4py import MPI

    kind = element_type.dtype.kind if element_type.dtype.isbuiltin == 1 else ""
    if not kind or (kind == "f" and element_type.bits < 32):
        return None
    table = {
        "b": {"add": MPI.LOR, "or": MPI.LOR, "multiply": MPI.LAND, "and": MPI.LAND, "xor": MPI.LXOR},
        "f": {"add": MPI.SUM, "multiply": MPI.PROD},
        "c": {"add": MPI.SUM},
        "i": {
            "add": MPI.SUM, "multiply": MPI.PROD, "maximum": MPI.MAX, "minimum": MPI.MIN,
            "and": MPI.BAND, "or": MPI.BOR, "xor": MPI.BXOR,
        },
    }  # fmt: skip
    op = table["i" if kind == "u" else kind].get(opcode)
    return None if op is None else Reduction(op, MPI.Datatype.fromcode(element_type.dtype.char))


@functools.cache
def _compiled_operation(element_type: PrimitiveType, opcode: str, make_reduction: MakeReduction) -> Reduction | None:
    """An operation of MPI's whose code hloom makes."""
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
    """An array as mpi4py takes it: bytes, and the type that says what they are."""
    return [array.reshape(-1).view(np.uint8), (array.size, 0), reduction.type]


_FUNCTIONS = (
    "MPI_Op_create", "MPI_Test", "MPI_Iallreduce", "MPI_Iallgather", "MPI_Ireduce_scatter_block", "MPI_Ialltoall",
    "MPI_Ialltoallv", "MPI_Ibcast", "MPI_Isend", "MPI_Irecv",
)  # fmt: skip


@functools.cache
def mpi_functions() -> dict[str, int]:
    """The addresses of the functions of MPI's C interface; empty where the process does not show them."""
    from mpi4py import MPI

    try:
        library = ctypes.CDLL(MPI.__file__)
        return {name: c_address(getattr(library, name)) for name in _FUNCTIONS}
    except (OSError, AttributeError):
        return {}
