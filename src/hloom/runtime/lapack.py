"""The linear algebra targets that JAX emits for a CPU (`lapack_sgetrf_ffi` and its kin), through SciPy's LAPACK.

A target is a function of a `Batch` that gives the arguments of its routine. Operands come row-major, LAPACK takes
columns: a matrix is transposed on its way in and out, unless the routine has a mirror image that does the same with the
transpose. As LAPACK has it, pivots count from 1 and `info` is an s32 for each matrix, not zero where it failed; the
programs that JAX lowers look at it and fill failures with NaN.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloom.errors import RuleError
from hloom.runtime import fortran
from hloom.runtime.custom_calls import CustomCallSite, declare_routine, declare_target
from hloom.runtime.fortran import Argument, Asked, Matrices, Place, RoutineCall, Workspace
from hloom.shape import Shape
from hloom.types import BY_DTYPE
from hloom.values import Array

_DTYPES = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
_UNITARY = {"orgqr": "ungqr", "ormqr": "unmqr", "syevd": "heevd", "sytrd": "hetrd"}
"""Routines that have other names for complex types."""
_INT = np.dtype(np.int32)
NOT_FINITE = -4
"""The info of geev for a matrix with infinities or NaN: LAPACK would not end."""

Sizes = tuple[int, ...]
Arguments = tuple[int | Argument | Asked, ...]


class Batch:
    """One call of a target: its matrices, and what else it takes and gives for each of them.

    The methods that give a place say which array of which type is expected there, in the call's own if none is named.
    """

    def __init__(self, name: str, letter: str, site: CustomCallSite, rank: int) -> None:
        self.name = name
        self.dtype = np.dtype(_DTYPES[letter])
        self.real_dtype = np.empty(0, self.dtype).real.dtype
        self.is_complex = letter in "cz"
        self._attributes = site.attributes
        self._target = site.target_name
        shapes = tuple(site.shape.leaves())
        if not site.operand_shapes or not all(shape.is_array for shape in (*site.operand_shapes, *shapes)):
            self._reject("takes and gives arrays")
        first = site.operand_shapes[0].dimensions
        if len(first) < rank:
            self._reject(f"takes arrays of at least {rank} dimensions, got {site.operand_shapes[0]}")
        self._dimensions = first[: len(first) - rank]
        self.count = math.prod(self._dimensions)
        self.operands = tuple(self._matrices(shape, "operand") for shape in site.operand_shapes)
        self.results = tuple(self._matrices(shape, "result") for shape in shapes)

    def _reject(self, message: str) -> None:
        raise RuleError("custom-call", "CUSTOMCALL-5", f"{self._target!r} {message}")

    def _matrices(self, shape: Shape, role: str) -> Matrices:
        rank = len(self._dimensions)
        if shape.dimensions[:rank] != self._dimensions:
            self._reject(f"has batches of {list(self._dimensions)} matrices, got the {role} {shape}")
        return Matrices(shape.element_type.dtype, shape.dimensions[rank:])

    def _check(self, role: str, arrays: Sequence[Matrices], number: int, sizes: Sizes, dtype: Any) -> None:
        wanted = Matrices(np.dtype(dtype or self.dtype), sizes)
        if number >= len(arrays) or arrays[number] != wanted:
            got = _shape(arrays[number]) if number < len(arrays) else "nothing"
            self._reject(f"has {_shape(wanted)} as {role} {number} of each matrix, got {got}")

    def sizes(self, number: int) -> tuple[int, int]:
        """Rows and columns of an operand."""
        if number >= len(self.operands) or len(self.operands[number].sizes) != 2:
            self._reject(f"has matrices as operand {number}")
        m, n = self.operands[number].sizes
        return m, n

    def order(self, number: int) -> int:
        """The rows, and columns, of a square operand."""
        m, n = self.sizes(number)
        if m != n:
            self._reject(f"takes square matrices, got {m} x {n}")
        return n

    def length(self, number: int) -> int:
        """The size of an operand that is a vector."""
        if number >= len(self.operands) or len(self.operands[number].sizes) != 1:
            self._reject(f"has vectors as operand {number}")
        return self.operands[number].sizes[0]

    def operand(self, number: int, *sizes: int, dtype: Any = None) -> Place:
        """An operand to be read only."""
        self._check("operand", self.operands, number, sizes, dtype)
        return Place(operand=number)

    def result(self, number: int, *sizes: int, dtype: Any = None) -> Place:
        self._check("result", self.results, number, sizes, dtype)
        return Place(result=number)

    def changed(self, operand: int, result: int, *sizes: int, dtype: Any = None, offset: int = 0) -> Place:
        """A result that starts as a copy of an operand."""
        self._check("operand", self.operands, operand, sizes, dtype)
        self._check("result", self.results, result, sizes, dtype)
        return Place(operand, result, offset=offset)

    def columns(self, operand: int | None, result: int | None, m: int, n: int) -> Place:
        """A matrix in Fortran's order: an operand's copy, a result, or both."""
        if operand is not None:
            self._check("operand", self.operands, operand, (m, n), None)
        if result is not None:
            self._check("result", self.results, result, (m, n), None)
        return Place(operand, result, columns=True)

    def info(self, number: int | None = None) -> Place | Workspace:
        """Where the routine says how it went; memory of its own where the target does not pass that on."""
        return Workspace(_INT, 1) if number is None else self.result(number, dtype=_INT)

    def attribute(self, name: str, default: str) -> str:
        """A character that the call holds as its code, as in `uplo = 76 : ui8`."""
        value = self._attributes.get(name, ord(default))
        return chr(value) if isinstance(value, int) else str(value)

    def flag(self, name: str, default: bool) -> bool:
        return bool(self._attributes.get(name, default))

    def number(self, name: str, default: int) -> int:
        return int(self._attributes.get(name, default))

    def work(self) -> Asked:
        return Asked(self.dtype)

    def real_work(self, size: int) -> tuple[Workspace, ...]:
        """The real workspace that complex routines take in addition."""
        return (Workspace(self.real_dtype, max(1, size)),) if self.is_complex else ()


def _shape(matrices: Matrices) -> Shape:
    return Shape.array(BY_DTYPE[matrices.dtype], matrices.sizes)


Target = Callable[[Batch], Arguments]
_TARGETS: dict[str, tuple[Target, int]] = {}


def _target(name: str, rank: int = 2) -> Callable[[Target], Target]:
    """Declares the target of a LAPACK routine; `rank` is that of its first operand without batch dimensions."""

    def declare(function: Target) -> Target:
        _TARGETS[name] = (function, rank)
        return function

    return declare


def routine_name(name: str, letter: str) -> str:
    """The routine of a target for an element type: `sgetrf`, `cungqr`."""
    return letter + (_UNITARY.get(name, name) if letter in "cz" else name)


@functools.cache
def declare() -> None:
    """Declares all targets of this module; once."""
    for letter in _DTYPES:
        for name in _TARGETS:
            plan = functools.partial(_routine_call, name, letter)
            if name == "geev":
                call = functools.partial(_geev_target, letter)
                declare_target(f"lapack_{letter}geev_ffi", call, wants_site=True)
                declare_routine(f"lapack_{letter}geev", plan)  # what compiled programs make of it
            else:
                declare_routine(f"lapack_{routine_name(name, letter)}_ffi", plan)


def call(name: str, operands: tuple[Array, ...], results: list[tuple[tuple[int, ...], Any]]) -> tuple[Array, ...]:
    """Calls a target that has no attributes, for results of these shapes and types."""
    letter = next(letter for letter, dtype in _DTYPES.items() if dtype == operands[0].dtype)
    return _call(name, letter, {}, operands, results)


def _call(name: str, letter: str, attributes: dict[str, Any], operands: tuple[Array, ...], results: Any) -> Any:
    shapes = [Shape.array(BY_DTYPE[np.dtype(dtype)], sizes) for sizes, dtype in results]
    given = tuple(Shape.array(BY_DTYPE[operand.dtype], operand.shape) for operand in operands)
    site = CustomCallSite(name, given, Shape.tuple_of(shapes), "", attributes)
    found = fortran.run(_routine_call(name, letter, site), operands)
    return tuple(array.reshape(sizes) for array, (sizes, _) in zip(found, results, strict=True))


def _routine_call(name: str, letter: str, site: CustomCallSite) -> RoutineCall:
    function, rank = _TARGETS[name]
    batch = Batch(name, letter, site, rank)
    arguments = tuple(np.int32(a) if isinstance(a, int) else a for a in function(batch))
    routine = routine_name(name, letter)
    return RoutineCall(routine, fortran.with_workspaces(routine, arguments), batch.operands, batch.results, batch.count)


@_target("potrf")
def _potrf(b: Batch) -> Arguments:
    """The mirror image: the transpose's other triangle, and conj(a) = conj(l) conj(l)^H."""
    n = b.order(0)
    return ("U" if b.attribute("uplo", "L") == "L" else "L", n, b.changed(0, 0, n, n), max(1, n), b.info(1))


