"""Emits the functions of loop nests, each nest once, and variants that run a chunk as a task."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hloom.backends.cpu.codegen.modules import Merging, Unit
from hloom.backends.cpu.kernels.kernel_function import task_function
from hloom.backends.cpu.nests.emitter import emit_nest
from hloom.lir import I64, PTR, Function, constant
from hloom.loops.nest import Kernel, Nest


@dataclass(slots=True)
class NestFunction:
    """Function of a nest, and the indices of the kernel buffers that it takes."""

    function: Function
    buffers: list[int]
    chunk: int
    extent: int
    task: Function | None = None
    """Task that runs a chunk of the nest; None until needed."""

    @property
    def chunks(self) -> int:
        """Number of chunks; 0 if the nest runs on one thread."""
        return -(-self.extent // self.chunk) if self.chunk else 0

    def needed_task(self) -> Function:
        """Returns the task, which captures the addresses of the buffers, emitting it at the first call."""
        if self.task is None:
            b = task_function(f"{self.function.name}.task").as_call_only()
            b.function.is_exported = True
            context, index = b.function.parameters
            first = b.binary("mul", index, constant(I64, self.chunk))
            end = b.binary("add", first, constant(I64, self.chunk or self.extent))
            last = b.intrinsic("smin", end, constant(I64, self.extent))
            pointers = b.unpack(context, *[PTR] * len(self.buffers))
            b.call_void(self.function.name, *pointers, first, last)
            self.task = b.finish()
        return self.task

    def unit(self, merging: Merging) -> Unit:
        """Returns the functions as a unit."""
        return Unit([self.function] if self.task is None else [self.function, self.task], merging)


@dataclass
class NestFunctions:
    """Emits the functions of nests, each once; with `has_locations` instructions have debug locations."""

    vector_bytes: int
    has_locations: bool
    written: dict[tuple[int, int, int], NestFunction] = field(default_factory=dict)
    """Functions by identity of the kernel, index of the nest in it, and chunk size."""

    def of(self, kernel: Kernel, position: int, nest: Nest, chunk: int) -> NestFunction:
        """Returns the function of a nest, whose tasks run `chunk` iterations of the outermost loop (0: all)."""
        key = (id(kernel), position, chunk)
        if key not in self.written:
            if chunk != nest.schedule.chunk:
                nest = nest.with_schedule(replace(nest.schedule, chunk=chunk))
            self.written[key] = self._write(f"nest{len(self.written)}", kernel, nest)
        return self.written[key]

    def _write(self, name: str, kernel: Kernel, nest: Nest) -> NestFunction:
        function, buffers = emit_nest(name, kernel, nest, self.vector_bytes, self.has_locations)
        extent = nest.loops[0].extent if nest.loops else 1
        return NestFunction(function, buffers, nest.schedule.chunk, extent)
