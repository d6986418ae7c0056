"""Custom calls of one routine of BLAS or LAPACK: a parallel loop over the matrices of the batch."""

from __future__ import annotations

import numpy as np

from hloom.backends.cpu.kernels.code import KernelCode, aligned, code_of, entry_function
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.kernels.linear_algebra import cholesky, lu, one_side, qr, solve, spectra
from hloom.backends.cpu.kernels.linear_algebra.small.matrices import emit_each, emit_lanes
from hloom.backends.cpu.kernels.transpose import Transposes
from hloom.ir import Instruction
from hloom.lir import I8, I32, I64, PTR, VOID, Value, constant, type_of
from hloom.ops.custom_call import CustomCall
from hloom.runtime.custom_calls.fortran import Argument, ArrayArgument, Matrices, RoutineCall, Status, Workspace
from hloom.runtime.custom_calls.targets import routine_call
from hloom.target import Target

CALL_COST = 1000
"""Overhead of a call, in additions."""
ELEMENT_COST = 3.25
"""Cost of an element of a matrix, in additions, for each row or column of its largest dimension."""
_OWN = (
    one_side.emit, emit_lanes, cholesky.emit, lu.emit, qr.emit, solve.emit, emit_each, spectra.emit,
)  # fmt: skip
"""Writers of code that calls no routine, of which the first that knows a call is asked."""
_REALS = {2: "half", 4: "float", 8: "double"}


def emit(op: CustomCall, name: str, instruction: Instruction, target: Target) -> KernelCode | None:
    """Returns the code of a custom call; None if its target is not a routine."""
    call = routine_call(instruction)
    if call is None:
        return None
    if call.count == 0:
        return code_of(name, [entry_function(name, instruction)])
    for own in _OWN:
        if (code := own(name, instruction, call, target)) is not None:
            return code
    return _Batch(name, instruction, call, target).code()


class _Batch:
    """Writes the loop over a batch, each share of which has private memory for column-major copies and workspaces."""

    def __init__(self, name: str, instruction: Instruction, call: RoutineCall, target: Target) -> None:
        self.name, self.instruction, self.call = name, instruction, call
        largest = max(call.operands, key=lambda matrices: matrices.elements)
        work = CALL_COST + largest.elements * max(largest.sizes, default=1) * ELEMENT_COST
        self.shares = target.tasks(call.count, call.count * work)
        self.offsets: dict[int, int] = {}
        self.workspace_bytes = 0
        for index, argument in enumerate(call.arguments):
            size = _workspace_bytes(call, argument)
            if size:
                self.offsets[index] = self.workspace_bytes
                self.workspace_bytes += aligned(size)
        self.transposes = Transposes(name)

    def code(self) -> KernelCode:
        f = entry_function(self.name, self.instruction, routines=1)
        f.run_chunks(f"{self.name}.matrices", f.pack(*f.parameters[:-2]), self.shares, f.threads)
        functions = [self._matrices(), *self.transposes.functions.values(), f]
        return code_of(self.name, functions, self.shares * self.workspace_bytes, (self.call.routine,))

    def _matrices(self) -> KernelFunction:
        """Writes the task that calls the routine for each matrix of its share."""
        f, call = task_function(f"{self.name}.matrices"), self.call
        operands, results = len(call.operands), len(call.results)
        words = f.unpack(f["context"], *[PTR] * (operands + 1 + results + 1))
        arrays = words[:operands], words[operands + 1 : operands + 1 + results]
        routine = words[operands]
        workspace = f.at(words[-1], f.multiply(f["chunk"], self.workspace_bytes), "i8")
        scalars = [_scalar(f, argument) for argument in call.arguments]
        first, count = f.share(call.count, 1, self.shares, f["chunk"])
        with f.each(first, f.add(first, count)) as k:
            sources = [_matrix(f, array, k, m.byte_size) for array, m in zip(arrays[0], call.operands, strict=True)]
            targets = [_matrix(f, array, k, m.byte_size) for array, m in zip(arrays[1], call.results, strict=True)]
            with f.when(self._accepted(f, sources, targets)):
                for index in self._results_to_clear():
                    f.fill(targets[index], 0, call.results[index].byte_size)
                pointers = []
                for index, argument in enumerate(call.arguments):
                    private = f.at(workspace, self.offsets.get(index, 0), "i8")
                    pointers.append(scalars[index] or self._argument_address(f, argument, private, sources, targets))
                # Fortran compilers pass the lengths of characters behind the arguments; C functions do not read them.
                lengths = [constant(I64, 1) for argument in call.arguments if isinstance(argument, str)]
                f.call_pointer(routine, VOID, *pointers, *lengths)
                self._finish(f, pointers, targets)
        return f

    def _accepted(self, f: KernelFunction, sources: list[Value], targets: list[Value]) -> Value | None:
        """Returns whether the routine is called for a matrix, after writing the results of others; None if it always
        is.
        """
        refusal = self.call.refusal
        if refusal is None:
            return None
        is_finite = _is_finite(f, sources[refusal.operand], self.call.operands[refusal.operand])
        with f.unless(is_finite):
            self._fail(f, targets)
            f.store(constant(I32, refusal.value), targets[refusal.status], 4)
        return is_finite

    def _finish(self, f: KernelFunction, pointers: list[Value], targets: list[Value]) -> None:
        """Writes the results that the routine did not write by itself."""
        for argument, pointer in zip(self.call.arguments, pointers, strict=True):
            if isinstance(argument, ArrayArgument) and argument.columns and argument.result is not None:
                result = self.call.results[argument.result]
                m, n = result.sizes
                self.transposes.emit(f, pointer, targets[argument.result], result.dtype.itemsize, (n, m))
            elif isinstance(argument, ArrayArgument) and argument.factor is not None:
                _report_nan(f, pointer, targets[argument.factor], self.call.results[argument.factor])
            elif isinstance(argument, Status):
                with f.unless(f.compare("eq", f.load(pointer, I32, 4), constant(I32, 0))):
                    self._fail(f, targets)

    def _fail(self, f: KernelFunction, targets: list[Value]) -> None:
        """Sets all bits of the results."""
        for target, result in zip(targets, self.call.results, strict=True):
            f.fill(target, 0xFF, result.byte_size)

    def _results_to_clear(self) -> list[int]:
        """Indices of the results that only the routine writes, since it may leave parts of them unwritten."""
        matrices = [argument for argument in self.call.arguments if isinstance(argument, ArrayArgument)]
        filled = {argument.result for argument in matrices if argument.operand is not None or argument.columns}
        return [index for index in range(len(self.call.results)) if index not in filled]

    def _argument_address(
        self, f: KernelFunction, argument: Argument, private: Value, sources: list[Value], targets: list[Value]
    ) -> Value:
        """Returns the address of an argument for one matrix, after writing the data that the routine reads there."""
        if not isinstance(argument, ArrayArgument):
            return private
        matrices = self.call.matrices(argument)
        if argument.columns:
            if argument.operand is None:
                f.fill(private, 0, matrices.byte_size)
            else:
                m, n = matrices.sizes
                self.transposes.emit(f, sources[argument.operand], private, matrices.dtype.itemsize, (m, n))
            return private
        if argument.bounds is not None:
            assert argument.operand is not None
            self._clamp(f, sources[argument.operand], private, matrices.elements, argument.bounds)
            return private
        if argument.result is None:
            assert argument.operand is not None
            pointer = sources[argument.operand]
        else:
            pointer = targets[argument.result]
            if argument.operand is not None:
                f.copy(pointer, sources[argument.operand], matrices.byte_size)
        return f.at(pointer, argument.offset * matrices.dtype.itemsize, "i8")

    def _clamp(self, f: KernelFunction, source: Value, target: Value, count: int, bounds: tuple[int, int]) -> None:
        with f.each(0, count) as k:
            value = f.load(f.at(source, k, "i32"), I32, 4)
            for order, bound in zip(("sgt", "slt"), bounds, strict=True):
                limit = constant(I32, bound)
                value = f.select(f.compare(order, value, limit), value, limit)
            f.store(value, f.at(target, k, "i32"), 4)


