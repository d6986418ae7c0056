"""The HLO graph: a `Module` of `Computation`s of `Instruction`s. `hloom.verifier.module` lists its invariants.

An `Instruction` holds an immutable `Operation` (opcode and attribute values), its operands and its result shape. The
graph is mutable: the methods here keep `users` and control edges consistent, so passes change operands with
`replace_operand`, `set_operands` and `replace_all_uses_with`, never by assignment.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from hloom.errors import ArgumentError, counted
from hloom.ops.indexing import IndexingMap, indexing_map
from hloom.ops.operation import Operation
from hloom.ops.structure import Parameter
from hloom.shape import Shape
from hloom.sharding import Sharding

tick = itertools.count(1).__next__
"""Returns the time, as a number, on a clock that ticks at each change of a graph."""


class Instruction:
    """A node of the graph: `%name = shape opcode(operands), attributes`.

    `users` is an ordered set, a dictionary from each instruction that has this one among its operands to None.
    `metadata`, `frontend_attributes` and `extra_attributes` are dictionaries as HLO text shows them; `extra_attributes`
    keeps the raw text of attributes that hloom does not know. `parent` is the computation, None until the instruction
    is added to one. `changed` is the time (`tick`) of the last change of its operands or users, or of the root from it
    or to it.

    >>> module = hl.parse("HloModule m  ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] negate(x) }")
    >>> negated = module.entry.root
    >>> negated, negated.opcode, negated.operands
    (%y = f32[2] negate(%x), 'negate', [%x = f32[2] parameter(0)])
    """

    __slots__ = (
        "_checked",
        "_mapped",
        "backend_config",
        "changed",
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
        self._mapped: tuple[Operation, list[Shape], IndexingMap | None] | None = None
        """The last indexing map, with the operation and the shapes that it is for."""
        self._checked: tuple[Operation, Shape, list[Shape]] | None = None
        """An operation without computations, and shapes, that satisfy its rule."""
        self.location = ""
        """The source location for messages: a line of the builder's caller, or a line of the text; "" if unknown."""
        self.changed = now = tick()
        for operand in self.operands:
            operand.users[self] = None
            operand.changed = now

    @property
    def scope(self) -> str:
        """The traced operation with the scopes around it, `jit(f)/layer/dot_general`, from metadata; "" if unknown."""
        return str(self.metadata.get("op_name", ""))

    @property
    def source(self) -> str:
        """The `file:line` of the traced function, from metadata; "" if unknown."""
        file, line = (self.metadata.get(key, "") for key in ("source_file", "source_line"))
        return f"{file}:{line}" if file and line else str(file)

    @property
    def opcode(self) -> str:
        """The opcode of the operation, as in HLO text: `dynamic-slice`."""
        return self.op.opcode

    @property
    def parameter_number(self) -> int:
        """The number of a parameter, from 0; for instructions that are parameters."""
        assert isinstance(self.op, Parameter)
        return self.op.number

    @property
    def operand_shapes(self) -> list[Shape]:
        """The shapes of the operands, in operand order."""
        return [operand.shape for operand in self.operands]

    @property
    def is_checked(self) -> bool:
        """Whether `check` has passed for the present operation and shapes."""
        return self._checked is not None and self._checked == (self.op, self.shape, self.operand_shapes)

    def check(self, known: dict[tuple[int, ...], Instruction]) -> None:
        """Checks the shapes against the rule of the operation (GEN-2). Raises HloomError if they violate it.

        Among instructions with the same operation and shapes the first is checked, which is then `known`.
        """
        if self.is_checked:
            return
        shapes = self.operand_shapes
        first = known.setdefault((id(self.op), id(self.shape), *map(id, shapes)), self)
        if first is self or first._checked is None:
            self.op.check(self.shape, *self.op.bind(shapes))
            self._checked = None if self.op.calling_fields else (self.op, self.shape, shapes)
        else:
            self._checked = first._checked

    def matches(self, pattern: str) -> bool:
        """Whether the name matches a glob pattern, which may begin with `%`: `fusion.*`, `%dot.3`."""
        return fnmatchcase(self.name, pattern.removeprefix("%"))

    def indexing_map(self) -> IndexingMap | None:
        """Returns the operand elements that each element of the result, or of each result of a tuple, is computed from.

        None if the operation has no indexing map.
        """
        shapes = [self.shape, *self.operand_shapes]
        if self._mapped is None or self._mapped[0] is not self.op or self._mapped[1] != shapes:
            result = next(self.shape.leaves(), self.shape)
            self._mapped = (self.op, shapes, indexing_map(self.op, result, shapes[1:]))
        return self._mapped[2]

    def replace_operand(self, position: int, new: Instruction) -> None:
        """Replaces the operand at `position` (0-based) by `new`, and updates the users of both."""
        old = self.operands[position]
        self.operands[position] = new
        if old not in self.operands:
            old.users.pop(self, None)
        new.users[self] = None
        self.changed = old.changed = new.changed = tick()

    def set_operands(self, new: Iterable[Instruction]) -> None:
        """Replaces all operands, of which there may be another number, and updates the users of old and new ones."""
        self.changed = now = tick()
        for operand in self.operands:
            operand.users.pop(self, None)
            operand.changed = now
        self.operands = list(new)
        for operand in self.operands:
            operand.users[self] = None
            operand.changed = now

    def disconnect(self) -> None:
        """Removes the instruction from the users of its operands, and its control edges."""
        now = tick()
        for operand in self.operands:
            operand.users.pop(self, None)
            operand.changed = now
        for before in self.control_predecessors:
            before.control_successors.remove(self)
        for after in self.control_successors:
            after.control_predecessors.remove(self)

    def replace_all_uses_with(self, new: Instruction) -> None:
        """Makes all users, and the root of the computation, refer to `new` instead; `new` itself keeps its operands."""
        for user in list(self.users):
            for position, operand in enumerate(user.operands):
                if operand is self and user is not new:
                    user.replace_operand(position, new)
        if self.parent is not None and self.parent.root is self:
            self.parent.root = new

    def add_control_dependency(self, successor: Instruction) -> None:
        """Adds a control edge: `successor` must run after this instruction. No effect if the edge exists."""
        if successor not in self.control_successors:
            self.control_successors.append(successor)
            successor.control_predecessors.append(self)

    def __repr__(self) -> str:
        number = [str(self.parameter_number)] if isinstance(self.op, Parameter) else []
        operands = ", ".join([*number, *(f"%{operand.name}" for operand in self.operands)])
        return f"%{self.name} = {self.shape} {self.opcode}({operands})"


