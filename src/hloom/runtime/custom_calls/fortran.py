"""Calls routines of SciPy's BLAS and LAPACK for each matrix of a batch.

SciPy exports its routines to Cython as C functions that take a pointer for every argument (`cython_lapack`,
`cython_blas`). A `RoutineCall` describes these arguments. Compiled programs make the calls themselves
(`backends/cpu/kernels/linear_algebra/routine.py`); `run` makes them for the interpreter. Fortran stores matrices column
by column, so the memory of a row-major matrix is its transpose.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any

import numpy as np

from hloom.errors import RunError
from hloom.system.python_api import python_function
from hloom.system.records import record
from hloom.values import Array


@record(slots=True)
class Matrices:
    """The memory of an operand or result: an array of `sizes` for each matrix of the batch, contiguously."""

    dtype: np.dtype[Any]
    sizes: tuple[int, ...]

    @property
    def elements(self) -> int:
        """The number of elements of a matrix."""
        return math.prod(self.sizes)

    @property
    def copy_elements(self) -> int:
        """The number of elements of a routine's copy, at least one column: some routines access it in any case."""
        return max(1, self.elements, *self.sizes)

    @property
    def byte_size(self) -> int:
        """The size of a matrix in bytes."""
        return self.dtype.itemsize * self.elements


@record(slots=True)
class ArrayArgument:
    """An array: an operand that is read, a result that is written, or a result that is initialised by an operand.

    With `columns` the routine gets a column-major copy: the operand is transposed into it, and it is transposed into
    the result. With `bounds` it gets a copy of an s32 operand that is clamped to them, because it uses the values as
    indices. With `finite` it is not called for a matrix of the operand with an infinity or a NaN, on which it may not
    end: all bits of the results are set, and the last argument, a status, is minus the number of this one, as LAPACK
    reports illegal values. With `factor` it is a status: where the routine reports no failure although there is a NaN
    on the diagonal of that result, as OpenBLAS does, its value is the number of the first one. The routine gets the
    address of element `offset`.
    """

    operand: int | None = None
    result: int | None = None
    columns: bool = False
    offset: int = 0
    bounds: tuple[int, int] | None = None
    finite: bool = False
    factor: int | None = None

    @property
    def is_copy(self) -> bool:
        """Whether the routine gets a copy rather than the program's memory."""
        return self.columns or self.bounds is not None


@record(slots=True)
class Workspace:
    """Scratch memory for the routine, in elements."""

    dtype: np.dtype[Any]
    size: int


@record(slots=True)
class Status:
    """The routine's status, an s32 that the target does not return.

    If it is not 0 all bits of this matrix's results are set: floats are NaN.
    """

    dtype = np.dtype(np.int32)
    size = 1


@record(slots=True)
class WorkspaceQuery:
    """Two arguments, a workspace and its size, which the routine reports when it is called with a length of -1."""

    dtype: np.dtype[Any]


Argument = np.generic | str | None | ArrayArgument | Workspace | Status
"""The referent of an argument's pointer: a number, a character, or memory; None is a null pointer."""


@record(slots=True)
class Refusal:
    """Refuses matrices of an operand with infinities or NaN: the result `status` has this value for them."""

    operand: int
    status: int
    value: int


@record(slots=True)
class RoutineCall:
    """A routine, called once for each of `count` matrices; `routine` includes the letter of the element type:
    `sgetrf`.
    """

    routine: str
    arguments: tuple[Argument, ...]
    operands: tuple[Matrices, ...]
    results: tuple[Matrices, ...]
    count: int

    @property
    def refusal(self) -> Refusal | None:
        """The matrices for which the routine is not called; None if it is called for all."""
        for number, argument in enumerate(self.arguments, 1):
            if isinstance(argument, ArrayArgument) and argument.finite:
                status = self.arguments[-1]
                assert isinstance(status, ArrayArgument)
                assert argument.operand is not None and status.result is not None
                return Refusal(argument.operand, status.result, -number)
        return None

    def matrices(self, argument: ArrayArgument) -> Matrices:
        """The matrices of an array argument, row-major as the operand and the result."""
        if argument.operand is not None:
            return self.operands[argument.operand]
        assert argument.result is not None
        return self.results[argument.result]


