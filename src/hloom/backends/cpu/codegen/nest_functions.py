"""Emits the functions of loop nests, each nest once, and variants that run a chunk as a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hloom.backends.cpu.codegen.call_tables import from_frame
from hloom.backends.cpu.llvm.text import I64, Builder, Value, constant
from hloom.backends.cpu.nests.emitter import emit_nest
from hloom.backends.cpu.nests.state import LOCATION_MARK
from hloom.loops.nest import Kernel, Nest


@dataclass(slots=True)
class NestFunction:
    """Function of a nest: name, indices of the kernel buffers that it takes, text and declarations."""

    name: str
    buffers: list[int]
    lines: list[str]
    declarations: dict[str, None]
    chunk: int
    extent: int
    locations: Sequence[str]
    """Instruction that each line is for, if debug locations are enabled."""
    task: list[str] = field(default_factory=list)
    """Function that runs a chunk of the nest with pointers from a frame; empty until needed."""

    @property
    def chunks(self) -> int:
        """Number of chunks; 0 if the nest runs on one thread."""
        return -(-self.extent // self.chunk) if self.chunk else 0

    def needed_task(self) -> str:
        """Returns the name of the task `void (ptr frame, i64 chunk)`, emitting it at the first call."""
        name = f"{self.name}.task"
        if not self.task:
            b = Builder()
            arguments = [from_frame(b, position) for position in range(len(self.buffers))]
            first = b.binary("mul", Value("%chunk", I64), constant(I64, self.chunk))
            end = b.binary("add", first, constant(I64, self.chunk or self.extent))
            last = b.intrinsic("smin", end, constant(I64, self.extent))
            b.line(f"call void @{self.name}({', '.join(map(str, [*arguments, first, last]))}) #1")
            b.line("ret void")
            self.declarations.update(b.declarations)
            self.task = [f"define void @{name}(ptr %frame, i64 %chunk) nounwind #0 {{\nentry:", *b.lines, "}"]
        return name


@dataclass
class NestFunctions:
    """Emits the functions of nests, each once; with `has_locations` each line keeps the instruction that it is for."""

    vector_bytes: int
    has_locations: bool
    written: dict[tuple[int, int, int], NestFunction] = field(default_factory=dict)
    """Functions by identity of the kernel, index of the nest in it, and chunk size."""

    def of(self, kernel: Kernel, position: int, nest: Nest, chunk: int) -> NestFunction:
        """Returns the function of a nest, whose tasks run `chunk` iterations of the outermost loop (0: all)."""
        key = (id(kernel), position, chunk)
        if key not in self.written:
            if chunk != nest.schedule.chunk:
                nest = replace(nest, schedule=replace(nest.schedule, chunk=chunk))
            self.written[key] = self._write(f"nest{len(self.written)}", kernel, nest)
        return self.written[key]

    def _write(self, name: str, kernel: Kernel, nest: Nest) -> NestFunction:
        text, buffers, declarations = emit_nest(name, kernel, nest, self.vector_bytes, self.has_locations)
        lines = text.split("\n")
        locations = [line.partition(LOCATION_MARK)[2] for line in lines] if self.has_locations else []
        lines = [line.partition(LOCATION_MARK)[0] for line in lines] if self.has_locations else lines
        extent = nest.loops[0].extent if nest.loops else 1
        return NestFunction(name, buffers, lines, declarations, nest.schedule.chunk, extent, locations)
