"""Factorisations and triangular solves without LAPACK: of batches of small matrices, and where there is no LAPACK.

LAPACK's routines take one matrix; for small ones, the overhead of the calls would dominate. A group of matrices, one
for each lane, is transposed into lanes, factored by loops over their elements, and transposed back. In programs that
cannot call LAPACK the same loops factor other matrices, one after another.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hloom.backends.cpu.kernels.code import KernelCode, aligned, code_of, entry_function
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.kernels.linear_algebra.sizes import SMALL_ORDER, can_vectorise
from hloom.backends.cpu.kernels.linear_algebra.small import factorisations
from hloom.backends.cpu.kernels.linear_algebra.small.cholesky import cholesky, potrf
from hloom.backends.cpu.kernels.linear_algebra.small.elimination import gesv
from hloom.backends.cpu.kernels.linear_algebra.small.factorisations import MAX_UNROLLED, MatrixLanes
from hloom.backends.cpu.kernels.transpose import Transposes
from hloom.ir import Instruction
from hloom.lir import PTR, IndexValue, Type, Value, type_of
from hloom.runtime.custom_calls.fortran import Matrices, RoutineCall
from hloom.target import CACHE_LINE, Target

EMITTERS = {**factorisations.EMITTERS, "potrf": potrf, "cholesky": cholesky, "gesv": gesv}
"""Writers of the code of each routine, which return the array that becomes the first result."""
MAX_TRIANGLE = 40
"""Rows of real triangles up to which lanes are faster than blocks."""
ELEMENT_COST = 0.3125
"""Cost of an element of an operand, in additions, for each row of a matrix."""


def emit_lanes(name: str, instruction: Instruction, call: RoutineCall, target: Target) -> KernelCode | None:
    """Returns the code of a call of BLAS or LAPACK for a batch of small matrices; None for other calls."""
    if not _is_known(call):
        return None
    order, elements = max(call.operands[0].sizes), max(matrices.elements for matrices in call.operands)
    is_own = call.routine[1:] in ("gesv", "cholesky") and order <= SMALL_ORDER
    if call.routine in ("strsm", "dtrsm") and order > MAX_TRIANGLE:
        return None
    if is_own or can_vectorise(order, elements, call.count, target.batch_invariant):
        return _GroupLoop(name, instruction, call, target).code()
    return None


def emit_each(name: str, instruction: Instruction, call: RoutineCall, target: Target) -> KernelCode | None:
    """Returns the code of a call of BLAS or LAPACK in a program that may not call it; None for other routines."""
    return _MatrixLoop(name, instruction, call, target).code() if _is_known(call) and not target.has_lapack else None


def _is_known(call: RoutineCall) -> bool:
    return call.routine[1:] in EMITTERS and min(call.operands[0].sizes) > 0


def _element(call: RoutineCall) -> str:
    return "float" if call.routine[0] in "sc" else "double"


def _parts(call: RoutineCall) -> int:
    """Returns the number of parts of an element: 2 of a complex one."""
    return 2 if call.routine[0] in "cz" else 1


def _types(call: RoutineCall, type: Type, arrays: Sequence[Matrices]) -> list[Type]:
    """Returns the types of registers with elements of arrays: of the first operand, which is given, or integers."""
    return [type if m.dtype == call.operands[0].dtype else type.of("i32") for m in arrays]


class _GroupLoop:
    """Writes the loop over groups of matrices, which each share copies to memory of its own."""

    def __init__(self, name: str, instruction: Instruction, call: RoutineCall, target: Target) -> None:
        self.name, self.instruction, self.call = name, instruction, call
        self.parts = _parts(call)
        self.type = type_of(_element(call), self.parts * CACHE_LINE // call.operands[0].dtype.itemsize)
        self.groups = -(-call.count // self.type.width)
        elements = sum(matrices.elements for matrices in call.operands) * self.parts**2
        work = elements * max(call.operands[0].sizes) * call.count
        self.shares = target.tasks(self.groups, work * ELEMENT_COST)
        self.transposes = Transposes(name)
        self.arrays = (*call.operands, *call.results[1:])
        self.types = _types(call, self.type, self.arrays)
        most = max(matrices.byte_size for matrices in (*self.arrays, call.results[0]))
        sizes = [aligned(self.type.width * size) for size in (most, *(m.byte_size for m in self.arrays))]
        *self.starts, self.share_bytes = itertools.accumulate(sizes, initial=0)
        """Offsets in the memory of a share: of a copy of a group, and of the groups of each array in lanes."""

    def code(self) -> KernelCode:
        f = entry_function(self.name, self.instruction)
        f.run_chunks(f"{self.name}.groups", f.pack(*f.parameters[:-2]), self.shares, f.threads)
        functions = [self._groups(), *self.transposes.functions.values(), f]
        return code_of(self.name, functions, self.shares * self.share_bytes)

    def _groups(self) -> KernelFunction:
        """Writes the task that computes a share of the groups."""
        f, call, width = task_function(f"{self.name}.groups"), self.call, self.type.width
        *words, memory = f.unpack(f["context"], *[PTR] * (len(call.operands) + len(call.results) + 1))
        operands, results = words[: len(call.operands)], words[len(call.operands) :]
        scratch, *addresses = (
            f.at(memory, f.add(f.multiply(f["chunk"], self.share_bytes), start), "i8") for start in self.starts
        )
        arrays = [self._lanes(f, *each) for each in zip(addresses, self.types, self.arrays, strict=True)]
        inputs, extra_results = arrays[: len(operands)], arrays[len(operands) :]
        is_small = max(size for m in (*call.operands, *call.results) for size in (1, *m.sizes)) <= MAX_UNROLLED
        first, count = f.share(self.groups, 1, self.shares, f["chunk"])
        with f.each(first, f.add(first, count)) as group:
            start = f.index(f.multiply(group, width))
            left = f.index(f.minimum(width, f.subtract(call.count, start)))
            for array, lanes, matrices in zip(operands, inputs, call.operands, strict=True):
                self._load_group(array, lanes, matrices, (start, left, scratch))
            arrays = [*inputs, *extra_results]
            if is_small:
                arrays = [lanes.copied(m.elements) for lanes, m in zip(arrays, self.arrays, strict=True)]
            changed = [EMITTERS[call.routine[1:]](f, call, arrays), *arrays[len(inputs) :]]
            for array, lanes, matrices in zip(results, changed, call.results, strict=True):
                made = lanes.copied(matrices.elements) if is_small else lanes
                self._store_group(made, array, matrices, (start, left, scratch))
        return f

    def _lanes(self, f: KernelFunction, memory: Value, type: Type, matrices: Matrices) -> MatrixLanes:
        return MatrixLanes.at(f, memory, type, matrices.sizes, self.parts if type is self.type else 1)

    def _load_group(
        self, array: Value, lanes: MatrixLanes, matrices: Matrices, group: tuple[Value, Value, Value]
    ) -> None:
        """Transposes a group of matrices into lanes; a last group that is not full is padded with copies of its last
        matrix.
        """
        f, (start, left, scratch), width = lanes.f, group, self.type.width
        matrices_address = self._at(f, array, start, matrices)
        with f.unless(self._is_full(f, left)), f.each(0, width) as lane:
            index = f.minimum(lane, f.subtract(left, 1))
            f.copy(
                self._at(f, scratch, lane, matrices), self._at(f, matrices_address, index, matrices), matrices.byte_size
            )
        source = f.select(self._is_full(f, left), matrices_address, scratch)
        self.transposes.emit(f, source, lanes.memory, lanes.type.bits // 8, (width, lanes.parts * matrices.elements))

    def _store_group(
        self, lanes: MatrixLanes, array: Value, matrices: Matrices, group: tuple[Value, Value, Value]
    ) -> None:
        """Transposes lanes back to a group of matrices, without the padding."""
        f, (start, left, scratch), width = lanes.f, group, self.type.width
        matrices_address = self._at(f, array, start, matrices)
        target = f.select(self._is_full(f, left), matrices_address, scratch)
        self.transposes.emit(f, lanes.memory, target, lanes.type.bits // 8, (lanes.parts * matrices.elements, width))
        with f.unless(self._is_full(f, left)):
            f.copy(matrices_address, scratch, f.multiply(left, matrices.byte_size))

    def _is_full(self, f: KernelFunction, left: Value) -> Value:
        return f.compare("eq", left, f.index(self.type.width))

    def _at(self, f: KernelFunction, array: Value, index: IndexValue, matrices: Matrices) -> Value:
        return f.at(array, f.multiply(index, matrices.byte_size), "i8")


class _MatrixLoop:
    """Writes the loop over matrices that are factored where the result is."""

    def __init__(self, name: str, instruction: Instruction, call: RoutineCall, target: Target) -> None:
        self.name, self.instruction, self.call = name, instruction, call
        self.type, self.parts = type_of(_element(call), 1), _parts(call)
        work = sum(matrices.elements for matrices in call.operands) * max(call.operands[0].sizes) * call.count
        self.shares = target.tasks(call.count, work * self.type.bits)

    def code(self) -> KernelCode:
        f = entry_function(self.name, self.instruction)
        f.run_chunks(f"{self.name}.matrices", f.pack(*f.parameters[:-3]), self.shares, f.threads)
        return code_of(self.name, [self._matrices(), f])

    def _matrices(self) -> KernelFunction:
        """Writes the task that computes a share of the matrices."""
        f, call = task_function(f"{self.name}.matrices"), self.call
        count = len(call.operands)
        words = f.unpack(f["context"], *[PTR] * (count + len(call.results)))
        types = [_types(call, self.type, arrays) for arrays in (call.operands, call.results)]
        first, matrices = f.share(call.count, 1, self.shares, f["chunk"])
        with f.each(first, f.add(first, matrices)) as k:
            given = zip(words[:count], call.operands, types[0], strict=True)
            sources = [self._at(f, p, k, m, type) for p, m, type in given]
            made = zip(words[count:], call.results, types[1], strict=True)
            targets = [self._at(f, p, k, m, type) for p, m, type in made]
            changed = count - 1 if call.routine[1:] == "trsm" else 0
            f.copy(targets[0].memory, sources[changed].memory, call.results[0].byte_size)
            sources[changed] = targets[0]
            EMITTERS[call.routine[1:]](f, call, [*sources, *targets[1:]])
        return f

    def _at(self, f: KernelFunction, array: Value, index: Value, matrices: Matrices, type: Type) -> MatrixLanes:
        parts = self.parts if type is self.type else 1
        return MatrixLanes.at(f, f.at(array, f.multiply(index, matrices.byte_size), "i8"), type, matrices.sizes, parts)
