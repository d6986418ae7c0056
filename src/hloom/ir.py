"""The graph: a Module of Computations of Instructions. The verifier (`hloom.verifier`) states its invariants.

An `Instruction` holds an immutable `Operation` (opcode and attribute values), its operands and its result shape. The
graph is mutable; `users` and control edges are kept in step by the methods here, so passes change operands with
`replace_operand` and `replace_all_uses_with` rather than by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hloom.errors import ArgumentError
from hloom.ops.operation import Operation
from hloom.shape import Shape
from hloom.sharding import Sharding


class Instruction:
    """One node: `%name = shape opcode(operands), attributes`.

    `users` maps each instruction that has this one among its operands to None: an ordered set. `metadata`,
    `frontend_attributes` and `extra_attributes` are dictionaries as the text shows them; `extra_attributes` keeps the
    raw text of attributes that hloom does not know.
    """

    __slots__ = (
        "backend_config",
        "control_predecessors",
        "control_successors",
        "extra_attributes",
        "frontend_attributes",
        "location",
        "metadata",
        "name",
        "op",
        "operands",
        "parent",
        "shape",
        "sharding",
        "users",
    )

    def __init__(self, name: str, shape: Shape, op: Operation, operands: Iterable[Instruction] = ()) -> None:
        self.name = name
        self.shape = shape
        self.op = op
        self.operands: list[Instruction] = list(operands)
        self.users: dict[Instruction, None] = {}
        self.control_predecessors: list[Instruction] = []
        self.control_successors: list[Instruction] = []
        self.metadata: dict[str, Any] = {}
        self.frontend_attributes: dict[str, str] = {}
        self.sharding: Sharding | None = None
        self.backend_config = ""
        self.extra_attributes: dict[str, str] = {}
        self.parent: Computation | None = None
        self.location = ""
        """Where the user wrote it: a line of the builder's caller, or a line of the text."""
        for operand in self.operands:
            operand.users[self] = None

    @property
    def opcode(self) -> str:
        """That of the operation, as HLO text writes it."""
        return self.op.opcode

    @property
    def operand_shapes(self) -> list[Shape]:
        """The shapes of the operands, in order."""
        return [operand.shape for operand in self.operands]

    def replace_operand(self, position: int, new: Instruction) -> None:
        """Reads `new` at this position instead; users of both stay right."""
        old = self.operands[position]
        self.operands[position] = new
        if old not in self.operands:
            old.users.pop(self, None)
        new.users[self] = None

    def replace_all_uses_with(self, new: Instruction) -> None:
        """Every user, and the root of the computation, reads `new` instead."""
        for user in list(self.users):
            for position, operand in enumerate(user.operands):
                if operand is self and user is not new:
                    user.replace_operand(position, new)
        if self.parent is not None and self.parent.root is self:
            self.parent.root = new

    def add_control_dependency(self, successor: Instruction) -> None:
        """`successor` runs after this instruction."""
        if successor not in self.control_successors:
            self.control_successors.append(successor)
            successor.control_predecessors.append(self)

    def __repr__(self) -> str:
        operands = ", ".join(f"%{operand.name}" for operand in self.operands)
        return f"%{self.name} = {self.shape} {self.opcode}({operands})"


class Computation:
    """A function: instructions in an order in which operands come before users, and a root."""

    __slots__ = ("_root", "execution_thread", "instructions", "name", "parent")

    def __init__(self, name: str) -> None:
        self.name = name
        self.instructions: list[Instruction] = []
        self._root: Instruction | None = None
        self.parent: Module | None = None
        self.execution_thread = "main"

    @property
    def root(self) -> Instruction:
        """The instruction whose value the computation returns: the last one unless another is set (GEN-12)."""
        if self._root is not None:
            return self._root
        if not self.instructions:
            raise ArgumentError(f"computation {self.name} has no instructions, so no root")
        return self.instructions[-1]

    @root.setter
    def root(self, instruction: Instruction) -> None:
        self._root = instruction

    @property
    def parameters(self) -> list[Instruction]:
        """The parameter instructions in the order of their numbers."""
        found = [i for i in self.instructions if i.opcode == "parameter"]
        return sorted(found, key=lambda i: int(i.op.number))  # type: ignore[attr-defined]

    @property
    def parameter_shapes(self) -> list[Shape]:
        """Those of the parameters, by their numbers."""
        return [parameter.shape for parameter in self.parameters]

    @property
    def result_shape(self) -> Shape:
        """The shape of the root."""
        return self.root.shape

    def add(self, instruction: Instruction) -> Instruction:
        """Appends an instruction."""
        instruction.parent = self
        self.instructions.append(instruction)
        return instruction

    def remove(self, instruction: Instruction) -> None:
        """Takes an instruction without users out of the computation, its control edges included."""
        if instruction.users or instruction is self.root:
            raise ArgumentError(f"%{instruction.name} has users or is the root: it cannot be removed")
        for operand in set(instruction.operands):
            operand.users.pop(instruction, None)
        for before in instruction.control_predecessors:
            before.control_successors.remove(instruction)
        for after in instruction.control_successors:
            after.control_predecessors.remove(instruction)
        self.instructions.remove(instruction)
        instruction.parent = None

    def called_computations(self) -> Iterator[Computation]:
        """The computations that the instructions call, in order, each once."""
        return called_by(self.instructions)

    def __repr__(self) -> str:
        parameters = ", ".join(map(str, self.parameter_shapes))
        return f"Computation({self.name}: ({parameters}) -> {self.result_shape})"


@dataclass(slots=True)
class InputOutputAlias:
    """The output at `output_index` may or must share the buffer of a parameter: donation."""

    output_index: tuple[int, ...]
    parameter_number: int
    parameter_index: tuple[int, ...]
    must_alias: bool = False


