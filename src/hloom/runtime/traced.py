"""Executables of Python functions: they are traced and compiled for each set of argument shapes, on first use."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from hloom.errors import ArgumentError
from hloom.ir import Module
from hloom.runtime.executable import Executable
from hloom.shape import Shape
from hloom.system.forks import new_lock
from hloom.values import Value

Traced = tuple[Hashable, list[Value], Callable[[], Executable]]
"""A call: the shapes, types and structure of its arguments, their arrays, and what compiles the program for them."""


class TracedExecutable(Executable):
    """A function that JAX traces; created by `hloom.compile`.

    It is called with arguments of the function, any pytrees of arrays, and returns a tuple of the arrays of the result,
    or the one array. `module` and the shapes are those of the last call, and unknown before the first.
    """

    def __init__(self, name: str, trace: Callable[[Sequence[Any]], Traced]) -> None:
        self.name = name
        self._trace = trace
        self._executables: dict[Hashable, Executable] = {}
        self._last: Executable | None = None
        self._lock = new_lock()

    @property
    def _known(self) -> Executable:
        if self._last is None:
            raise ArgumentError(f"{self.name} is traced at its first call: its shapes follow from the arguments")
        return self._last

    @property
    def module(self) -> Module:  # type: ignore[override]
        """The program of the last call."""
        return self._known.module

    @property
    def input_shapes(self) -> list[Shape]:
        return self._known.input_shapes

    @property
    def output_shape(self) -> Shape:
        return self._known.output_shape

    @property
    def list_count(self) -> int:
        return 1 if self._last is None else self._last.list_count

    def run_replicas(self, arguments: Sequence[Sequence[Any]], timeout: float | None = None) -> list[Value]:
        calls = [self._trace(each) for each in arguments]
        keys = {key for key, _, _ in calls}
        if len(keys) != 1:
            raise ArgumentError("all devices take arguments of the same shapes")
        (key,) = keys
        with self._lock:
            if key not in self._executables:
                self._executables[key] = calls[0][2]()
            self._last = executable = self._executables[key]
        return executable.run_replicas([leaves for _, leaves, _ in calls], timeout)

    def __repr__(self) -> str:
        return f"TracedExecutable({self.name})" if self._last is None else super().__repr__()