@_target("trsm")
def _trsm(b: Batch) -> Arguments:
    """The mirror image: op(a) x = b becomes x^T op(a^T) = b^T, on the other side with the other triangle."""
    order, (m, n) = b.order(0), b.sizes(1)
    is_left = b.attribute("side", "L") == "L"
    sizes = (order, n) if is_left else (m, order)
    triangle = "U" if b.attribute("uplo", "L") == "L" else "L"
    kind = b.attribute("trans_x", "N"), b.attribute("diag", "N")
    a, x = b.operand(0, order, order), b.changed(1, 0, *sizes)
    return ("R" if is_left else "L", triangle, *kind, n, m, b.dtype.type(1), a, max(1, order), x, max(1, n))


@_target("getrf")
def _getrf(b: Batch) -> Arguments:
    m, n = b.sizes(0)
    return (m, n, b.columns(0, 0, m, n), max(1, m), b.result(1, min(m, n), dtype=_INT), b.info(2))


@_target("laswp", rank=1)
def _laswp(b: Batch) -> Arguments:
    """A vector with its elements swapped: of a matrix that getrf changed, the rows that are where now."""
    m, k = b.length(0), b.length(1)
    return (1, b.changed(0, 0, m), max(1, m), 1, k, b.operand(1, k, dtype=_INT), 1)


