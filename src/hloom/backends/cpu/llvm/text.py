"""Builds LLVM IR as text: types, values, and a builder whose methods append one instruction each.

Methods work on scalars and vectors alike: the type of a value has an element and a width, and constants take the type
of the other operand. Building text is several times faster than building an object for each instruction.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from hloom.backends.cpu.llvm.processor import processor

_FLOAT_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
_SUFFIX = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64", "ptr": "p0"}


class Type:
    """LLVM type: an element (`float`, `double`, `half`, `bfloat`, `i1` .. `i64`, `ptr`) and a width, 0 for scalars."""

    __slots__ = ("bits", "element", "is_float", "text", "width")

    def __init__(self, element: str, width: int) -> None:
        self.element = element
        self.width = width
        self.is_float = element in _FLOAT_BITS
        self.bits = _FLOAT_BITS[element] if self.is_float else 64 if element == "ptr" else int(element[1:])
        self.text = f"<{width} x {element}>" if width else element

    def of(self, element: str) -> Type:
        """Returns the type of another element and the same width."""
        return type_of(element, self.width)

    @property
    def integer(self) -> Type:
        """Integer type of the same number of bits and the same width."""
        return type_of(f"i{self.bits}", self.width)

    @property
    def scalar(self) -> Type:
        """Type of the elements."""
        return type_of(self.element, 0)

    @property
    def suffix(self) -> str:
        """Suffix in the names of overloaded intrinsics: `v16f32`, `i64`."""
        element = _SUFFIX.get(self.element, self.element)
        return f"v{self.width}{element}" if self.width else element

    def __str__(self) -> str:
        return self.text


def type_of(element: str, width: int = 0) -> Type:
    """Returns the type of an element and a width; equal types are the same object."""
    return _type(element, width)


@functools.cache
def _type(element: str, width: int) -> Type:
    return Type(element, width)


I1, I8, I32, I64, F32, F64, PTR = (type_of(e) for e in ("i1", "i8", "i32", "i64", "float", "double", "ptr"))


class Value:
    """Operand: its text (`%12`, `splat (i32 3)`) and its type."""

    __slots__ = ("text", "type")

    def __init__(self, text: str, type: Type) -> None:
        self.text = text
        self.type = type

    def __str__(self) -> str:
        return f"{self.type.text} {self.text}"


IndexValue = Value | int  # an i64, or a number known when the code is written


@dataclass
class Loop:
    """Loop under construction: its counter, and the loop-carried values."""

    index: IndexValue
    carried: list[Value] = field(default_factory=list)


def constant(type: Type, value: float | int | bool) -> Value:
    """Returns a constant, splat to all lanes of a vector; floats are rounded to the type."""
    if type.is_float:
        if type.element == "double":
            bits = struct.unpack("<Q", struct.pack("<d", value))[0]
        else:
            bits = _double_bits_of_float(value)
        text = f"0xH{_half_bits(value):04X}" if type.element == "half" else f"0x{bits:016X}"
    elif type.element == "i1":
        text = "true" if value else "false"
    elif type.element == "ptr":
        text = "null" if not value else f"inttoptr (i64 {int(value)} to ptr)"
    else:
        wrapped = int(value) & ((1 << type.bits) - 1)
        text = str(wrapped - (1 << type.bits) if wrapped >> (type.bits - 1) else wrapped)
    return Value(f"splat ({type.element} {text})" if type.width else text, type)


def _double_bits_of_float(value: float) -> int:
    """Returns the bits of the double equal to a float, as LLVM writes floats; NaNs keep sign and payload."""
    try:
        packed = struct.pack("<f", value)
    except OverflowError:
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return int(struct.unpack("<Q", struct.pack("<d", struct.unpack("<f", packed)[0]))[0])


def _half_bits(value: float) -> int:
    return int(struct.unpack("<H", struct.pack("<e", value))[0])


def lane_indices(type: Type) -> Value:
    """Returns the vector 0, 1, .., width - 1."""
    indices = range(type.width)
    texts = (constant(type.scalar, k).text for k in indices)
    return Value("<" + ", ".join(f"{type.element} {text}" for text in texts) + ">", type)


def mask_constant(active: int, lanes: int) -> Value:
    """Returns the mask of the first `active` lanes."""
    bits = ", ".join("i1 true" if k < active else "i1 false" for k in range(lanes))
    return Value(f"<{bits}>", type_of("i1", lanes))


class Builder:
    """Appends instructions to the body of one function; `declarations` collects the functions that it calls."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declarations: dict[str, None] = {}
        self.block = "entry"
        self._count = 0

    # Lines and blocks

    def name(self) -> str:
        """Returns a new value name."""
        self._count += 1
        return f"%v{self._count}"

    def emit(self, text: str, type: Type) -> Value:
        """Appends `%new = text`, and returns the value."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return Value(name, type)

    def line(self, text: str) -> None:
        """Appends a line, indented."""
        self.lines.append("  " + text)

    def label(self, hint: str = "b") -> str:
        """Returns a new label name."""
        self._count += 1
        return f"{hint}{self._count}"

    def start(self, label: str) -> None:
        """Starts a basic block."""
        self.lines.append(f"{label}:")
        self.block = label

    def branch(self, label: str) -> None:
        """Appends an unconditional branch."""
        self.line(f"br label %{label}")

    def branch_if(self, condition: Value, then: str, otherwise: str) -> None:
        """Appends a conditional branch."""
        self.line(f"br i1 {condition.text}, label %{then}, label %{otherwise}")

    def phi(self, type: Type, *incoming: tuple[Value, str]) -> Value:
        """Appends a phi of (value, predecessor block) pairs."""
        return self.emit(f"phi {type} " + ", ".join(f"[ {v.text}, %{b} ]" for v, b in incoming), type)

    # Control flow

    def index(self, value: IndexValue) -> Value:
        """Returns an index as an i64 value."""
        return value if isinstance(value, Value) else constant(I64, value)

    @contextmanager
    def loop(
        self, stop: IndexValue, step: IndexValue = 1, carried: Sequence[Value] = (), first: IndexValue = 0
    ) -> Iterator[Loop]:
        """Context manager for a loop over first, first + step, .. below `stop`, with at least one iteration.

        The body may replace the values in `carried`, which then hold the final values.
        """
        if isinstance(first, int) and isinstance(stop, int) and isinstance(step, int) and stop <= first + step:
            yield Loop(first, list(carried))
            return
        before, body, after = self.block, self.label("loop"), self.label("after")
        self.branch(body)
        self.start(body)
        start_line = len(self.lines)
        index = Value(self.name(), I64)
        phis = [Value(self.name(), value.type) for value in carried]
        loop = Loop(index, list(phis))
        yield loop
        following = self.binary("add", index, self.index(step), "nuw nsw")
        more = self.compare("ult", following, self.index(stop))
        starts = zip([index, *phis], [self.index(first), *carried], [following, *loop.carried], strict=True)
        self.lines[start_line:start_line] = [
            f"  {phi.text} = phi {phi.type} [ {start.text}, %{before} ], [ {next_.text}, %{self.block} ]"
            for phi, start, next_ in starts
        ]
        self.branch_if(more, body, after)
        self.start(after)

    @contextmanager
    def each(self, first: IndexValue, stop: IndexValue, step: IndexValue = 1) -> Iterator[Value]:
        """Context manager for a loop over first, first + step, .. below `stop`, possibly without iterations.

        All bounds are unsigned.
        """
        some = self.compare("ult", self.index(first), self.index(stop))
        with self.when(some), self.loop(stop, step, first=first) as loop:
            yield self.index(loop.index)

    @contextmanager
    def repeat(self, condition: Callable[[], Value]) -> Iterator[None]:
        """Context manager for a loop that runs while the condition holds."""
        head, body, after = self.label("while"), self.label("body"), self.label("after")
        self.branch(head)
        self.start(head)
        self.branch_if(condition(), body, after)
        self.start(body)
        yield
        self.branch(head)
        self.start(after)

    @contextmanager
    def when(self, condition: Value | None) -> Iterator[None]:
        """Context manager for code that runs if the condition holds; None stands for true."""
        if condition is None:
            yield
            return
        then, after = self.label("then"), self.label("after")
        self.branch_if(condition, then, after)
        self.start(then)
        yield
        self.branch(after)
        self.start(after)

    @contextmanager
    def unless(self, condition: Value) -> Iterator[None]:
        """Context manager for code that runs if the condition does not hold."""
        then, after = self.label("then"), self.label("after")
        self.branch_if(condition, after, then)
        self.start(then)
        yield
        self.branch(after)
        self.start(after)

    # Arithmetic

    def binary(self, opcode: str, a: Value, b: Value, flags: str = "") -> Value:
        """Appends a binary operation, with flags such as "nsw" or "reassoc nsz"."""
        return self.emit(f"{opcode} {flags + ' ' if flags else ''}{a.type.text} {a.text}, {b.text}", a.type)

    def fneg(self, a: Value) -> Value:
        """Appends a negation of floats."""
        return self.emit(f"fneg {a}", a.type)

    def compare(self, predicate: str, a: Value, b: Value) -> Value:
        """Appends a comparison. Predicates are LLVM's: oeq, olt, une .. for floats, eq, slt, ult .. for integers."""
        opcode = "fcmp" if a.type.is_float else "icmp"
        return self.emit(f"{opcode} {predicate} {a.type.text} {a.text}, {b.text}", a.type.of("i1"))

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """Appends a select: `a` where the condition holds, else `b`."""
        return self.emit(f"select {condition}, {a}, {b}", a.type)

    def convert(self, opcode: str, a: Value, element: str) -> Value:
        """Appends a conversion: sext, zext, trunc, sitofp, uitofp, fptosi, fptoui, fpext or fptrunc."""
        type = a.type.of(element)
        return self.emit(f"{opcode} {a} to {type}", type)

    def bitcast(self, a: Value, type: Type) -> Value:
        """Appends a bitcast, unless the type is the same."""
        return a if a.type is type else self.emit(f"bitcast {a} to {type}", type)

    def call(self, function: str, result: Type, *args: Value, flags: str = "") -> Value:
        """Calls a function or intrinsic by its full name, and declares it."""
        self.declarations[f"declare {result} @{function}({', '.join(a.type.text for a in args)})"] = None
        flags = flags + " " if flags else ""
        return self.emit(f"call {flags}{result} @{function}({', '.join(map(str, args))})", result)

    def call_void(self, function: str, *args: Value) -> None:
        """Calls a function or intrinsic without a result, and declares it."""
        self.declarations[f"declare void @{function}({', '.join(a.type.text for a in args)})"] = None
        self.line(f"call void @{function}({', '.join(map(str, args))})")

    def intrinsic(self, name: str, *args: Value) -> Value:
        """Calls an intrinsic overloaded on one type: `intrinsic("fma", a, b, c)` calls llvm.fma.v16f32."""
        type = args[0].type
        return self.call(f"llvm.{name}.{type.suffix}", type, *args)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """Appends a fused multiply-add, a * b + c."""
        return self.intrinsic("fma", a, b, c)

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Evaluates a polynomial by Horner's scheme with fused multiply-adds; coefficients start at the
        highest power."""
        result = constant(x.type, coefficients[0])
        for coefficient in coefficients[1:]:
            result = self.fma(result, x, constant(x.type, coefficient))
        return result

    # Vectors

    def splat(self, a: Value, width: int) -> Value:
        """Returns a scalar in each of `width` lanes; vectors, and all values if `width` is 0, are returned
        unchanged."""
        if not width or a.type.width:
            return a
        type = type_of(a.type.element, width)
        if not a.text.startswith("%"):
            return Value(f"splat ({a.type.element} {a.text})", type)
        one = self.emit(f"insertelement {type} poison, {a}, i64 0", type)
        return self.emit(f"shufflevector {one}, {type} poison, <{width} x i32> zeroinitializer", type)

    def shuffle(self, a: Value, b: Value | None, lanes: Sequence[int]) -> Value:
        """Selects lanes of a and b; lanes of b are numbered after those of a."""
        type = type_of(a.type.element, len(lanes))
        mask = "<" + ", ".join(f"i32 {lane}" for lane in lanes) + ">"
        second = b.text if b is not None else "poison"
        return self.emit(f"shufflevector {a}, {a.type} {second}, <{len(lanes)} x i32> {mask}", type)

    def extract(self, a: Value, lane: int) -> Value:
        """Returns the scalar in a lane."""
        return self.emit(f"extractelement {a}, i64 {lane}", a.type.scalar)

    # Memory

    def element_pointer(self, base: Value, index: Value, element: str) -> Value:
        """Returns the address of the element at an index, or a vector of addresses for a vector of indices."""
        return self.emit(f"getelementptr {element}, ptr {base.text}, {index}", type_of("ptr", index.type.width))

    def load(self, pointer: Value, type: Type, align: int) -> Value:
        """Appends a load; `align` is in bytes."""
        return self.emit(f"load {type}, ptr {pointer.text}, align {align}", type)

    def prefetch(self, pointer: Value, writes: bool = False) -> None:
        """Prefetches a cache line for a load or a store."""
        self.declarations["declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"] = None
        self.line(f"call void @llvm.prefetch.p0({pointer}, i32 {int(writes)}, i32 3, i32 1)")

    def store(self, value: Value, pointer: Value, align: int, note: str = "") -> None:
        """Appends a store; `note` is metadata such as `!nontemporal !0`."""
        self.line(f"store {value}, ptr {pointer.text}, align {align}{', ' + note if note else ''}")

    def copy(self, target: Value, source: Value, size: IndexValue) -> None:
        """Copies bytes between disjoint memory."""
        self.call_void("llvm.memcpy.p0.p0.i64", target, source, self.index(size), constant(I1, False))

    def load_masked(
        self, pointer: Value, type: Type, align: int, mask: Value | None, rest: Value | None = None
    ) -> Value:
        """Loads the lanes of a mask, None for all; the others are those of `rest`, by default zeros.

        LLVM 22 reads inactive lanes if it splits a vector over registers of which one has no active lane and the mask
        is partly constant. So vectors are split into registers here.
        """
        if mask is None:
            return self.load(pointer, type, align)
        rest = rest if rest is not None else Value("zeroinitializer", type)
        lanes = 8 * processor().vector_bytes // type.bits
        if type.width <= lanes:
            return self._load_masked(pointer, type, align, mask, rest)
        loaded: Value | None = None
        for start in range(0, type.width, lanes):
            own = range(start, min(start + lanes, type.width))
            address = self.element_pointer(pointer, constant(I64, start), type.element)
            masks, others = self.shuffle(mask, None, own), self.shuffle(rest, None, own)
            part = self._load_masked(address, type_of(type.element, len(own)), align, masks, others)
            loaded = part if loaded is None else self.joined(loaded, part)
        assert loaded is not None
        return loaded

    def _load_masked(self, pointer: Value, type: Type, align: int, mask: Value, rest: Value) -> Value:
        name = f"llvm.masked.load.{type.suffix}.p0"
        return self.call(name, type, pointer, constant(I32, align), mask, rest)

    def joined(self, a: Value, b: Value) -> Value:
        """Concatenates the lanes of a and b; b must not be wider than a."""
        first, second = a.type.width, b.type.width
        if second < first:
            b = self.shuffle(b, None, [min(lane, second - 1) for lane in range(first)])
        return self.shuffle(a, b, range(first + second))

    def store_masked(self, value: Value, pointer: Value, align: int, mask: Value | None) -> None:
        """Stores the lanes of a mask, None for all.

        LLVM 22 stores too many bytes if it combines a truncation with a store of one constant lane. Masks of stores
        that may follow a truncation therefore depend on a condition unknown to LLVM: that the pointer is not null.
        """
        if mask is None:
            self.store(value, pointer, align)
            return
        if not value.type.is_float and value.type.bits < 64:
            is_somewhere = self.compare("ne", pointer, constant(PTR, 0))
            mask = self.binary("and", mask, self.splat(is_somewhere, value.type.width))
        self.call_void(f"llvm.masked.store.{value.type.suffix}.p0", value, pointer, constant(I32, align), mask)

    def gather(self, pointers: Value, type: Type, align: int, mask: Value) -> Value:
        """Loads the lanes of a mask from a vector of addresses; the others are zero."""
        name = f"llvm.masked.gather.{type.suffix}.v{type.width}p0"
        return self.call(name, type, pointers, constant(I32, align), mask, Value("zeroinitializer", type))

    def scatter(self, value: Value, pointers: Value, align: int, mask: Value) -> None:
        """Stores the lanes of a mask to a vector of addresses, in order."""
        name = f"llvm.masked.scatter.{value.type.suffix}.v{value.type.width}p0"
        self.call_void(name, value, pointers, constant(I32, align), mask)
