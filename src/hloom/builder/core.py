"""Core of the builder: adding instructions, constants, traced functions, and building the module."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any

from hloom.builder.arguments import array_type, caller, element_type_of, typed_number
from hloom.builder.xla_op import Computationlike, XlaComputation, XlaOp
from hloom.errors import ArgumentError, RuleError, counted
from hloom.ir import Computation, Instruction, Module, clone_graph
from hloom.literal import Literal
from hloom.ops.operation import Operation
from hloom.ops.structure import Constant, Parameter
from hloom.shape import Shape, scalar
from hloom.types import PrimitiveType
from hloom.verifier import verify_module


class BuilderCore:
    """The computation under construction; base class of the methods of each family of operations."""

    def __init__(self, name: str = "computation") -> None:
        self.name = re.sub(r"[^\w.\-]", "_", name) if isinstance(name, str) and name else "computation"
        self._computation = Computation(self.name)
        self._counts: dict[str, int] = {}
        self._last_effect: dict[str, Instruction] = {}

    def parameter(self, index: int, shape: Shape, name: str = "") -> XlaOp:
        """Adds parameter `index` of the computation, from 0 (GEN-12)."""
        if not isinstance(shape, Shape):
            raise ArgumentError(f"a parameter has a shape like hl.f32[2, 3], got {shape!r}")
        return self._add(Parameter(number=index), (), shape, name or f"arg{index}")

    def constant(self, literal: Any) -> XlaOp:
        """Adds a constant: an array, a number, a nested list, a tuple of these, or a Literal."""
        value = Literal.from_value(literal)
        return self._add(Constant(literal=value), ())

    def build(self, root: XlaOp | None = None) -> XlaComputation:
        """Returns the verified computation, whose root is `root` or else the last instruction (GEN-12).

        The builder remains usable; the result is a copy. Raises VerifyError or RuleError.
        """
        if root is not None:
            self._own(root)
            self._computation.root = root.instruction
        module = Module(self.name)
        # Copy: the builder remains usable, and a computation may be called from several others.
        for computation, copy in clone_graph(self._computation).items():
            if computation is not self._computation:
                _make_name_unique(module, copy)
            module.add(copy, entry=computation is self._computation)
        module.set_default_entry_layouts()
        verify_module(module)
        return XlaComputation(module)

    def _add(self, op: Operation, operands: Sequence[XlaOp], shape: Shape | None = None, name: str = "") -> XlaOp:
        """Adds an instruction. Infers its shape if none is given, else checks it."""
        for operand in operands:
            self._own(operand)
        instructions = [operand.instruction for operand in operands]
        bound = op.bind([instruction.shape for instruction in instructions])
        if shape is None:
            shape = op.infer(*bound)
        else:
            op.check(shape, *bound)
        instruction = Instruction(self._unique(name or op.opcode), shape, op, instructions)
        self._computation.add(instruction)
        self._record_location(instruction)
        return XlaOp(self, instruction)

    def _record_location(self, instruction: Instruction) -> None:
        """Records the source location of the user's call."""
        instruction.location = caller()

    def _unique(self, name: str) -> str:
        name = re.sub(r"[^\w.\-]", "_", name)
        if not re.match(r"[A-Za-z_]", name):
            name = f"_{name}"
        count = self._counts.get(name, 0) + 1
        self._counts[name] = count
        return name if count == 1 else f"{name}.{count}"

    def _own(self, operand: XlaOp) -> None:
        if not isinstance(operand, XlaOp):
            raise ArgumentError(f"{operand!r} is not an XlaOp")
        if operand.builder is not self:
            raise ArgumentError(
                f"{operand.instruction!r} belongs to the builder {operand.builder.name!r}, not to {self.name!r}"
            )

    def _operand(self, value: Any, element_type: PrimitiveType | None = None) -> XlaOp:
        """Returns an XlaOp unchanged, other values as constants; Python numbers get `element_type`."""
        if isinstance(value, XlaOp):
            return value
        if isinstance(value, (bool, int, float, complex)) and element_type is not None and element_type.is_array:
            return self.constant(typed_number(value, element_type))
        return self.constant(value)

    def _operands(self, lhs: Any, rhs: Any) -> tuple[XlaOp, XlaOp]:
        return self._operand(lhs, element_type_of(rhs)), self._operand(rhs, element_type_of(lhs))

    def _array(self, value: Any, opcode: str, clause: str) -> XlaOp:
        operand = self._operand(value)
        array_type(operand.shape, opcode, clause)
        return operand

    def _list(self, operands: Any) -> list[XlaOp]:
        many = operands if isinstance(operands, (list, tuple)) else [operands]
        return [self._operand(operand) for operand in many]

    def _tuple_elements(self, operand: XlaOp, opcode: str, clause: str) -> list[XlaOp]:
        """The elements of a tuple of arrays, or the array itself."""
        if not operand.shape.is_tuple:
            return [operand]
        if not operand.shape.elements or any(not element.is_array for element in operand.shape.elements):
            raise RuleError(
                opcode, clause, f"takes an array or a tuple of arrays that is not empty, got {operand.shape}"
            )
        return [self.get_tuple_element(operand, i) for i in range(len(operand.shape.elements))]

    def _callable(self, computation: Computationlike, parameters: Sequence[Shape], name: str) -> Computation:
        """Converts an XlaComputation, a Computation or a Python function to a computation; a function is traced."""
        if isinstance(computation, XlaComputation):
            return computation.entry_computation
        if isinstance(computation, Computation):
            return computation
        if not callable(computation):
            raise ArgumentError(f"{name} is an XlaComputation or a function on XlaOps, got {computation!r}")
        inner = type(self)(name)
        arguments = [inner.parameter(i, shape) for i, shape in enumerate(parameters)]
        try:
            inspect.signature(computation).bind(*arguments)
        except TypeError:
            raise RuleError(
                name, "GEN-8", f"the function is called with {len(parameters)} arguments, which it does not take"
            ) from None
        except ValueError:
            pass
        root = computation(*arguments)
        if not isinstance(root, XlaOp):
            root = inner.constant(root)
        inner._own(root)
        inner._computation.root = root.instruction
        return inner._computation

    def _reducer(self, computation: Computationlike, arrays: Sequence[XlaOp]) -> Computation:
        scalars = [scalar(array_type(a.shape, "reduce", "REDUCE-9")) for a in arrays]
        return self._callable(computation, scalars * 2, "reducer")

    def __repr__(self) -> str:
        return f"XlaBuilder({self.name}: {counted(len(self._computation.instructions), 'instruction')})"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"XlaBuilder has no operation {name!r}")


def _make_name_unique(module: Module, computation: Computation) -> None:
    names = {other.name for other in module.computations}
    base, number = computation.name, 1
    while computation.name in names or computation.name == module.name:
        computation.name = f"{base}.{number}"
        number += 1