class Computation:
    """A function of a module: a list of instructions, in which operands precede their users, and a root.

    `execution_thread` is "main" unless an async-start runs the computation elsewhere. `parent` is the module, None
    until the computation is added to one.

    >>> module = hl.parse("HloModule m  ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] negate(x) }")
    >>> module.entry
    Computation(e: (f32[2]) -> f32[2])
    >>> module.entry.instructions
    [%x = f32[2] parameter(0), %y = f32[2] negate(%x)]
    """

    __slots__ = ("_root", "execution_thread", "instructions", "name", "parent")

    def __init__(self, name: str) -> None:
        self.name = name
        self.instructions: list[Instruction] = []
        self._root: Instruction | None = None
        self.parent: Module | None = None
        self.execution_thread = "main"

    @property
    def root(self) -> Instruction:
        """The instruction whose value is the result: the last one unless another is set (GEN-12).

        Raises ArgumentError for an empty computation.
        """
        if self._root is not None:
            return self._root
        if not self.instructions:
            raise ArgumentError(f"computation {self.name} has no instructions, so no root")
        return self.instructions[-1]

    @root.setter
    def root(self, instruction: Instruction) -> None:
        if self._root is not None and self._root is not instruction:
            self._root.changed = instruction.changed = tick()
        self._root = instruction

    @property
    def parameters(self) -> list[Instruction]:
        """The parameter instructions, by parameter number."""
        found = [i for i in self.instructions if isinstance(i.op, Parameter)]
        return sorted(found, key=lambda i: i.parameter_number)

    @property
    def parameter_shapes(self) -> list[Shape]:
        """The shapes of the parameters, by parameter number."""
        return [parameter.shape for parameter in self.parameters]

    @property
    def result_shape(self) -> Shape:
        """The shape of the root."""
        return self.root.shape

    def add(self, instruction: Instruction) -> Instruction:
        """Appends an instruction, whose operands must already be in the computation, and returns it."""
        instruction.parent = self
        self.instructions.append(instruction)
        return instruction

    def remove(self, instruction: Instruction) -> None:
        """Removes an instruction, its control edges included. Raises ArgumentError if it has users or is the root."""
        if instruction.users or instruction is self.root:
            raise ArgumentError(f"%{instruction.name} has users or is the root: it cannot be removed")
        instruction.disconnect()
        self.instructions.remove(instruction)
        instruction.parent = None

    def called_computations(self) -> Iterator[Computation]:
        """Yields each computation that the instructions call, once, in the order of first use."""
        return called_by(self.instructions)

    def __repr__(self) -> str:
        parameters = ", ".join(map(str, self.parameter_shapes))
        return f"Computation({self.name}: ({parameters}) -> {self.result_shape})"


@dataclass(slots=True)
class InputOutputAlias:
    """Donation: the output at `output_index` may, or must, share the buffer of a parameter.

    `output_index` and `parameter_index` are paths into nested tuples; () is the whole value.
    """

    output_index: tuple[int, ...]
    parameter_number: int
    parameter_index: tuple[int, ...]
    must_alias: bool = False


@dataclass(slots=True)
class BufferDonor:
    """A buffer of a parameter that the program may overwrite without returning it as an output."""

    parameter_number: int
    parameter_index: tuple[int, ...]


