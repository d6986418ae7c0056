"""The builder: methods that append one instruction each to the body of a function.

Index arithmetic, addresses and moves of lanes that a block has already are not appended again: unrolled code repeats
them, and each takes LLVM time. Methods work on scalars and vectors alike: the type of a value has an element and a
width, and constants take the type of the other operand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

from hloom.lir.control import (
    Branch,
    BranchIf,
    Do,
    End,
    EndLoop,
    If,
    Label,
    Loop,
    Phi,
    Return,
    Switch,
    Terminator,
    While,
)
from hloom.lir.function import Declaration, Function, Need
from hloom.lir.instructions import (
    Address,
    Alloca,
    Binary,
    Call,
    CallAttribute,
    Compare,
    Convert,
    Extract,
    Field,
    Insert,
    Instruction,
    Load,
    Negate,
    Select,
    Shuffle,
    Store,
)
from hloom.lir.types import I1, I32, I64, PTR, VOID, Type, type_of
from hloom.lir.values import Constant, IndexValue, Symbol, Value, constant, index_value, poison, shuffled_constant


@dataclass
class OpenLoop:
    """Loop under construction: its counter, and the loop-carried values."""

    index: IndexValue
    carried: list[Value] = field(default_factory=list)


class InstructionBuilder:
    """Appends instructions to a function."""

    def __init__(self, function: Function, register_bytes: int = 64) -> None:
        self.function = function
        self.register_bytes = register_bytes
        self.body = function.body
        self.needs = function.needs
        self.block = "entry"
        self._count = 0
        self._known: dict[tuple[object, ...], Value] = {}
        """Results of the current block, by opcode, types, operands and immediates."""
        self._known_block = self.block

    # Names, blocks, symbols

    def name(self) -> str:
        """Returns a new value name."""
        self._count += 1
        return f"%v{self._count}"

    def append(self, instruction: Instruction) -> Instruction:
        """Appends an instruction."""
        self.body.append(instruction)
        return instruction

    def label(self, hint: str) -> str:
        """Returns a new label name."""
        self._count += 1
        return f"{hint}{self._count}"

    def start(self, label: str) -> None:
        """Starts a basic block."""
        self.body.append(Label(label))
        self.block = label

    def branch(self, label: str) -> None:
        """Appends an unconditional branch."""
        self.body.append(Branch(targets=(label,)))

    def branch_if(self, condition: Value, then: str, otherwise: str) -> None:
        """Appends a conditional branch."""
        self.body.append(BranchIf(condition, targets=(then, otherwise)))

    def switch(self, index: Value, labels: Sequence[str]) -> None:
        """Appends a branch to the label of an index; the last one is for all others."""
        self.body.append(Switch(index, targets=labels))

    def phi(self, type: Type, *incoming: tuple[Value, str]) -> Value:
        """Appends a phi of (value, predecessor block) pairs."""
        values, blocks = zip(*incoming, strict=True)
        return self.append(Phi(self.name(), type, values, blocks))

    def ret(self, *value: Value) -> None:
        """Appends a return."""
        self.body.append(Return(*value))

    def finish(self) -> Function:
        """Returns the function, which returns at the end of its body."""
        if not self.body or not isinstance(self.body[-1], Terminator):
            self.ret()
        return self.function

    @contextmanager
    def prologue(self) -> Iterator[Self]:
        """Context manager in which instructions are appended to the prologue; they need values of the prologue only."""
        known = self._known, self._known_block
        self.body, self._known, self._known_block = self.function.prologue, {}, self.block
        yield self
        self.body = self.function.body
        self._known, self._known_block = known

    def address_of(self, need: Need) -> Value:
        """Returns the address of a function or variable."""
        self.needs.setdefault(need.name, need)
        return need.symbol

    def task_symbol(self, name: str) -> Value:
        """Returns the address of a task, `void (ptr frame, i64 chunk)`, by its name."""
        return self.address_of(Declaration(name, VOID, (PTR, I64)))

    def _once(self, key: tuple[object, ...], make: Callable[..., Instruction], *operands: object) -> Value:
        """Returns the result of the block with a key, or appends an instruction without effects that computes it."""
        if self.block is not self._known_block:
            self._known, self._known_block = {}, self.block
        found = self._known.get(key)
        if found is None:
            self._count += 1
            found = self._known[key] = make(f"%v{self._count}", *operands)
            self.body.append(found)
        return found

    # Control flow

    def index(self, value: IndexValue) -> Value:
        """Returns an index as an i64 value."""
        return index_value(value)

    @contextmanager
    def loop(
        self, stop: IndexValue, step: IndexValue = 1, carried: Sequence[Value] = (), first: IndexValue = 0
    ) -> Iterator[OpenLoop]:
        """Context manager for a loop over first, first + step, .. below `stop`, with at least one iteration.

        The body may replace the values in `carried`, which then hold the final values.
        """
        if isinstance(first, int) and isinstance(stop, int) and isinstance(step, int) and stop <= first + step:
            yield OpenLoop(first, list(carried))
            return
        labels = self.block, self.label("loop"), self.label("after")
        index = Value(self.name(), I64)
        own = [Value(self.name(), value.type) for value in carried]
        start = Loop(index, own, [index_value(first), *carried], labels)
        self.body.append(start)
        self.function.loops += 1
        self.block = start.label
        loop = OpenLoop(index, list(own))
        yield loop
        operands = [index_value(step), index_value(stop), *loop.carried]
        start.end = EndLoop(start, operands, (self.name(), self.name()), self.block)
        self.body.append(start.end)
        self.block = start.after

    @contextmanager
    def each(self, first: IndexValue, stop: IndexValue, step: IndexValue = 1) -> Iterator[Value]:
        """Context manager for a loop over first, first + step, .. below `stop`, possibly without iterations.

        All bounds are unsigned.
        """
        some = self.compare("ult", index_value(first), index_value(stop))
        with self.when(some), self.loop(stop, step, first=first) as loop:
            yield index_value(loop.index)

    @contextmanager
    def repeat(self, condition: Callable[[], Value]) -> Iterator[None]:
        """Context manager for a loop that runs while the condition holds."""
        loop = While(self.label("while"), self.label("body"), self.label("after"))
        self.body.append(loop)
        self.block = loop.head
        self.body.append(Do(loop, condition()))
        self.block = loop.body
        yield
        self.body.append(End(loop.head, loop.after))
        self.block = loop.after

    @contextmanager
    def when(self, condition: Value | None, is_negated: bool = False) -> Iterator[None]:
        """Context manager for code that runs if the condition holds; None stands for true."""
        if condition is None:
            yield
            return
        start = If(condition, self.label("then"), self.label("after"), is_negated)
        self.body.append(start)
        self.block = start.then
        yield
        self.body.append(End(start.after, start.after, not isinstance(self.body[-1], Terminator)))
        self.block = start.after

    @contextmanager
    def unless(self, condition: Value) -> Iterator[None]:
        """Context manager for code that runs if the condition does not hold."""
        with self.when(condition, is_negated=True):
            yield

    # Arithmetic

    def binary(self, opcode: str, a: Value, b: Value, flags: str = "") -> Value:
        """Appends a binary operation, with flags such as "nsw" or "reassoc nsz", or returns its result."""
        flags = f"{flags} " if flags else ""
        if a.type is I64:
            return self._once((opcode, a.text, b.text, flags), Binary, opcode, a, b, flags)
        self._count += 1
        result = Binary(f"%v{self._count}", opcode, a, b, flags)
        self.body.append(result)
        return result

    def fneg(self, a: Value) -> Value:
        """Appends a negation of floats."""
        return self.append(Negate(self.name(), a))

    def compare(self, predicate: str, a: Value, b: Value) -> Value:
        """Appends a comparison. Predicates are LLVM's: oeq, olt, une .. for floats, eq, slt, ult .. for integers."""
        return self.append(Compare(self.name(), predicate, a, b))

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """Appends a select: `a` where the condition holds, else `b`."""
        return self.append(Select(self.name(), condition, a, b))

    def convert(self, opcode: str, a: Value, element: str) -> Value:
        """Appends a conversion: sext, zext, trunc, sitofp, uitofp, fptosi, fptoui, fpext or fptrunc."""
        return self.append(Convert(self.name(), opcode, a, type_of(element, a.type.width)))

    def bitcast(self, a: Value, type: Type) -> Value:
        """Appends a bitcast, unless the type is the same."""
        return a if a.type is type else self.append(Convert(self.name(), "bitcast", a, type))

    def fence(self, a: Value) -> Value:
        """Returns the bits of a vector behind an arithmetic fence, for which there is no code.

        LLVM does not look through it for operations to combine, nor for bits that it knows.
        """
        if isinstance(a, Constant):
            return a
        floats = a.type if a.type.element in ("float", "double") else type_of("float", a.type.byte_size // 4)
        return self.bitcast(self.intrinsic("arithmetic.fence", self.bitcast(a, floats)), a.type)

    def fmuladd(self, a: Value, b: Value, c: Value) -> Value:
        """Appends a * b + c, which is fused if the processor has the instruction."""
        return self.intrinsic("fmuladd", a, b, c)

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Evaluates a polynomial by Horner's scheme with multiply-adds; coefficients start at the
        highest power."""
        result: Value = constant(x.type, coefficients[0])
        for coefficient in coefficients[1:]:
            result = self.fmuladd(result, x, constant(x.type, coefficient))
        return result

    # Calls

    def call(
        self, function: str, result: Type, *args: Value, flags: str = "", attribute: CallAttribute | None = None
    ) -> Value:
        """Calls a function or intrinsic by its full name; the result of a void function must not be used."""
        if function not in self.needs:
            self.needs[function] = Declaration(function, result, tuple([argument.type for argument in args]))
        name = self.name() if result is not VOID else ""
        return self.append(Call(name, result, Symbol(function), args, f"{flags} " if flags else "", attribute))

    def call_void(self, function: str, *args: Value, attribute: CallAttribute | None = None) -> None:
        """Calls a function or intrinsic without a result."""
        self.call(function, VOID, *args, attribute=attribute)

    def call_function(self, function: Function, *args: Value, attribute: CallAttribute | None = None) -> Value:
        """Calls a function that modules have copies of, or share."""
        self.address_of(function)
        return self.call(function.name, function.result, *args, attribute=attribute)

    def call_pointer(
        self, function: Value, result: Type, *args: Value, attribute: CallAttribute | None = None
    ) -> Value:
        """Calls a function at an address."""
        name = self.name() if result is not VOID else ""
        return self.append(Call(name, result, function, args, attribute=attribute))

    def intrinsic(self, name: str, *args: Value) -> Value:
        """Calls an intrinsic overloaded on one type: `intrinsic("fma", a, b, c)` calls llvm.fma.v16f32."""
        type = args[0].type
        return self.call(f"llvm.{name}.{type.suffix}", type, *args)

    # Vectors and structures

    def splat(self, a: Value, width: int) -> Value:
        """Returns a scalar in each of `width` lanes; vectors, and all values if `width` is 0, are returned
        unchanged."""
        if not width or a.type.width:
            return a
        type = type_of(a.type.element, width)
        if isinstance(a, Constant):
            return Constant(f"splat ({a.type.element} {a.text})", type, tuple(a.lanes) * width)
        return self.shuffle(self.insert(poison(type), a, 0), None, (0,) * width)

    def shuffle(self, a: Value, b: Value | None, lanes: Sequence[int]) -> Value:
        """Selects lanes of a and b; lanes of b are numbered after those of a."""
        other, order = b if b is not None else poison(a.type), tuple(lanes)
        known = shuffled_constant(a, b, order) if isinstance(a, Constant) else None
        if known is not None or (b is None and len(order) == a.type.width and order == tuple(range(len(order)))):
            return known or a
        key = "shuffle", a.type, a.text, other.text, order
        return self._once(key, Shuffle, a, other, order)

    def joined(self, a: Value, b: Value) -> Value:
        """Concatenates the lanes of a and b; b must not be wider than a."""
        first, second = a.type.width, b.type.width
        if second < first:
            b = self.shuffle(b, None, [min(lane, second - 1) for lane in range(first)])
        return self.shuffle(a, b, range(first + second))

    def concatenated(self, parts: Sequence[Value]) -> Value:
        """Concatenates a power of two of vectors of one width, so that all vectors on the way are whole registers."""
        while len(parts) > 1:
            parts = [self.joined(a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    def extract(self, a: Value, lane: int) -> Value:
        """Returns the scalar in a lane."""
        return self.append(Extract(self.name(), a, lane))

    def insert(self, vector: Value, scalar: Value, lane: int) -> Value:
        """Returns a vector with another scalar in a lane."""
        key = "insert", vector.type, vector.text, scalar.text, lane
        return self._once(key, Insert, vector, scalar, lane)

    def extract_field(self, structure: Value, position: int) -> Value:
        """Returns a field of a structure."""
        return self.append(Field(self.name(), structure, position))

    # Memory

    def slot(self, type: Type, count: int, align: int = 64) -> Value:
        """Allocates stack memory for `count` values, valid in the whole function; `align` is in bytes."""
        slot = Alloca(self.name(), type, count, align, is_array=False)
        self.function.prologue.append(slot)
        return slot

    def stack_array(self, type: Type, count: int, align: int = 64) -> Value:
        """Allocates stack memory like `slot`, which LLVM may split into registers."""
        slot = Alloca(self.name(), type, count, align)
        self.function.prologue.append(slot)
        return slot

    def element_pointer(self, base: Value, index: Value, element: str) -> Value:
        """Returns the address of the element at an index; for a vector of indices, the addresses."""
        return self._once((element, index.type, base.text, index.text), Address, base, index, element)

    def load(self, pointer: Value, type: Type, align: int, order: str = "") -> Value:
        """Appends a load, atomic if it has an ordering; `align` is in bytes."""
        return self.append(Load(self.name(), pointer, type, align, order))

    def store(self, value: Value, pointer: Value, align: int, is_nontemporal: bool = False, order: str = "") -> None:
        """Appends a store, atomic if it has an ordering; `align` is in bytes."""
        self.body.append(Store(value, pointer, align, is_nontemporal, order))

    def prefetch(self, pointer: Value, writes: bool = False, is_near: bool = True) -> None:
        """Prefetches a cache line for a load or a store: into the first cache if it `is_near`, else into the second."""
        arguments = (constant(I32, number) for number in (int(writes), 3 if is_near else 2, 1))
        self.call_void("llvm.prefetch.p0", pointer, *arguments)

    def copy(self, target: Value, source: Value, size: IndexValue) -> None:
        """Copies bytes between disjoint memory."""
        self.call_void("llvm.memcpy.p0.p0.i64", target, source, index_value(size), constant(I1, False))
