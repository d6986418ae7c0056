"""Routines of SciPy's BLAS and LAPACK: what one is given for each matrix of a batch, and where its code is.

SciPy publishes its routines for Cython as C functions that take a pointer for every argument (`cython_lapack`,
`cython_blas`). A `RoutineCall` says where these pointers point to. Compiled programs make the calls themselves
(`backends/cpu/kernels/routine.py`), `run` makes them for the interpreter. Fortran takes matrices column by column, so
the memory of a row-major matrix is its transpose.
"""

from __future__ import annotations

import ctypes
import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hloom.errors import RunError
from hloom.runtime.python_api import python_function
from hloom.values import Array


@dataclass(frozen=True, slots=True)
class Matrices:
    """The memory of an operand or result: an array of `sizes` for each matrix of the batch, one after the other."""

    dtype: np.dtype[Any]
    sizes: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.sizes)

    @property
    def copy_elements(self) -> int:
        """What a copy for the routine has: some work on a first column whether there is one or not."""
        return max(1, self.elements, *self.sizes)

    @property
    def byte_size(self) -> int:
        return self.dtype.itemsize * self.elements


@dataclass(frozen=True, slots=True)
class ArrayArgument:
    """An operand that is read where it lies, a result that is written, or a result that starts as an operand's copy.

    With `columns` it is memory of the routine's own, in which the matrix lies column by column: the operand is
    transposed into it, and it is transposed into the result. With `bounds` it is a copy of the operand, whose values,
    s32, are moved to the nearest within them: the routine takes them for indices. The routine gets the address of
    element `offset`.
    """

    operand: int | None = None
    result: int | None = None
    columns: bool = False
    offset: int = 0
    bounds: tuple[int, int] | None = None

    @property
    def is_copy(self) -> bool:
        """Whether it is memory of the routine's own."""
        return self.columns or self.bounds is not None


@dataclass(frozen=True, slots=True)
class Workspace:
    """Memory that the routine uses as it likes; so many elements."""

    dtype: np.dtype[Any]
    size: int


@dataclass(frozen=True, slots=True)
class Status:
    """Where the routine says how it went, where the target does not hand that on: an s32.

    If it is not 0 all bits of this matrix's results are set: floats are NaN.
    """

    dtype = np.dtype(np.int32)
    size = 1


@dataclass(frozen=True, slots=True)
class WorkspaceQuery:
    """Two arguments: a workspace of the size that the routine asks for when it is told a length of -1, and its size."""

    dtype: np.dtype[Any]


Argument = np.generic | str | None | ArrayArgument | Workspace | Status
"""What the pointer to an argument points to: a number, a character, or memory; None is a null pointer."""


@dataclass(frozen=True, slots=True)
class RoutineCall:
    """A routine, called once for each of `count` matrices; `routine` has the letter of the element type: `sgetrf`."""

    routine: str
    arguments: tuple[Argument, ...]
    operands: tuple[Matrices, ...]
    results: tuple[Matrices, ...]
    count: int

    def matrices(self, argument: ArrayArgument) -> Matrices:
        """What lies at a place; where `columns`, with rows and columns as operand and result have them."""
        if argument.operand is not None:
            return self.operands[argument.operand]
        assert argument.result is not None
        return self.results[argument.result]


