"""XlaOp and XlaComputation, the objects that users of the builder handle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hloom.errors import ArgumentError
from hloom.ir import Computation, Instruction, Module
from hloom.shape import Shape

Computationlike = Any
"""An XlaComputation, or a Python function on XlaOps, which is traced."""
Padding = str | Sequence[tuple[int, int]]
"""SAME, VALID, or (low, high) for each dimension."""


class XlaOp:
    """A value in a computation under construction. Operators follow XLA's strict broadcasting (BC-1 to BC-3).

    >>> builder = hl.XlaBuilder("f")
    >>> x = builder.parameter(0, hl.f32[3], "x")
    >>> y = (x * 2 + 1)[1:]
    >>> y.shape
    Shape(f32[2])
    """

    __array_priority__ = 1000
    __array_ufunc__ = None
    __slots__ = ("builder", "instruction")

    def __init__(self, builder: Any, instruction: Instruction) -> None:
        self.builder = builder
        self.instruction = instruction

    @property
    def shape(self) -> Shape:
        """The shape of the value, known during building (GEN-2)."""
        return self.instruction.shape

    def __repr__(self) -> str:
        return f"XlaOp({self.instruction!r})"

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise ArgumentError(f"{self!r} is no array: it has a value when its computation runs, on arguments of the run")

    def __bool__(self) -> bool:
        raise ArgumentError("the value of an XlaOp is not known while building: use select or conditional")

    def __iter__(self) -> Any:
        raise ArgumentError("an XlaOp cannot be iterated: use slice or get_tuple_element")

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> XlaOp:  # type: ignore[override]
        return self.builder.eq(self, other)

    def __ne__(self, other: object) -> XlaOp:  # type: ignore[override]
        return self.builder.ne(self, other)

    def __getitem__(self, index: Any) -> XlaOp:
        """Returns an element of a tuple, or a slice of an array: integers, `start:limit:stride` and `...` as in
        NumPy.
        """
        if self.shape.is_tuple:
            return self.builder.get_tuple_element(self, index)
        return self.builder._index(self, index if isinstance(index, tuple) else (index,))

    def __neg__(self) -> XlaOp:
        return self.builder.neg(self)

    def __invert__(self) -> XlaOp:
        return self.builder.not_(self)

    def __abs__(self) -> XlaOp:
        return self.builder.abs(self)


def _operator(method: str, swapped: bool) -> Callable[[XlaOp, Any], XlaOp]:
    def apply(self: XlaOp, other: Any) -> XlaOp:
        function = getattr(self.builder, method)
        result: XlaOp = function(other, self) if swapped else function(self, other)
        return result

    return apply


for _name, _method in {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "mod": "rem", "pow": "pow", "and": "and_",
    "or": "or_", "xor": "xor", "lshift": "shift_left", "rshift": "shift_right_arithmetic", "matmul": "dot",
}.items():  # fmt: skip
    setattr(XlaOp, f"__{_name}__", _operator(_method, swapped=False))
    setattr(XlaOp, f"__r{_name}__", _operator(_method, swapped=True))
for _name in ("lt", "le", "gt", "ge"):
    setattr(XlaOp, f"__{_name}__", _operator(_name, swapped=False))


class XlaComputation:
    """A built computation: the entry of its own module.

    >>> builder = hl.XlaBuilder("negative")
    >>> builder.build(-builder.parameter(0, hl.f32[2], "x")).entry_computation
    Computation(negative: (f32[2]) -> f32[2])
    """

    def __init__(self, module: Module) -> None:
        self.module = module

    @property
    def entry_computation(self) -> Computation:
        """The computation that was built."""
        return self.module.entry

    def to_text(self, **options: Any) -> str:
        """Returns HLO text, which XLA parses too; `hloom.text.print_module` documents the options."""
        return self.module.to_text(**options)

    def __repr__(self) -> str:
        return f"XlaComputation({self.entry_computation!r})"