@_target("geqrf")
def _geqrf(b: Batch) -> Arguments:
    m, n = b.sizes(0)
    return (m, n, b.columns(0, 0, m, n), max(1, m), b.result(1, min(m, n)), b.work(), b.info())


@_target("geqp3")
def _geqp3(b: Batch) -> Arguments:
    m, n = b.sizes(0)
    pivots, tau = b.changed(1, 1, n, dtype=_INT), b.result(2, min(m, n))
    return (m, n, b.columns(0, 0, m, n), max(1, m), pivots, tau, b.work(), *b.real_work(2 * n), b.info())


@_target("orgqr")
def _orgqr(b: Batch) -> Arguments:
    (m, n), k = b.sizes(0), b.length(1)
    return (m, n, k, b.columns(0, 0, m, n), max(1, m), b.operand(1, k), b.work(), b.info())


@_target("ormqr")
def _ormqr(b: Batch) -> Arguments:
    (rows, columns), k, (m, n) = b.sizes(0), b.length(1), b.sizes(2)
    is_left = b.flag("left", True)
    adjoint = "C" if b.is_complex else "T"
    kind = ("L" if is_left else "R", adjoint if b.flag("transpose", False) else "N")
    a, c = b.columns(0, None, m if is_left else n, columns), b.columns(2, 0, m, n)
    return (*kind, m, n, k, a, max(1, rows), b.operand(1, k), c, max(1, m), b.work(), b.info())


@_target("gesdd")
def _gesdd(b: Batch) -> Arguments:
    (m, n), mode = b.sizes(0), b.attribute("mode", "A")
    k = min(m, n)
    real = 7 * k if mode == "N" else k * max(5 * k + 7, 2 * max(m, n) + 2 * k + 1)
    return (mode, *_svd(b), b.work(), *b.real_work(real), Workspace(_INT, max(1, 8 * k)), b.info(4))


@_target("gesvd")
def _gesvd(b: Batch) -> Arguments:
    mode = b.attribute("mode", "A")
    return (mode, mode, *_svd(b), b.work(), *b.real_work(5 * min(b.sizes(0))), b.info(4))


def _svd(b: Batch) -> tuple[int | Place | Workspace, ...]:
    """Of tall matrices, which LAPACK takes faster: of a wide one the mirror image, a^T = (vt)^T s u^T."""
    m, n = b.sizes(0)
    k = min(m, n)
    mode, s = b.attribute("mode", "A"), b.result(1, k, dtype=b.real_dtype)
    rows, columns = (k, k) if mode == "S" else (m, n)
    is_tall = m > n
    if mode == "N":
        u, vt = Place(result=2), Place(result=3)  # of any shape
    elif is_tall:
        u, vt = b.columns(None, 2, m, rows), b.columns(None, 3, columns, n)
    else:
        u, vt = b.result(2, m, rows), b.result(3, columns, n)
    if is_tall:
        return (m, n, b.columns(0, 0, m, n), m, s, u, m, vt, max(1, columns))
    return (n, m, b.changed(0, 0, m, n), max(1, n), s, vt, max(1, n), u, max(1, rows))