def run(call: RoutineCall, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    """Calls the routine on [count, ..] operands; its results as [count, ..]."""
    results = [np.zeros((call.count, *result.sizes), result.dtype) for result in call.results]
    sources = [
        np.ascontiguousarray(operand).reshape(call.count, *matrices.sizes)
        for operand, matrices in zip(operands, call.operands, strict=True)
    ]
    memory = [_in_memory(call, argument, sources, results) for argument in call.arguments]
    addresses = [0 if array is None else array.ctypes.data for array in memory]
    strides = [
        array.strides[0] if isinstance(argument, ArrayArgument) and array is not None else 0
        for argument, array in zip(call.arguments, memory, strict=True)
    ]
    for index, argument in enumerate(call.arguments):
        if isinstance(argument, ArrayArgument):
            addresses[index] += argument.offset * call.matrices(argument).dtype.itemsize
    function = _callable(routine_address(call.routine), len(addresses))
    status = next((array for a, array in zip(call.arguments, memory, strict=True) if isinstance(a, Status)), None)
    failed = np.zeros(call.count, bool)
    for k in range(call.count):
        function(*[address + k * step for address, step in zip(addresses, strides, strict=True)])
        failed[k] = status is not None and status[0] != 0
    for argument, array in zip(call.arguments, memory, strict=True):
        if (
            isinstance(argument, ArrayArgument)
            and argument.columns
            and argument.result is not None
            and array is not None
        ):
            columns = call.results[argument.result].sizes[::-1]
            elements = math.prod(columns)
            results[argument.result][...] = array[:, :elements].reshape(call.count, *columns).transpose(0, 2, 1)
    for result in results if failed.any() else ():
        result.reshape(call.count, -1).view(np.uint8)[failed] = 0xFF
    return tuple(results)


def _in_memory(call: RoutineCall, argument: Argument, operands: list[Array], results: list[Array]) -> Array | None:
    """The argument of all calls as an array that lies in memory as Fortran takes it."""
    if isinstance(argument, (Workspace, Status)):
        return np.zeros(argument.size, argument.dtype)
    if not isinstance(argument, ArrayArgument):
        return None if argument is None else _scalar(argument)
    if argument.columns:
        matrices = call.matrices(argument)
        memory = np.zeros((call.count, matrices.copy_elements), matrices.dtype)
        if argument.operand is not None:
            transposed = operands[argument.operand].transpose(0, 2, 1)
            memory[:, : matrices.elements] = transposed.reshape(call.count, matrices.elements)
        return memory
    if argument.result is None:
        assert argument.operand is not None
        array = operands[argument.operand]
        return array if argument.bounds is None else np.clip(array, *argument.bounds)
    if argument.operand is not None:
        results[argument.result][...] = operands[argument.operand]
    return results[argument.result]


def with_workspaces(routine: str, arguments: tuple[Argument | WorkspaceQuery, ...]) -> tuple[Argument, ...]:
    """The arguments with workspaces of the size that the routine asks for."""
    if not any(isinstance(argument, WorkspaceQuery) for argument in arguments):
        return tuple(argument for argument in arguments if not isinstance(argument, WorkspaceQuery))
    memory: list[Array | None] = []
    for argument in arguments:
        if isinstance(argument, (np.generic, str)):
            memory.append(_scalar(argument))
        else:
            # Nothing else is looked at but the first element of the workspaces.
            memory.append(None if argument is None else np.zeros(16, np.complex128))
            if isinstance(argument, WorkspaceQuery):
                memory.append(_scalar(np.int32(-1)))
    function = _callable(routine_address(routine), len(memory))
    function(*[0 if array is None else array.ctypes.data for array in memory])
    queried = iter(memory)
    resolved: list[Argument] = []
    for argument in arguments:
        array = next(queried)
        if isinstance(argument, WorkspaceQuery):
            assert array is not None
            next(queried)
            size_reply = array.view(argument.dtype)[0].real
            # A size in single precision may have been rounded down.
            size = max(1, int(size_reply) if argument.dtype.kind in "iu" else int(np.nextafter(size_reply, np.inf)))
            resolved += [Workspace(argument.dtype, size), np.int32(size)]
        else:
            resolved.append(argument)
    return tuple(resolved)


def _scalar(value: np.generic | str) -> Array:
    return np.frombuffer(value.encode(), np.uint8) if isinstance(value, str) else np.array([value])


@functools.cache
def _callable(address: int, count: int) -> Any:
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count)(address)


@functools.cache
def routine_address(name: str) -> int:
    """The address of a routine by its name with the letter of the element type, like `sgetrf`."""
    import scipy.linalg.cython_blas
    import scipy.linalg.cython_lapack

    for module in (scipy.linalg.cython_lapack, scipy.linalg.cython_blas):
        capsule = module.__pyx_capi__.get(name)  # type: ignore[attr-defined]
        if capsule is not None:
            get_name = python_function("PyCapsule_GetName", ctypes.c_char_p, ctypes.py_object)
            get_pointer = python_function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
            return int(get_pointer(capsule, get_name(capsule)))
    raise RunError(f"SciPy has no routine {name}")
