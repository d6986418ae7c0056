"""Functions by operation class: the rules of a pass or an emitter, each typed by the operation that it is for.

PULL = Registry[[Puller, Instruction, Indices], Expression]()

@PULL.rule(Gather)
def _gather(op: Gather, puller: Puller, instruction: Instruction, index: Indices) -> Expression: ...

PULL[instruction.op](instruction.op, puller, instruction, index)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from hloom.ops.operation import Operation

Op = TypeVar("Op", bound=Operation)
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Rule = Callable[Concatenate[Op, Parameters], Result]


class Registry(Generic[Parameters, Result]):
    """Functions of an operation and further parameters, by the class of the operation."""

    def __init__(self) -> None:
        self._functions: dict[type[Operation], Rule[Any, Parameters, Result]] = {}
        self._found: dict[type[Operation], Rule[Any, Parameters, Result] | None] = {}
        """The results of `get` so far."""

    def rule(self, declaration: type[Op]) -> Callable[[Rule[Op, Parameters, Result]], Rule[Op, Parameters, Result]]:
        """Decorates the function for operations of a class; those of subclasses may have functions of their own."""

        def add(function: Rule[Op, Parameters, Result]) -> Rule[Op, Parameters, Result]:
            self.add(declaration, function)
            return function

        return add

    def add(self, declaration: type[Op], function: Rule[Op, Parameters, Result]) -> None:
        """Registers the function for operations of a class, for functions that serve several."""
        self._functions[declaration] = function
        self._found.clear()

    def get(self, op: Operation) -> Rule[Any, Parameters, Result] | None:
        """Returns the function of the nearest base class of an operation; None without one."""
        declaration = type(op)
        try:  # costs nothing if the class is known
            return self._found[declaration]
        except KeyError:
            bases = declaration.__mro__
            found = self._found[declaration] = next((self._functions[b] for b in bases if b in self._functions), None)
            return found

    def __getitem__(self, op: Operation) -> Rule[Any, Parameters, Result]:
        """Returns the function for an operation. Raises KeyError without one."""
        found = self.get(op)
        if found is None:
            raise KeyError(op.opcode)
        return found

    def __contains__(self, op: object) -> bool:
        """Whether there is a function for an operation."""
        return isinstance(op, Operation) and self.get(op) is not None

    def __iter__(self) -> Iterator[type[Operation]]:
        """Iterates over the classes with functions of their own."""
        return iter(self._functions)