@_target("syevd")
def _syevd(b: Batch) -> Arguments:
    n = b.order(0)
    kind = b.attribute("mode", "V"), b.attribute("uplo", "L")
    real = (Asked(b.real_dtype),) if b.is_complex else ()
    w = b.result(1, n, dtype=b.real_dtype)
    return (*kind, n, b.columns(0, 0, n, n), max(1, n), w, b.work(), *real, Asked(_INT), b.info(2))


@_target("geev")
def _geev(b: Batch) -> Arguments:
    """The vectors as LAPACK has them: a conjugate pair of a real matrix shares two columns, re and im."""
    n, parts = b.order(0), 1 if b.is_complex else 2
    wanted = b.attribute("compute_left", "V"), b.attribute("compute_right", "V")
    eigenvalues = [b.result(k, n) for k in range(parts)]
    left, right = (b.columns(None, parts + k, n, n) for k in range(2))
    vectors = (left, max(1, n), right, max(1, n))
    a = b.columns(0, None, n, n)
    return (*wanted, n, a, max(1, n), *eigenvalues, *vectors, b.work(), *b.real_work(2 * n), b.info(parts + 2))


def _geev_target(letter: str, site: CustomCallSite, a: Array) -> tuple[Array, ...]:
    finite = np.asarray(np.isfinite(a).all(axis=(-1, -2)))
    given = np.where(finite[..., None, None], a, 0).astype(a.dtype)
    parts = 1 if letter in "cz" else 2
    results = [(a.shape[:-1], a.dtype)] * parts + [(a.shape, a.dtype)] * 2 + [(a.shape[:-2], _INT)]
    *eigenvalues, left, right, info = _call("geev", letter, site.attributes, (given,), results)
    info = np.where(finite, info, np.int32(NOT_FINITE))
    if parts == 2:
        left, right = (_unpack_pairs(eigenvalues[1], vectors) for vectors in (left, right))
    return (*eigenvalues, left, right, info)


def _unpack_pairs(imaginary: Array, vectors: Array) -> Array:
    """Complex eigenvectors from LAPACK's real form, in which a conjugate pair shares two columns: re, im."""
    complex_vectors = vectors.astype(np.result_type(vectors.dtype, np.complex64))
    following = np.roll(vectors, -1, axis=-1)
    first = np.zeros(imaginary.shape, bool)
    for k in range(imaginary.shape[-1] - 1):
        first[..., k] = (imaginary[..., k] != 0) & ~(first[..., k - 1] if k else False)
    pairs = complex_vectors + 1j * following.astype(complex_vectors.dtype)
    starts, ends = first[..., None, :], np.roll(first, 1, axis=-1)[..., None, :]
    complex_vectors = np.where(starts, pairs, complex_vectors)
    return np.where(ends, np.roll(pairs, 1, axis=-1).conj(), complex_vectors)


@_target("gees")
def _gees(b: Batch) -> Arguments:
    n, parts = b.order(0), 1 if b.is_complex else 2
    eigenvalues = [b.result(2 + k, n) for k in range(parts)]
    a, vectors = b.columns(0, 0, n, n), b.columns(None, 1, n, n)
    places: Arguments = (*eigenvalues, vectors, max(1, n), b.work(), *b.real_work(n), Workspace(_INT, max(1, n)))
    selected = b.result(2 + parts, dtype=_INT)
    return (b.attribute("mode", "V"), "N", None, n, a, max(1, n), selected, *places, b.info(3 + parts))


@_target("gehrd")
def _gehrd(b: Batch) -> Arguments:
    n = b.order(0)
    tau = b.result(1, max(n - 1, 0))
    low, high = b.number("low", 1), b.number("high", n)
    return (n, low, high, b.columns(0, 0, n, n), max(1, n), tau, b.work(), b.info(2))


@_target("sytrd")
def _sytrd(b: Batch) -> Arguments:
    n = b.order(0)
    d, e = b.result(1, n, dtype=b.real_dtype), b.result(2, max(n - 1, 0), dtype=b.real_dtype)
    tau = b.result(3, max(n - 1, 0))
    return (b.attribute("uplo", "L"), n, b.columns(0, 0, n, n), max(1, n), d, e, tau, b.work(), b.info(4))


@_target("gtsv", rank=1)
def _gtsv(b: Batch) -> Arguments:
    """The lower diagonal has its first element to spare, LAPACK wants it to start with the second."""
    n, (_, right_sides) = b.length(0), b.sizes(3)
    lower, d, upper = b.changed(0, 0, n, offset=1), b.changed(1, 1, n), b.changed(2, 2, n)
    return (n, right_sides, lower, d, upper, b.columns(3, 3, n, right_sides), max(1, n), b.info(4))
