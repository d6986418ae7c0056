"""The linear algebra targets that JAX emits for CPUs (`lapack_sgetrf_ffi` etc.), through SciPy's LAPACK.

A target is a signature, and a function that returns the arguments of its routine for a `Batch`. Operands are row-major,
and LAPACK's matrices column-major: a matrix is transposed on its way in and out, unless there is a call that computes
the same from the transpose. As in LAPACK, pivots count from 1 and `info` is an s32 for each matrix, which is not zero
if the routine failed; the programs that JAX lowers check it and fill failures with NaN.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from hloom.ops.linear_algebra import substitute
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
from hloom.runtime.custom_calls.registry import declare_routine, declare_target
from hloom.runtime.custom_calls.signature import Attribute, Binding, Signature
from hloom.shape import Shape
from hloom.types import BY_DTYPE, PrimitiveType
from hloom.values import Array

TYPES = {"s": PrimitiveType.F32, "d": PrimitiveType.F64, "c": PrimitiveType.C64, "z": PrimitiveType.C128}
"""The first letters of the routines' names, by element type."""
_UNITARY = {"orgqr": "ungqr", "ormqr": "unmqr", "syevd": "heevd", "sytrd": "hetrd"}
"""Routines that have other names for complex types."""
_INT = np.dtype(np.int32)
NOT_FINITE = -4
"""The info of geev for a matrix with infinities or NaN, for which LAPACK might not terminate."""

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
_TARGETS: dict[str, tuple[Target, Signature]] = {}
_COMPLEX_ARRAYS: dict[str, str] = {}
"""The signatures of targets that differ for complex types."""