@dataclass(eq=False)
class Module:
    """A program: its computations, callees before callers, and the attributes of the `HloModule` header.

    `entry_parameter_layouts` and `entry_result_layout` are the shapes with layouts of `entry_computation_layout`; None
    stands for the shapes of the entry computation. `stack_frames` maps the name of a table (FileNames, FunctionNames,
    FileLocations, StackFrames) to its rows. `extra_attributes` keeps the raw text of header attributes that hloom does
    not know.

    >>> module = hl.parse("HloModule m  ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] negate(x) }")
    >>> print(module.to_text(layouts=False))
    HloModule m, entry_computation_layout={(f32[2])->f32[2]}
    <BLANKLINE>
    ENTRY e {
      x = f32[2] parameter(0)
      ROOT y = f32[2] negate(x)
    }
    <BLANKLINE>
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
        """The entry computation. Raises ArgumentError if none is set."""
        if self.entry_computation is None:
            raise ArgumentError(f"module {self.name} has no ENTRY computation")
        return self.entry_computation

    def add(self, computation: Computation, entry: bool = False) -> Computation:
        """Appends a computation, whose callees must precede it, and returns it; `entry` makes it the entry
        computation.
        """
        computation.parent = self
        self.computations.append(computation)
        if entry:
            self.entry_computation = computation
        return computation

    def set_default_entry_layouts(self) -> None:
        """Sets `entry_computation_layout` to the shapes of the entry computation's parameters and result."""
        self.entry_parameter_layouts = self.entry.parameter_shapes
        self.entry_result_layout = self.entry.result_shape

    def instructions(self) -> Iterator[Instruction]:
        """Yields the instructions of all computations, in order."""
        return itertools.chain.from_iterable(computation.instructions for computation in self.computations)

    def to_text(self, **options: Any) -> str:
        """Returns the module as HLO text; `hloom.text.print_module` documents the options."""
        from hloom.text import print_module

        return print_module(self, **options)

    def _repr_html_(self) -> str:
        """The highlighted HLO text, which notebooks display."""
        from hloom.text import module_html

        return module_html(self)

    def __repr__(self) -> str:
        computations = counted(len(self.computations), "computation")
        instructions = counted(sum(len(c.instructions) for c in self.computations), "instruction")
        return f"Module({self.name}: {computations}, {instructions})"


def post_order(computation: Computation) -> list[Instruction]:
    """Returns the instructions in a topological order: operands and control predecessors before their users."""
    order: list[Instruction] = []
    done: set[Instruction] = set()
    for start in computation.instructions:
        stack: list[tuple[Instruction, Iterator[Instruction]]] = []
        if start not in done:
            done.add(start)
            stack.append((start, dependencies(start)))
        while stack:
            instruction, rest = stack[-1]
            for previous in rest:
                if previous not in done:
                    done.add(previous)
                    stack.append((previous, dependencies(previous)))
                    break
            else:
                order.append(instruction)
                stack.pop()
    return order


def reachable(
    starts: Iterable[Instruction], following: Callable[[Instruction], Iterable[Instruction]]
) -> set[Instruction]:
    """Returns `starts` and the instructions that they lead to by way of those that follow each."""
    found: set[Instruction] = set()
    stack = list(starts)
    while stack:
        instruction = stack.pop()
        if instruction not in found:
            found.add(instruction)
            stack += following(instruction)
    return found


def dependencies(instruction: Instruction) -> Iterator[Instruction]:
    """Yields the operands and control predecessors of an instruction."""
    yield from instruction.operands
    yield from instruction.control_predecessors


def called_by(instructions: Iterable[Instruction]) -> Iterator[Computation]:
    """Yields each computation that some instructions call, once, in the order of first use."""
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
    """Returns the computations reachable from `starts`, these included, each after its callees.

    `called` yields the callees of a computation; the order among callees is its order.
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
    """Returns a copy of a computation with new instructions; calls to a computation c become calls to `replacement(c)`.

    Names, metadata, shardings and control edges are copied. The copy has no parent.
    """
    copy = Computation(computation.name)
    copy.execution_thread = computation.execution_thread
    new: dict[Instruction, Instruction] = {}
    for old in computation.instructions:
        op = old.op.with_computations(replacement) if old.op.calling_fields else old.op
        instruction = Instruction(old.name, old.shape, op, [new[operand] for operand in old.operands])
        if old.metadata:
            instruction.metadata = old.metadata.copy()
        if old.frontend_attributes or old.extra_attributes:
            instruction.frontend_attributes = old.frontend_attributes.copy()
            instruction.extra_attributes = old.extra_attributes.copy()
        instruction.sharding, instruction.backend_config = old.sharding, old.backend_config
        instruction.location, instruction._checked = old.location, old._checked
        new[old] = copy.add(instruction)
    for old in computation.instructions:
        for before in old.control_predecessors:
            new[before].add_control_dependency(new[old])
    if computation.instructions:
        copy.root = new[computation.root]
    return copy


def clone_graph(*starts: Computation) -> dict[Computation, Computation]:
    """Returns copies of the computations reachable from `starts`, by their originals, each after its callees."""
    copies: dict[Computation, Computation] = {}
    for computation in callees_first(*starts):
        copies[computation] = clone_computation(computation, copies.__getitem__)
    return copies


def flatten(shapes: Iterable[Shape]) -> list[Shape]:
    """Returns the leaves (arrays and tokens) of several shapes, in order."""
    return [leaf for shape in shapes for leaf in shape.leaves()]