def run(call: RoutineCall, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    """Calls the routine on [count, ..] operands; returns its results as [count, ..]."""
    results = [np.zeros((call.count, *result.sizes), result.dtype) for result in call.results]
    sources = [
        np.ascontiguousarray(operand).reshape(call.count, *matrices.sizes)
        for operand, matrices in zip(operands, call.operands, strict=True)
    ]
    memory = [_in_memory(call, argument, sources, results) for argument in call.arguments]
    failed = _call_each(call, memory, sources)
    for argument, array in zip(call.arguments, memory, strict=True):
        if not isinstance(argument, ArrayArgument) or argument.result is None:
            continue
        if argument.columns and array is not None:
            columns = call.results[argument.result].sizes[::-1]
            elements = math.prod(columns)
            results[argument.result][...] = array[:, :elements].reshape(call.count, *columns).transpose(0, 2, 1)
        if argument.factor is not None:
            _report_nan(results[argument.result], results[argument.factor])
    for result in results if failed.any() else ():
        result.reshape(call.count, -1).view(np.uint8)[failed] = 0xFF
    if call.refusal is not None:
        results[call.refusal.status][failed] = call.refusal.value
    return tuple(results)


def _call_each(call: RoutineCall, memory: list[Array | None], operands: list[Array]) -> Array:
    """Calls the routine for each matrix of the batch that it takes; returns which of them it refuses or fails for."""
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
    failed: Array = np.zeros(call.count, bool)
    if call.refusal is not None:
        operand = operands[call.refusal.operand]
        failed = ~np.asarray(np.isfinite(operand).all(tuple(range(1, operand.ndim))))
    for k in np.flatnonzero(~failed).tolist():
        function(*[address + k * step for address, step in zip(addresses, strides, strict=True)])
        failed[k] = status is not None and status[0] != 0
    return failed


def _report_nan(status: Array, factors: Array) -> None:
    is_nan = np.isnan(np.diagonal(factors, axis1=-2, axis2=-1))
    found = (status == 0) & is_nan.any(-1)
    if found.any():
        status[found] = is_nan[found].argmax(-1) + 1


def _in_memory(call: RoutineCall, argument: Argument, operands: list[Array], results: list[Array]) -> Array | None:
    """The memory of an argument, for all calls, as Fortran takes it; None for a null pointer."""
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
    """Replaces workspace queries by workspaces of the sizes that the routine reports.

    A routine with nothing to do reports 1, and refuses less than a size of its matrices: none is less than these.
    """
    if not any(isinstance(argument, WorkspaceQuery) for argument in arguments):
        return tuple(argument for argument in arguments if not isinstance(argument, WorkspaceQuery))
    memory: list[Array | None] = []
    for argument in arguments:
        if isinstance(argument, (np.generic, str)):
            memory.append(_scalar(argument))
        else:
            # The routine only writes the first element of each workspace.
            memory.append(None if argument is None else np.zeros(16, np.complex128))
            if isinstance(argument, WorkspaceQuery):
                memory.append(_scalar(np.int32(-1)))
    function = _callable(routine_address(routine), len(memory))
    function(*[0 if array is None else array.ctypes.data for array in memory])
    queried, least = iter(memory), max([1, *(int(a) for a in arguments if isinstance(a, np.integer))])
    resolved: list[Argument] = []
    for argument in arguments:
        array = next(queried)
        if isinstance(argument, WorkspaceQuery):
            assert array is not None
            next(queried)
            size_reply = array.view(argument.dtype)[0].real
            # A size in single precision may have been rounded down.
            size = max(least, int(size_reply) if argument.dtype.kind in "iu" else int(np.nextafter(size_reply, np.inf)))
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
    """The address of a routine by its name with the letter of the element type, like `sgetrf`; RunError if there is
    none.
    """
    import scipy.linalg.cython_blas
    import scipy.linalg.cython_lapack

    for module in (scipy.linalg.cython_lapack, scipy.linalg.cython_blas):
        capsule = module.__pyx_capi__.get(name)
        if capsule is not None:
            get_name = python_function("PyCapsule_GetName", ctypes.c_char_p, ctypes.py_object)
            get_pointer = python_function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
            return int(get_pointer(capsule, get_name(capsule)))
    raise RunError(f"SciPy has no routine {name}")