def _target(
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
        _TARGETS[name] = function, Signature(arrays, (), where or {}, (*relations, *_COUNTED), kinds)
        if complex_arrays is not None:
            _COMPLEX_ARRAYS[name] = complex_arrays
        return function

    return declare


def routine_name(name: str, letter: str) -> str:
    """The routine of a target for an element type: `sgetrf`, `cungqr`."""
    return letter + (_UNITARY.get(name, name) if letter in "cz" else name)


def signature_of(name: str, letter: str) -> Signature:
    """The signature of a target for one element type."""
    signature = _TARGETS[name][1]
    arrays = _COMPLEX_ARRAYS.get(name, signature.text) if letter in "cz" else signature.text
    return dataclasses.replace(signature, text=arrays, types=(TYPES[letter],))


def unpacked_geev(letter: str) -> Signature:
    """The signature of JAX's target for eigenvectors, which are complex for all element types."""
    signature = signature_of("geev", letter)
    text = signature.text.replace("left: T", "left: complex(T)").replace("right: T", "right: complex(T)")
    return dataclasses.replace(signature, text=text)


@functools.cache
def declare() -> None:
    """Declares all targets of this module, once."""
    for letter in TYPES:
        for name in _TARGETS:
            plan, signature = functools.partial(_routine_call, name, letter), signature_of(name, letter)
            if name in _OWN:
                if letter in "sd":  # targets to which passes lower several calls
                    declare_routine(f"lapack_{letter}{name}", signature, plan)
                    declare_target(f"lapack_{letter}{name}", signature, _OWN[name])
            elif name == "geev":
                declare_target(
                    f"lapack_{letter}geev_ffi", unpacked_geev(letter), functools.partial(_geev_target, letter)
                )
                declare_routine(f"lapack_{letter}geev", signature, plan)  # the target to which passes lower it
            else:
                declare_routine(f"lapack_{routine_name(name, letter)}_ffi", signature, plan)


def call(name: str, operands: tuple[Array, ...], results: list[tuple[tuple[int, ...], Any]], config: str = "") -> Any:
    """Calls a target, with results of these shapes and element types."""
    letter = next(letter for letter, kind in TYPES.items() if kind.dtype == operands[0].dtype)
    shapes = [Shape.array(BY_DTYPE[np.dtype(dtype)], sizes) for sizes, dtype in results]
    given = [Shape.array(BY_DTYPE[operand.dtype], operand.shape) for operand in operands]
    binding = signature_of(name, letter).bind(name, given, Shape.tuple_of(shapes), config)
    found = fortran.run(_routine_call(name, letter, binding), operands)
    return tuple(array.reshape(sizes) for array, (sizes, _) in zip(found, results, strict=True))


def _routine_call(name: str, letter: str, binding: Binding) -> RoutineCall:
    batch = Batch(binding)
    arguments = tuple(np.int32(a) if isinstance(a, int) else a for a in _TARGETS[name][0](batch))
    routine = routine_name(name, letter)
    return RoutineCall(routine, fortran.with_workspaces(routine, arguments), batch.operands, batch.results, batch.count)


@_target("potrf", "a: T[*, n, n] -> factor: T[*, n, n], info: s32[*]", uplo="LU")
def _potrf(b: Batch) -> Arguments:
    """Factorises the transpose, whose other triangle is given: conj(a) = conj(l) conj(l)^H."""
    n, uplo = b.size("n"), b.attributes["uplo"]
    return ("U" if uplo == "L" else "L", n, b.updated("a", "factor"), max(1, n), b.info("factor"))


@_target(
    "trsm",
    "a: T[*, p, p], b: T[*, m, n] -> x: T[*, m, n]",
    where={"p": "m if side == 'L' else n"},
    side="LR",
    uplo="LU",
    trans_x="NTC",
    diag="NU",
)
def _trsm(b: Batch) -> Arguments:
    """Solves the transposed equation: op(a) x = b becomes x^T op(a^T) = b^T, with the other side and triangle."""
    side, uplo, *kind = (b.attributes[name] for name in ("side", "uplo", "trans_x", "diag"))
    m, n, order = b.sizes("m n p")
    mirrored = "R" if side == "L" else "L", "U" if uplo == "L" else "L"
    a, x = b.operand("a"), b.updated("b", "x")
    return (*mirrored, *kind, n, m, b.dtype.type(1), a, max(1, order), x, max(1, n))


@_target("getrf", "a: T[*, m, n] -> lu: T[*, m, n], pivots: s32[*, min(m, n)], info: s32[*]")
def _getrf(b: Batch) -> Arguments:
    m, n = b.sizes("m n")
    return (m, n, b.columns("a", "lu"), max(1, m), b.result("pivots"), b.info())


@_target("cholesky", "a: T[*, n, n] -> l: T[*, n, n]", relations=("1 <= n",), symmetric=False, whole=False)
def _cholesky(b: Batch) -> Arguments:
    """Has arguments for hloom alone: whether the mean of a matrix and its transpose is factored, and whether the whole
    factor, instead of its triangle, is NaN if there is none.
    """
    return (np.int32(b.attributes["symmetric"]), np.int32(b.attributes["whole"]))


def _cholesky_target(binding: Binding, a: Array) -> Array:
    """Returns the lower factor, with zeros in the other triangle."""
    symmetric, whole = (binding.attributes[name] for name in ("symmetric", "whole"))
    given = (a + np.swapaxes(a, -1, -2)) * a.dtype.type(0.5) if symmetric else a
    factor, info = call("potrf", (given,), [(a.shape, a.dtype), (a.shape[:-2], _INT)], f"{{uplo = {ord('L')} : ui8}}")
    triangle = np.tril(np.ones(a.shape[-2:], bool))
    fails = (info != 0)[..., None, None] & (triangle | whole)
    return np.where(fails, np.nan, np.where(triangle, factor, 0)).astype(a.dtype)


MAX_SOLVED = 16
"""Unknowns of the largest systems that are solved without LAPACK."""


@_target(
    "gesv",
    "a: T[*, n, n], b: T[*, n, k] -> x: T[*, n, k]",
    relations=(f"1 <= n <= {MAX_SOLVED}", f"1 <= k <= {MAX_SOLVED}"),
)
def _gesv(b: Batch) -> Arguments:
    """Has no arguments: compiled programs solve the systems themselves."""
    return ()


def _gesv_target(binding: Binding, a: Array, b: Array) -> Array:
    """Solves a x = b as getrf, laswp and trsm do: unlike LAPACK's routine, also with a pivot of zero, to infinities or
    NaN.
    """
    sizes = a.shape[:-1]
    lu, pivots, _ = call("getrf", (a,), [(a.shape, a.dtype), (sizes, _INT), (sizes[:-1], _INT)])
    rows = np.broadcast_to(np.arange(sizes[-1], dtype=a.dtype), sizes)
    (order,) = call("laswp", (rows, pivots), [(sizes, a.dtype)])
    x = np.take_along_axis(b, order[..., None].astype(_INT), -2)
    return substitute(lu, substitute(lu, x, lower=True, unit_diagonal=True), lower=False, unit_diagonal=False)


_OWN: dict[str, Callable[..., Array]] = {"gesv": _gesv_target, "cholesky": _cholesky_target}
"""The functions of targets that are hloom's own: compiled programs have loops for them, whatever the sizes."""


@_target("laswp", "a: T[*, m], pivots: s32[*, k] -> swapped: T[*, m]", relations=("k <= m",))
def _laswp(b: Batch) -> Arguments:
    """Swaps the elements of a vector: applied to row indices, it gives the permutation of getrf."""
    m, k = b.sizes("m k")
    return (1, b.updated("a", "swapped"), max(1, m), 1, k, b.operand("pivots", bounds=(1, m)), 1)


@_target("geqrf", "a: T[*, m, n] -> packed: T[*, m, n], tau: T[*, min(m, n)]")
def _geqrf(b: Batch) -> Arguments:
    m, n = b.sizes("m n")
    return (m, n, b.columns("a", "packed"), max(1, m), b.result("tau"), b.work(), b.info())


@_target(
    "geqp3",
    "a: T[*, m, n], columns: s32[*, n] -> packed: T[*, m, n], pivots: s32[*, n], tau: T[*, min(m, n)]",
)
def _geqp3(b: Batch) -> Arguments:
    m, n = b.sizes("m n")
    pivots, tau = b.updated("columns", "pivots"), b.result("tau")
    return (m, n, b.columns("a", "packed"), max(1, m), pivots, tau, b.work(), *b.real_work(2 * n), b.info())


@_target("orgqr", "a: T[*, m, n], tau: T[*, k] -> q: T[*, m, n]", relations=("k <= n <= m",))
def _orgqr(b: Batch) -> Arguments:
    m, n, k = b.sizes("m n k")
    return (m, n, k, b.columns("a", "q"), max(1, m), b.operand("tau"), b.work(), b.info())


@_target(
    "ormqr",
    "a: T[*, r, p], tau: T[*, k], c: T[*, m, n] -> product: T[*, m, n]",
    where={"r": "m if left else n"},
    relations=("k <= p", "k <= r"),
    left=True,
    transpose=False,
)
def _ormqr(b: Batch) -> Arguments:
    m, n, k, rows = b.sizes("m n k r")
    adjoint = "C" if b.is_complex else "T"
    kind = ("L" if b.attributes["left"] else "R", adjoint if b.attributes["transpose"] else "N")
    a, c = b.columns("a", None), b.columns("c", "product")
    return (*kind, m, n, k, a, max(1, rows), b.operand("tau"), c, max(1, m), b.work(), b.info())


_SVD = "a: T[*, m, n] -> left: T[*, m, n], s: real(T)[*, min(m, n)], u: T[*, p, q], vt: T[*, r, c], info: s32[*]"
_SVD_SIZES = (
    "mode == 'N' or (p == m and q == (m if mode == 'A' else min(m, n)))",
    "mode == 'N' or (c == n and r == (n if mode == 'A' else min(m, n)))",
)


@_target("gesdd", _SVD, relations=_SVD_SIZES, mode="ASN")
def _gesdd(b: Batch) -> Arguments:
    m, n = b.sizes("m n")
    k, mode = min(m, n), b.attributes["mode"]
    real = 7 * k if mode == "N" else k * max(5 * k + 7, 2 * max(m, n) + 2 * k + 1)
    return (mode, *_svd(b, finite=True), b.work(), *b.real_work(real), Workspace(_INT, max(1, 8 * k)), b.info())


@_target("gesvd", _SVD, relations=_SVD_SIZES, mode="ASN")
def _gesvd(b: Batch) -> Arguments:
    mode = b.attributes["mode"]
    return (mode, mode, *_svd(b), b.work(), *b.real_work(5 * min(b.sizes("m n"))), b.info())


def _svd(b: Batch, finite: bool = False) -> tuple[int | ArrayArgument | Workspace, ...]:
    """Arguments for tall matrices, for which LAPACK is faster; wide ones are transposed, a^T = (vt)^T s u^T."""
    m, n = b.sizes("m n")
    mode, s = b.attributes["mode"], b.result("s")
    rows, columns = (min(m, n),) * 2 if mode == "S" else (m, n)
    is_tall = m > n
    if mode != "N" and is_tall:
        u, vt = b.columns(None, "u"), b.columns(None, "vt")
    else:
        u, vt = b.result("u"), b.result("vt")
    if is_tall:
        return (m, n, replace(b.columns("a", "left"), finite=finite), m, s, u, m, vt, max(1, columns))
    a = replace(b.updated("a", "left"), finite=finite)
    return (n, m, a, max(1, n), s, vt, max(1, n), u, max(1, rows))


@_target(
    "syevd",
    "a: T[*, n, n] -> vectors: T[*, n, n], w: real(T)[*, n], info: s32[*]",
    mode="VN",
    uplo="LU",
)
def _syevd(b: Batch) -> Arguments:
    n, kind = b.size("n"), (b.attributes["mode"], b.attributes["uplo"])
    real = (WorkspaceQuery(b.real_dtype),) if b.is_complex else ()
    a = b.columns("a", "vectors")
    return (*kind, n, a, max(1, n), b.result("w"), b.work(), *real, WorkspaceQuery(_INT), b.info())


@_target(
    "geev",
    "a: T[*, n, n] -> re: T[*, n], im: T[*, n], left: T[*, n, n], right: T[*, n, n], info: s32[*]",
    "a: T[*, n, n] -> w: T[*, n], left: T[*, n, n], right: T[*, n, n], info: s32[*]",
    compute_left="VN",
    compute_right="VN",
)
def _geev(b: Batch) -> Arguments:
    """Returns eigenvectors in LAPACK's form: a conjugate pair of a real matrix shares two columns, re and im."""
    n = b.size("n")
    wanted = b.attributes["compute_left"], b.attributes["compute_right"]
    left, right = b.columns(None, "left"), b.columns(None, "right")
    vectors = (left, max(1, n), right, max(1, n))
    a = b.columns("a", None)
    return (*wanted, n, a, max(1, n), *_eigenvalues(b), *vectors, b.work(), *b.real_work(2 * n), b.info())


def _eigenvalues(b: Batch) -> list[ArrayArgument]:
    """The result for eigenvalues; for real matrices two, the real and the imaginary parts."""
    return [b.result(name) for name in (("w",) if b.is_complex else ("re", "im"))]


def _geev_target(letter: str, binding: Binding, a: Array) -> tuple[Array, ...]:
    finite = np.asarray(np.isfinite(a).all(axis=(-1, -2)))
    given = np.where(finite[..., None, None], a, 0).astype(a.dtype)
    parts = 1 if letter in "cz" else 2
    results = [(a.shape[:-1], a.dtype)] * parts + [(a.shape, a.dtype)] * 2 + [(a.shape[:-2], _INT)]
    *eigenvalues, left, right, info = call("geev", (given,), results, binding.config)
    info = np.where(finite, info, np.int32(NOT_FINITE))
    if parts == 2:
        left, right = (_unpack_pairs(eigenvalues[1], vectors) for vectors in (left, right))
    return (*eigenvalues, left, right, info)


def _unpack_pairs(imaginary: Array, vectors: Array) -> Array:
    """Converts eigenvectors from LAPACK's real form, in which a conjugate pair shares two columns, re and im."""
    complex_vectors = vectors.astype(np.result_type(vectors.dtype, np.complex64))
    following = np.roll(vectors, -1, axis=-1)
    first = np.zeros(imaginary.shape, bool)
    for k in range(imaginary.shape[-1] - 1):
        first[..., k] = (imaginary[..., k] != 0) & ~(first[..., k - 1] if k else False)
    pairs = complex_vectors + 1j * following.astype(complex_vectors.dtype)
    starts, ends = first[..., None, :], np.roll(first, 1, axis=-1)[..., None, :]
    complex_vectors = np.where(starts, pairs, complex_vectors)
    return np.where(ends, np.roll(pairs, 1, axis=-1).conj(), complex_vectors)


@_target(
    "gees",
    "a: T[*, n, n] -> t: T[*, n, n], vectors: T[*, n, n], re: T[*, n], im: T[*, n], selected: s32[*], info: s32[*]",
    "a: T[*, n, n] -> t: T[*, n, n], vectors: T[*, n, n], w: T[*, n], selected: s32[*], info: s32[*]",
    mode="VN",
    sort="N",
)
def _gees(b: Batch) -> Arguments:
    n = b.size("n")
    a, vectors = b.columns("a", "t"), b.columns(None, "vectors")
    work: Arguments = (b.work(), *b.real_work(n), Workspace(_INT, max(1, n)))
    kind: Arguments = (b.attributes["mode"], b.attributes["sort"], None)
    return (*kind, n, a, max(1, n), b.result("selected"), *_eigenvalues(b), vectors, max(1, n), *work, b.info())


@_target(
    "gehrd",
    "a: T[*, n, n] -> packed: T[*, n, n], tau: T[*, n - 1], info: s32[*]",
    relations=("low <= max(1, n)", "min(low, n) <= high <= n"),
    low=range(1, 2**31),
    high=range(2**31),
)
def _gehrd(b: Batch) -> Arguments:
    n, low, high = b.size("n"), b.attributes["low"], b.attributes["high"]
    return (n, low, high, b.columns("a", "packed"), max(1, n), b.result("tau"), b.work(), b.info())


@_target(
    "sytrd",
    "a: T[*, n, n] -> packed: T[*, n, n], d: real(T)[*, n], e: real(T)[*, n - 1], tau: T[*, n - 1], info: s32[*]",
    uplo="LU",
)
def _sytrd(b: Batch) -> Arguments:
    n = b.size("n")
    d, e, tau = b.result("d"), b.result("e"), b.result("tau")
    return (b.attributes["uplo"], n, b.columns("a", "packed"), max(1, n), d, e, tau, b.work(), b.info())


@_target(
    "gtsv",
    "lower: T[*, n], diagonal: T[*, n], upper: T[*, n], b: T[*, n, k]"
    " -> dl: T[*, n], d: T[*, n], du: T[*, n], x: T[*, n, k], info: s32[*]",
)
def _gtsv(b: Batch) -> Arguments:
    """Skips the first element of the lower diagonal, which LAPACK's array does not have."""
    n, right_sides = b.sizes("n k")
    lower, d, upper = b.updated("lower", "dl", offset=1), b.updated("diagonal", "d"), b.updated("upper", "du")
    return (n, right_sides, lower, d, upper, b.columns("b", "x"), max(1, n), b.info())
