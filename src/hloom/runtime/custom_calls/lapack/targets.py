"""Targets of LAPACK routines: signatures, and functions that give the arguments of a routine for a `Batch`.

Operands are row-major, and LAPACK's matrices column-major: a matrix is transposed on its way in and out, unless there
is a call that computes the same from the transpose.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from hloom.runtime.custom_calls import fortran
from hloom.runtime.custom_calls.fortran import (
    Argument,
    ArrayArgument,
    Matrices,
    RoutineCall,
    Status,
    Workspace,
    WorkspaceQuery,
)
from hloom.runtime.custom_calls.signature import Attribute, Binding, Signature
from hloom.shape import Shape
from hloom.types import BY_DTYPE, PrimitiveType
from hloom.values import Array

TYPES = {"s": PrimitiveType.F32, "d": PrimitiveType.F64, "c": PrimitiveType.C64, "z": PrimitiveType.C128}
"""The first letters of the routines' names, by element type."""
_UNITARY = {"orgqr": "ungqr", "ormqr": "unmqr", "syevd": "heevd", "sytrd": "hetrd"}
"""Routines that have other names for complex types."""
INT = np.dtype(np.int32)

Arguments = tuple[int | Argument | WorkspaceQuery, ...]


class Batch:
    """A call of a target: its matrices, and its sizes and attributes by the names of the signature."""

    def __init__(self, binding: Binding) -> None:
        assert binding.type is not None
        self.dtype = binding.type.dtype
        self.real_dtype = np.empty(0, self.dtype).real.dtype
        self.is_complex = self.dtype.kind == "c"
        self.attributes = binding.attributes
        self.count = math.prod(binding.batch)
        self._binding = binding
        self._rank = len(binding.batch)

    @property
    def operands(self) -> tuple[Matrices, ...]:
        """The matrices of all operands."""
        return tuple(self._matrices(shape) for _, shape in self._binding.operands.values())

    @property
    def results(self) -> tuple[Matrices, ...]:
        """The matrices of all results."""
        return tuple(self._matrices(shape) for _, shape in self._binding.results.values())

    def _matrices(self, shape: Shape) -> Matrices:
        return Matrices(shape.element_type.dtype, shape.dimensions[self._rank :])

    def size(self, name: str) -> int:
        """The value of a size."""
        return self._binding.sizes[name]

    def sizes(self, names: str) -> tuple[int, ...]:
        """The values of sizes, whose names are separated by blanks."""
        return tuple(map(self.size, names.split()))

    def operand(self, name: str, bounds: tuple[int, int] | None = None) -> ArrayArgument:
        """An operand that is only read; with `bounds` its values are clamped to them."""
        return ArrayArgument(operand=self._binding.operands[name][0], bounds=bounds)

    def result(self, name: str) -> ArrayArgument:
        """A result that is only written."""
        return ArrayArgument(result=self._binding.results[name][0])

    def updated(self, operand: str, result: str, offset: int = 0) -> ArrayArgument:
        """A result that is initialised with an operand."""
        return ArrayArgument(self._binding.operands[operand][0], self._binding.results[result][0], offset=offset)

    def columns(self, operand: str | None, result: str | None) -> ArrayArgument:
        """A matrix in column-major order: a copy of an operand, a result, or both."""
        source = None if operand is None else self._binding.operands[operand][0]
        return ArrayArgument(source, None if result is None else self._binding.results[result][0], columns=True)

    def info(self, factor: str | None = None) -> ArrayArgument | Status:
        """The status of the routine: the result `info`, if the target has it; a NaN on the diagonal of a result
        `factor` is a failure.
        """
        if "info" not in self._binding.results:
            return Status()
        return replace(self.result("info"), factor=None if factor is None else self._binding.results[factor][0])

    def work(self) -> WorkspaceQuery:
        """A workspace whose size the routine reports."""
        return WorkspaceQuery(self.dtype)

    def real_work(self, size: int) -> tuple[Workspace, ...]:
        """The additional real workspace of routines for complex types."""
        return (Workspace(self.real_dtype, max(1, size)),) if self.is_complex else ()


Target = Callable[[Batch], Arguments]
_COUNTED = ("largest < 2**31",)
"""The limit of LAPACK's 32-bit integers."""
TARGETS: dict[str, tuple[Target, Signature]] = {}
_COMPLEX_ARRAYS: dict[str, str] = {}
"""The signatures of targets that differ for complex types."""


def target(
    name: str,
    arrays: str,
    complex_arrays: str | None = None,
    where: dict[str, str] | None = None,
    relations: tuple[str, ...] = (),
    **attributes: str | bool | range,
) -> Callable[[Target], Target]:
    """Declares the target of a LAPACK routine, with its signatures for real and for complex types."""

    def declare(function: Target) -> Target:
        kinds = {key: Attribute(options) for key, options in attributes.items()}
        TARGETS[name] = function, Signature(arrays, (), where or {}, (*relations, *_COUNTED), kinds)
        if complex_arrays is not None:
            _COMPLEX_ARRAYS[name] = complex_arrays
        return function

    return declare


def routine_name(name: str, letter: str) -> str:
    """The routine of a target for an element type: `sgetrf`, `cungqr`."""
    return letter + (_UNITARY.get(name, name) if letter in "cz" else name)


def signature_of(name: str, letter: str) -> Signature:
    """The signature of a target for one element type."""
    signature = TARGETS[name][1]
    arrays = _COMPLEX_ARRAYS.get(name, signature.text) if letter in "cz" else signature.text
    return dataclasses.replace(signature, text=arrays, types=(TYPES[letter],))


def call(name: str, operands: tuple[Array, ...], results: list[tuple[tuple[int, ...], Any]], config: str = "") -> Any:
    """Calls a target, with results of these shapes and element types."""
    letter = next(letter for letter, kind in TYPES.items() if kind.dtype == operands[0].dtype)
    shapes = [Shape.array(BY_DTYPE[np.dtype(dtype)], sizes) for sizes, dtype in results]
    given = [Shape.array(BY_DTYPE[operand.dtype], operand.shape) for operand in operands]
    binding = signature_of(name, letter).bind(name, given, Shape.tuple_of(shapes), config)
    found = fortran.run(routine_call(name, letter, binding), operands)
    return tuple(array.reshape(sizes) for array, (sizes, _) in zip(found, results, strict=True))


def routine_call(name: str, letter: str, binding: Binding) -> RoutineCall:
    """Returns the call of the routine of a target, with its workspaces."""
    batch = Batch(binding)
    arguments = tuple(np.int32(a) if isinstance(a, int) else a for a in TARGETS[name][0](batch))
    routine = routine_name(name, letter)
    return RoutineCall(routine, fortran.with_workspaces(routine, arguments), batch.operands, batch.results, batch.count)