@dataclass(slots=True)
class BufferDonor:
    """A parameter's buffer that the program may overwrite without it being an output."""

    parameter_number: int
    parameter_index: tuple[int, ...]


@dataclass(eq=False)
class Module:
    """A program: its computations, callees before callers, and what the header of HLO text says.

    `entry_parameter_layouts` and `entry_result_layout` are the shapes with layouts of `entry_computation_layout`;
    None means those of the entry computation itself. `stack_frames` holds the tables FileNames, FunctionNames,
    FileLocations and StackFrames as they stand in the text: table name -> rows. `extra_attributes` keeps raw header
    attributes that hloom does not know.
    """

    name: str
    computations: list[Computation] = field(default_factory=list)
    entry_computation: Computation | None = None
    is_scheduled: bool = False
    replica_count: int = 1
    num_partitions: int = 1
    entry_parameter_layouts: list[Shape] | None = None
    entry_result_layout: Shape | None = None
    input_output_alias: list[InputOutputAlias] = field(default_factory=list)
    buffer_donors: list[BufferDonor] = field(default_factory=list)
    frontend_attributes: dict[str, str] = field(default_factory=dict)
    stack_frames: dict[str, list[Any]] = field(default_factory=dict)
    extra_attributes: dict[str, str] = field(default_factory=dict)

    @property
    def entry(self) -> Computation:
        """The entry computation; ArgumentError where none is set."""
        if self.entry_computation is None:
            raise ArgumentError(f"module {self.name} has no ENTRY computation")
        return self.entry_computation

    def add(self, computation: Computation, entry: bool = False) -> Computation:
        """Appends a computation, after those that it calls; `entry` makes it the entry."""
        computation.parent = self
        self.computations.append(computation)
        if entry:
            self.entry_computation = computation
        return computation

    def set_default_entry_layouts(self) -> None:
        """Gives `entry_computation_layout` the shapes of the entry's own parameters and result."""
        self.entry_parameter_layouts = self.entry.parameter_shapes
        self.entry_result_layout = self.entry.result_shape

    def instructions(self) -> Iterator[Instruction]:
        """Every instruction of every computation."""
        for computation in self.computations:
            yield from computation.instructions

    def to_text(self, **options: Any) -> str:
        """HLO text; for the options see `hloom.text.print_module`."""
        from hloom.text import print_module

        return print_module(self, **options)

    def _repr_html_(self) -> str:
        """In notebooks: the text, with colours."""
        from hloom.text import module_html

        return module_html(self)

    def __repr__(self) -> str:
        count = sum(len(c.instructions) for c in self.computations)
        return f"Module({self.name}: {len(self.computations)} computations, {count} instructions)"


def post_order(computation: Computation) -> list[Instruction]:
    """The instructions in an order in which operands and control predecessors come before their users."""
    order: list[Instruction] = []
    done: set[Instruction] = set()
    for start in computation.instructions:
        stack: list[tuple[Instruction, Iterator[Instruction]]] = []
        if start not in done:
            done.add(start)
            stack.append((start, _before(start)))
        while stack:
            instruction, rest = stack[-1]
            for previous in rest:
                if previous not in done:
                    done.add(previous)
                    stack.append((previous, _before(previous)))
                    break
            else:
                order.append(instruction)
                stack.pop()
    return order


def _before(instruction: Instruction) -> Iterator[Instruction]:
    yield from instruction.operands
    yield from instruction.control_predecessors


def called_by(instructions: Iterable[Instruction]) -> Iterator[Computation]:
    """The computations that instructions call, in order, each once."""
    seen: set[int] = set()
    for instruction in instructions:
        if not instruction.op.calling_fields:
            continue
        for computation in instruction.op.computations:
            if id(computation) not in seen:
                seen.add(id(computation))
                yield computation


def callees_first(
    *starts: Computation, called: Callable[[Computation], Iterator[Computation]] = Computation.called_computations
) -> list[Computation]:
    """The computations reachable from some, these included, each after those that it calls.

    `called` gives what a computation calls, in another order than that of its instructions.
    """
    order: list[Computation] = []
    done: set[int] = set()
    for start in starts:
        stack: list[tuple[Computation, Iterator[Computation]]] = []
        if id(start) not in done:
            done.add(id(start))
            stack.append((start, called(start)))
        while stack:
            computation, rest = stack[-1]
            for callee in rest:
                if id(callee) not in done:
                    done.add(id(callee))
                    stack.append((callee, called(callee)))
                    break
            else:
                order.append(computation)
                stack.pop()
    return order


def clone_computation(computation: Computation, replacement: Callable[[Computation], Computation]) -> Computation:
    """A copy with instructions of its own, which calls `replacement(c)` where the original calls c."""
    copy = Computation(computation.name)
    copy.execution_thread = computation.execution_thread
    new: dict[Instruction, Instruction] = {}
    for old in computation.instructions:
        instruction = Instruction(
            old.name, old.shape, old.op.with_computations(replacement), [new[operand] for operand in old.operands]
        )
        for attribute in ("metadata", "frontend_attributes", "extra_attributes"):
            setattr(instruction, attribute, dict(getattr(old, attribute)))
        instruction.sharding, instruction.backend_config = old.sharding, old.backend_config
        instruction.location = old.location
        new[old] = copy.add(instruction)
    for old in computation.instructions:
        for before in old.control_predecessors:
            new[before].add_control_dependency(new[old])
    if computation.instructions:
        copy.root = new[computation.root]
    return copy


def flatten(shapes: Sequence[Shape]) -> list[Shape]:
    """The leaves of several shapes in order."""
    return [leaf for shape in shapes for leaf in shape.leaves()]
