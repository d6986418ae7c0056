"""The buffers of a program that is being built: values, results, and each constant once."""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.backends.cpu.program.program import TOKEN_SLOT, Buffer, BufferTree, Program, Routine, Slot
from hloom.shape import Shape
from hloom.types import PrimitiveType
from hloom.values import Value


class ProgramBuffers:
    """Adds buffers to a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.counts: dict[str, int] = {}
        self.constants: dict[Any, Buffer] = {}

    def new(self, shape: Shape, kind: str = "temp", data: Any = None) -> Buffer:
        """Returns a new buffer for an array."""
        buffer = Buffer(kind, self._next_index(kind), shape.element_type, shape.dimensions, data)
        self.program.buffers.append(buffer)
        return buffer

    def new_bytes(self, size: int) -> Buffer:
        """Returns a temporary of `size` bytes."""
        return self.new(Shape.array(PrimitiveType.U8, (size,)))

    def _next_index(self, kind: str) -> int:
        """Returns the index of the next buffer of a kind."""
        index = self.counts.get(kind, 0)
        self.counts[kind] = index + 1
        return index

    def new_value(self, shape: Shape, kind: str = "temp") -> BufferTree:
        """Returns new buffers for a value, and slots for what only the host can hold."""
        if shape.is_tuple:
            return tuple(self.new_value(element, kind) for element in shape.elements)
        if shape.is_array and not shape.is_dynamic:
            return self.new(shape, kind)
        if shape.is_token:
            return TOKEN_SLOT
        self.program.slot_count += 1
        return Slot(self.program.slot_count - 1)

    def new_outputs(self, value: BufferTree, shape: Shape) -> BufferTree:
        """Returns buffers for the results; slots are kept, since the host reads them at the end."""
        if isinstance(value, tuple):
            return tuple(self.new_outputs(v, s) for v, s in zip(value, shape.elements, strict=True))
        return value if isinstance(value, Slot) else self.new(shape, "output")

    def constant(self, shape: Shape, value: Value) -> BufferTree:
        """Returns the buffers of a constant."""
        if isinstance(value, tuple):
            return tuple(map(self.constant, shape.elements, value))
        return self.constant_array(Shape.array(shape.element_type, shape.dimensions), np.ascontiguousarray(value))

    def constant_array(self, shape: Shape, value: np.ndarray[Any, Any]) -> Buffer:
        """Returns the buffer of an array that is constant."""
        key = (shape.element_type, shape.dimensions, value.tobytes())
        buffer = self.constants.get(key)
        if buffer is None:
            buffer = self.constants[key] = self.new(shape, "constant", value)
        return buffer

    def routine(self, name: str) -> Buffer:
        """Returns the buffer that stands for the address of a routine."""
        if name not in self.constants:
            index = self._next_index("constant")
            self.constants[name] = Routine("constant", index, PrimitiveType.U8, (0,), name=name)
            self.program.buffers.append(self.constants[name])
        return self.constants[name]

    def constant_like(self, buffer: Buffer) -> Buffer:
        """Returns the buffer of this program that holds a constant of a subroutine."""
        if isinstance(buffer, Routine):
            return self.routine(buffer.name)
        assert buffer.data is not None
        return self.constant_array(Shape.array(buffer.type, buffer.dimensions), buffer.data)