def _report_nan(f: KernelFunction, status: Value, factor: Value, matrices: Matrices) -> None:
    """Makes the number of the first NaN on a factor's diagonal the status, where the routine reports no failure."""
    parts, n = 2 if matrices.dtype.kind == "c" else 1, matrices.sizes[0]
    type = type_of(_REALS[matrices.dtype.itemsize // parts])
    with f.when(f.compare("eq", f.load(status, I32, 4), constant(I32, 0))), f.each(0, n) as step:
        last = f.subtract(n, step)  # the number of an element, from the last one on
        position = f.multiply(f.subtract(last, 1), parts * (n + 1))
        real = f.load(f.at(factor, position, type.element), type, type.bits // 8)
        number = f.convert("trunc", f.index(last), "i32")
        f.store(f.select(f.compare("uno", real, real), number, f.load(status, I32, 4)), status, 4)


def _is_finite(f: KernelFunction, pointer: Value, matrices: Matrices) -> Value:
    """Returns whether the products of all elements with zero are zero."""
    parts = 2 if matrices.dtype.kind == "c" else 1
    type = type_of(_REALS[matrices.dtype.itemsize // parts])
    zero = constant(type, 0)
    with f.loop(parts * matrices.elements, carried=[zero]) as loop:
        part = f.load(f.at(pointer, loop.index, type.element), type, type.bits // 8)
        loop.carried[0] = f.binary("fadd", loop.carried[0], f.binary("fmul", part, zero))
    return f.compare("oeq", loop.carried[0], zero)


def _workspace_bytes(call: RoutineCall, argument: Argument) -> int:
    """Bytes of private memory that an argument needs beside operands and results."""
    if isinstance(argument, (Workspace, Status)):
        return argument.size * argument.dtype.itemsize
    if not isinstance(argument, ArrayArgument) or not argument.is_copy:
        return 0
    matrices = call.matrices(argument)
    return matrices.copy_elements * matrices.dtype.itemsize


def _scalar(f: KernelFunction, argument: Argument) -> Value | None:
    """Returns the address of an argument that is the same for all matrices; None if it differs between matrices."""
    if argument is None:
        return constant(PTR, 0)
    if isinstance(argument, (ArrayArgument, Workspace, Status)):
        return None
    slot = f.slot(I64, 2, align=16)
    if isinstance(argument, str):
        f.store(constant(I8, ord(argument)), slot, 1)
    elif isinstance(argument, np.int32):
        f.store(constant(I32, int(argument)), slot, 4)
    else:
        value = complex(argument.item())
        element = type_of(_REALS[argument.real.itemsize])
        f.store(constant(element, value.real), slot, 8)
        if argument.dtype.kind == "c":
            f.store(constant(element, value.imag), f.at(slot, 1, element.element), 4)
    return slot


def _matrix(f: KernelFunction, array: Value, index: Value, byte_size: int) -> Value:
    return f.at(array, f.multiply(index, byte_size), "i8")
