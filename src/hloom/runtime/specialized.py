"""Executables with unbounded sizes: programs are compiled for each set of argument sizes, on first use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hloom.errors import ArgumentError, HloomError
from hloom.ir import Module
from hloom.runtime.arguments import check_argument
from hloom.runtime.executable import Executable
from hloom.shape import Shape
from hloom.system.forks import new_lock
from hloom.values import Value


class SpecializedExecutable(Executable):
    """A module whose parameters have unbounded sizes, `f32[?,3]` (SL-25); created by `hloom.compile`.

    `for_shapes` is the executable of one set of sizes. All lists of arguments of a run have the same sizes.
    """

    def __init__(self, module: Module, count: int, compile_for: Callable[[list[Shape]], Executable]) -> None:
        self.module = module
        self._count = count
        self._compile = compile_for
        self._executables: dict[tuple[Shape, ...], Executable] = {}
        self._lock = new_lock()

    @property
    def input_shapes(self) -> list[Shape]:
        return self.module.entry.parameter_shapes

    @property
    def output_shape(self) -> Shape:
        return self.module.entry.result_shape

    @property
    def list_count(self) -> int:
        return self._count

    def for_shapes(self, shapes: Sequence[Shape]) -> Executable:
        """The executable for parameters of these static shapes; RuleError if they contradict each other."""
        key = tuple(shapes)
        with self._lock:
            if key not in self._executables:
                try:
                    self._executables[key] = self._compile(list(key))
                except HloomError as error:
                    pairs = zip(self.module.entry.parameters, shapes, strict=True)
                    raise error.at("a call with " + ", ".join(f"%{p.name} = {s}" for p, s in pairs)) from None
            return self._executables[key]

    def run_replicas(self, arguments: Sequence[Sequence[Any]], timeout: float | None = None) -> list[Value]:
        if len(arguments) != self._count:
            raise ArgumentError(f"{self._count} devices need as many lists of arguments, got {len(arguments)}")
        lists = [self._checked(each) for each in arguments]
        shapes = [self._shapes(each) for each in lists]
        if any(other != shapes[0] for other in shapes):
            raise ArgumentError("all devices take arguments of the same sizes")
        return self.for_shapes(shapes[0]).run_replicas(lists, timeout)

    def _checked(self, arguments: Sequence[Any]) -> list[Value]:
        shapes = self.input_shapes
        if len(arguments) != len(shapes):
            raise ArgumentError(f"{self.module.name} takes {len(shapes)} arguments, got {len(arguments)}")
        pairs = zip(arguments, shapes, strict=True)
        return [check_argument(value, shape, f"argument {k}") for k, (value, shape) in enumerate(pairs)]

    def _shapes(self, arguments: Sequence[Value]) -> list[Shape]:
        return [_static(value, shape) for value, shape in zip(arguments, self.input_shapes, strict=True)]


def _static(value: Any, shape: Shape) -> Shape:
    """The shape of a parameter, with its unbounded sizes replaced by those of an argument."""
    if shape.is_tuple:
        return Shape.tuple_of(map(_static, value, shape.elements))
    if not shape.is_unbounded:
        return shape
    bounded = [flag and size >= 0 for flag, size in zip(shape.dynamic_dimensions, shape.dimensions, strict=True)]
    sizes = [old if flag else new for flag, old, new in zip(bounded, shape.dimensions, value.shape, strict=True)]
    return Shape.array(shape.element_type, sizes, bounded, shape.layout)
