"""Functions that take sizes up to bounds, and dense arrays: these are padded for the function of the bounds."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from hloom.aot.bounds import Dimensions, Open, PaddedModule
from hloom.aot.entry import NO_SIZE, aligned_pointer, refuse_pointers, scratch_bytes
from hloom.aot.interface import ArrayParameter, CFunction, declaration
from hloom.aot.sizes import names_of_sizes
from hloom.backends.cpu.kernels.code import aligned
from hloom.lir import I1, I8, I32, I64, PTR, Function, FunctionBuilder, LirModule, Parameter, Value, constant
from hloom.system.records import record


@record
class DenseArray:
    """An array parameter with its own sizes, some of them known at run time."""

    padded: ArrayParameter
    dimensions: Dimensions

    @property
    def is_static(self) -> bool:
        """Whether no size is open, and the array is passed on."""
        return not any(isinstance(size, Open) for size in self.dimensions)

    @property
    def parameter(self) -> ArrayParameter:
        """The array as a parameter."""
        return replace(self.padded, is_aligned=self.padded.is_aligned and self.is_static)

    @property
    def padded_bytes(self) -> int:
        """Bytes of scratch memory for the padded array, in whole cache lines."""
        size = 0 if self.is_static else math.prod(self.padded.sizes) * self.padded.type.byte_width
        return aligned(size)

    def shape(self, names: Sequence[str]) -> str:
        """Returns the shape as text, with names for sizes by number."""
        sizes = self.dimensions
        return self.padded.with_sizes([names[s.number] if isinstance(s, Open) else str(s) for s in sizes])

    def copy(
        self, b: FunctionBuilder, sizes: Sequence[Value], dense: Value, padded: Value, to_padded: bool = False
    ) -> None:
        """Emits copies of the runs of elements that are contiguous in both, to the dense array or the padded one."""
        if self.is_static:
            return
        last = max(d for d, size in enumerate(self.dimensions) if isinstance(size, Open))
        values = [sizes[s.number] if isinstance(s, Open) else constant(I64, s) for s in self.dimensions]
        run = _product(b, [*values[last:], constant(I64, self.padded.type.byte_width)])
        with b.each(0, _product(b, values[:last])) as index:
            near = b.at(dense, b.binary("mul", index, run), "i8")
            far = b.at(padded, self._offset(b, index, values[:last]), "i8")
            b.copy(far if to_padded else near, near if to_padded else far, run)

    def _offset(self, b: FunctionBuilder, index: Value, outer: Sequence[Value]) -> Value:
        """Emits the first byte of a run in the padded array; `index` is row-major over the `outer` dimensions."""
        offset: Value = constant(I64, 0)
        for d in reversed(range(len(outer))):
            stride = math.prod(self.padded.sizes[d + 1 :]) * self.padded.type.byte_width
            position = b.binary("urem", index, outer[d])
            index = b.binary("udiv", index, outer[d])
            offset = b.binary("add", offset, b.binary("mul", position, constant(I64, stride)))
        return offset


def _product(b: FunctionBuilder, values: Sequence[Value]) -> Value:
    return functools.reduce(lambda x, y: b.binary("mul", x, y), values, constant(I64, 1))


@record
class BoundedFunction:
    """A function that takes sizes, and calls the one on padded arrays."""

    name: str
    bounds: Sequence[int]
    """The greatest value of each size."""
    padded: CFunction
    """The function on padded arrays: its last inputs are sizes, its last outputs computed sizes."""
    inputs: Sequence[DenseArray]
    outputs: Sequence[DenseArray]

    @staticmethod
    def around(name: str, module: PaddedModule, function: CFunction) -> BoundedFunction:
        """Returns the function that calls the function of a padded module."""
        inputs = [*map(DenseArray, function.inputs, module.inputs)]
        return BoundedFunction(
            name, module.bounds, function, inputs, [*map(DenseArray, function.outputs, module.outputs)]
        )

    @property
    def arrays(self) -> list[DenseArray]:
        """Inputs and outputs without sizes."""
        return [*self.inputs, *self.outputs]

    @property
    def computed(self) -> Sequence[ArrayParameter]:
        """Outputs that are sizes."""
        return self.padded.outputs[len(self.outputs) :]

    @property
    def size_names(self) -> list[str]:
        """Names of the parameters for sizes."""
        return names_of_sizes(len(self.bounds), self._function.arguments)

    @property
    def _function(self) -> CFunction:
        """The function without its sizes."""
        outputs = [*(each.parameter for each in self.outputs), *self.computed]
        scratch = scratch_bytes(self._offsets[-1] + self.padded.scratch_bytes)
        inputs = [each.parameter for each in self.inputs]
        return replace(self.padded, name=self.name, inputs=inputs, outputs=outputs, scratch_bytes=scratch, externs={})

    @property
    def _offsets(self) -> list[int]:
        """The first byte of each padded array in the scratch memory, and the end."""
        return [*accumulate((each.padded_bytes for each in self.arrays), initial=0)]

    def declaration(self) -> str:
        """Returns the declaration in C."""
        names = [*self.size_names, *(f"*{each.name}" for each in self.computed)]
        shapes = [*(each.shape(names) for each in self.arrays), *(each.shape for each in self.computed)]
        checksum = hashlib.sha256(f"{self.padded.checksum} {shapes}".encode()).hexdigest()[:8]
        sizes = zip(self.size_names, self.bounds, strict=True)
        lines = [(f"int64_t {name}", f"a size, at most {bound}") for name, bound in sizes]
        text = declaration(self._function, checksum, [*lines, *self._function.parameters(shapes)])
        return f"/* Returns {NO_SIZE} for sizes above the bounds, and those that the program refuses. */\n{text}"

    def emitted(self) -> LirModule:
        """Returns the function."""
        sizes = [Parameter(name, I64) for name in self.size_names]
        pointers = [Parameter(f"p{k}", PTR) for k in range(len(self._function.arguments))]
        b = FunctionBuilder(Function(self.name, [*sizes, *pointers], I32, is_exported=True))
        refuse_pointers(b, pointers[:-1], [])
        for size, bound in zip(sizes, self.bounds, strict=True):
            with b.when(b.compare("ugt", size, constant(I64, bound))):
                b.ret(constant(I32, NO_SIZE))
        self._emit_call(b, sizes, pointers)
        b.ret(constant(I32, 0))
        return LirModule([b.finish()])

    def _emit_call(self, b: FunctionBuilder, sizes: Sequence[Value], pointers: Sequence[Value]) -> None:
        """Emits the call of the function on padded arrays, with copies before and after it."""
        (*given, scratch, pool), count = pointers, len(self.inputs)
        memory = aligned_pointer(b, scratch)
        dense, rest = given[: len(self.arrays)], given[len(self.arrays) :]
        *starts, end = (b.at(memory, offset, "i8") for offset in self._offsets)
        arrays = [d if each.is_static else p for each, d, p in zip(self.arrays, dense, starts, strict=True)]
        # Zeros, since uninitialised elements may be subnormal numbers, on which processors are slow.
        zeros = constant(I8, 0), constant(I64, self._offsets[count]), constant(I1, False)
        b.call_void("llvm.memset.p0.i64", memory, *zeros)
        for each, near, far in zip(self.inputs, dense, arrays, strict=False):
            each.copy(b, sizes, near, far, to_padded=True)
        words = [b.slot(I32, 1) for _ in sizes]
        for word, size in zip(words, sizes, strict=True):
            b.store(b.convert("trunc", size, "i32"), word, 4)
        status = b.call(self.padded.name, I32, *arrays[:count], *words, *arrays[count:], *rest, end, pool)
        with b.when(b.compare("ne", status, constant(I32, 0))):
            b.ret(status)
        known = [*sizes, *(b.convert("sext", b.load(word, I32, 4), "i64") for word in rest[: len(self.computed)])]
        for each, near, far in zip(self.outputs, dense[count:], arrays[count:], strict=True):
            each.copy(b, known, near, far)
