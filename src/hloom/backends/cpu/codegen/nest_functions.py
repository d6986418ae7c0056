"""The functions of nests: each nest's once, and as a task that takes its pointers from a frame."""

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
    """A nest's function: its name, the kernel buffers it takes, the text, and what that needs."""

    name: str
    buffers: list[int]
    lines: list[str]
    declarations: dict[str, None]
    chunk: int
    extent: int
    locations: Sequence[str]
    """The instruction that each line is for, where lines are tied."""
    task: list[str] = field(default_factory=list)
    """A function that runs a chunk of the nest with pointers from a frame, where that is asked for."""

    @property
    def chunks(self) -> int:
        """0 where the nest runs on one thread."""
        return -(-self.extent // self.chunk) if self.chunk else 0

    def needed_task(self) -> str:
        """The name of `task`, which is written where it was not: `void (ptr frame, i64 chunk)`."""
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
    """Writes the function of each nest once; with `has_locations` each line keeps the instruction that it is for."""

    vector_bytes: int
    has_locations: bool
    written: dict[tuple[int, int, int], NestFunction] = field(default_factory=dict)
    """By the identity of the kernel, the number of its nest, and the chunks of its loop."""

    def of(self, kernel: Kernel, position: int, nest: Nest, chunk: int) -> NestFunction:
        """The function of a nest, which runs `chunk` rounds of its first loop at a time; 0: all."""
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
