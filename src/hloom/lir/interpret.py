"""The interpreter: runs functions on the memory of the process, for tests and for reading.

Values are NumPy scalars and arrays, addresses int64. It is slow, and knows the intrinsics that nests and simple kernels
use; atomics run like other accesses.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloom.lir.control import Branch, BranchIf, Do, End, EndLoop, If, Label, Loop, Phi, Return, Switch, While
from hloom.lir.function import Function, Global, LirModule, Zeros
from hloom.lir.instructions import (
    Address,
    Alloca,
    AtomicUpdate,
    Binary,
    Call,
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
from hloom.lir.operations import (
    BINARY,
    INTRINSICS,
    Data,
    as_type,
    compare,
    constant_value,
    convert,
    dtype_of,
    reduction,
)
from hloom.lir.types import Type, type_of
from hloom.lir.values import Constant, Symbol, Value
from hloom.target import align_up

_UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "xchg": lambda _, new: new,
}  # fmt: skip


class Interpreter:
    """Runs the functions of a module, whose variables keep their values between calls."""

    def __init__(self, module: LirModule) -> None:
        self.functions = {function.name: function for function in module.all_functions()}
        self.memory: list[Any] = []
        """Variables and stack memory."""
        self.symbols: dict[str, int] = {name: -1 - k for k, name in enumerate(self.functions)}
        """Addresses of variables; those of functions are negative."""
        self.exported: dict[int, Callable[..., Data]] = {}
        """Functions of Python by the addresses that functions of the module call."""
        for need in module.needs():
            if isinstance(need, Global):
                self.symbols[need.name] = self._allocate(need.content)

    def call(self, name: str, *arguments: int | float) -> Data:
        """Calls a function with numbers and addresses; returns its result, None if it has none."""
        function = self.functions[name]
        with np.errstate(all="ignore"):
            return self._call(
                function, [as_type(a, p.type) for a, p in zip(arguments, function.parameters, strict=True)]
            )

    def _call(self, function: Function, arguments: Sequence[Data]) -> Data:
        return _Frame(self, function, arguments).run()

    def allocate(self, size: int) -> int:
        """Returns the address of new memory, aligned to 64 bytes."""
        memory = ctypes.create_string_buffer(size + 64)
        self.memory.append(memory)
        return align_up(ctypes.addressof(memory), 64)

    def _allocate(self, content: bytes | Zeros | Sequence[Value]) -> int:
        if isinstance(content, Zeros):
            return self.allocate(8 * content.words)
        if not isinstance(content, bytes):
            content = b"".join(np.asarray(self.value_of(value)).tobytes() for value in content)
        address = self.allocate(len(content))
        ctypes.memmove(address, content, len(content))
        return address

    def value_of(self, value: Value) -> Data:
        """Returns the value of a constant or a symbol."""
        if isinstance(value, Symbol):
            return np.int64(self.symbols.get(value.name, 0))  # intrinsics have no address
        assert isinstance(value, Constant)
        return constant_value(value)

    def export(self, function: Callable[..., Data]) -> int:
        """Returns an address at which functions of the module can call a function of Python."""
        address = -1 - len(self.functions) - len(self.exported)
        self.exported[address] = function
        return address

    def invoke(self, callee: int, arguments: Sequence[Data]) -> Data:
        """Calls the function at an address."""
        if callee in self.exported:
            return self.exported[callee](*arguments)
        (name,) = (name for name, address in self.symbols.items() if address == callee)
        return self._call(self.functions[name], arguments)


class _Frame:
    """A call of a function: values by name, and the position in its instructions."""

    def __init__(self, interpreter: Interpreter, function: Function, arguments: Sequence[Data]) -> None:
        self.interpreter, self.function = interpreter, function
        self.values = {p.text: a for p, a in zip(function.parameters, arguments, strict=True)}
        self.instructions = list(function.instructions)
        self.targets = {label: k for k, i in enumerate(self.instructions) if (label := _label(i))}
        """Positions of the instructions that start blocks."""
        self.position, self.block = 0, "entry"
        self.previous = ""
        """The block from which control came."""

    def value(self, operand: Value) -> Data:
        if operand.text in self.values:
            return self.values[operand.text]
        return self.interpreter.value_of(operand)

    def run(self) -> Data:
        while True:
            instruction = self.instructions[self.position]
            self.position += 1
            if isinstance(instruction, Return):
                return self.value(instruction.operands[0]) if instruction.operands else None
            operands = [self.value(o) for o in instruction.operands] if not isinstance(instruction, Phi) else []
            if not self._control(instruction, operands):
                result = self._result(instruction, operands)
                if instruction.text:
                    self.values[instruction.text] = result

    # Control

    def _jump(self, label: str) -> None:
        """Continues after the instruction that starts a block."""
        self.previous, self.block = self.block, label
        self.position = self.targets[label] + 1

    def _control(self, instruction: Instruction, operands: list[Data]) -> bool:
        """Runs an instruction that begins or ends a block; returns whether it was one."""
        match instruction:
            case Label():
                self._jump(instruction.label)
            case Branch():
                self._jump(instruction.targets[0])
            case BranchIf():
                self._jump(instruction.targets[0 if operands[0] else 1])
            case Switch():
                targets = instruction.targets
                self._jump(targets[operands[0]] if 0 <= operands[0] < len(targets) else targets[-1])
            case If():
                self._jump(instruction.then if bool(operands[0]) != instruction.is_negated else instruction.after)
            case While():
                self._jump(instruction.head)
            case Do():
                self._jump(instruction.loop.body if operands[0] else instruction.loop.after)
            case End():
                self._jump(instruction.target)
            case Loop():
                self._start(instruction, operands)
            case EndLoop():
                self._repeat(instruction, operands)
            case _:
                return False
        return True

    def _start(self, loop: Loop, values: Sequence[Data]) -> None:
        self.values.update(zip([value.text for value in (loop.index, *loop.carried)], values, strict=True))
        self._jump(loop.label)

    def _repeat(self, end: EndLoop, operands: Sequence[Data]) -> None:
        step, stop, *carried = operands
        following = self.values[end.loop.index.text] + step
        if following.view(np.uint64) < stop.view(np.uint64):
            self._start(end.loop, [following, *carried])
        else:
            self._jump(end.loop.after)

    # Values

    def _result(self, instruction: Instruction, operands: list[Data]) -> Data:
        type = instruction.type
        match instruction:
            case Binary():
                return as_type(BINARY[instruction.opcode](*operands), type)
            case Negate():
                return np.negative(operands[0])
            case Compare():
                return as_type(compare(instruction.predicate, *operands), type)
            case Select():
                return as_type(np.where(*operands), type)
            case Convert():
                return convert(instruction.opcode, operands[0], type)
            case Shuffle():
                return np.concatenate(operands)[list(instruction.lanes)]
            case Extract():
                return operands[0][instruction.lane]
            case Insert():
                return np.where(np.arange(type.width) == instruction.lane, operands[1], operands[0])
            case Field():
                return operands[0][instruction.position]
            case Phi():
                return self.value(instruction.operands[instruction.labels.index(self.previous)])
            case Call():
                return self._called(instruction, operands)
        return self._memory(instruction, operands)

    def _memory(self, instruction: Instruction, operands: list[Data]) -> Data:
        match instruction:
            case Alloca():
                return np.int64(self.interpreter.allocate(instruction.element.byte_size * instruction.count))
            case Address():
                return operands[0] + operands[1].astype(np.int64) * type_of(instruction.element).byte_size
            case Load():
                return load(operands[0], instruction.type)
            case Store():
                store(operands[1], operands[0])
            case AtomicUpdate():
                old = load(operands[0], instruction.type)
                store(operands[0], as_type(_UPDATES[instruction.opcode](old, operands[1]), instruction.type))
                return old
            case _:
                raise NotImplementedError(instruction.line())
        return None

    def _called(self, call: Call, operands: list[Data]) -> Data:
        callee, *arguments = operands if not isinstance(call.operands[0], Symbol) else [None, *operands[1:]]
        if not isinstance(call.operands[0], Symbol):
            return self.interpreter.invoke(int(callee), arguments)
        name = call.operands[0].name
        if not name.startswith("llvm."):
            return self.interpreter.invoke(self.interpreter.symbols[name], arguments)
        return _intrinsic(name.removeprefix("llvm."), call.type, arguments)


def _label(instruction: Instruction) -> str:
    """Returns the label of the block that starts with an instruction, or ""."""
    match instruction:
        case Label() | Loop() | End():
            return instruction.label
        case If():
            return instruction.then
        case While():
            return instruction.head
        case Do():
            return instruction.loop.body
        case EndLoop():
            return instruction.loop.after
    return ""


# Memory


def load(address: Any, type: Type) -> Data:
    """Returns the value of a type at an address."""
    dtype, count = dtype_of(type), max(type.width, 1)
    content = ctypes.string_at(int(address), dtype.itemsize * count)
    array = np.frombuffer(content, dtype, count).copy()
    return array if type.width else array[0]


def store(address: Any, value: Data) -> None:
    """Writes a value to an address."""
    content = np.asarray(value).tobytes()
    ctypes.memmove(int(address), content, len(content))


def _intrinsic(name: str, type: Type, arguments: list[Data]) -> Data:
    kind = name.rpartition(".")[0]
    if name.startswith("vector.reduce."):
        return as_type(reduction(name.split(".")[2], arguments), type)
    if kind in INTRINSICS:
        return as_type(INTRINSICS[kind](*arguments), type)
    match name.split("."):
        case ["prefetch", *_]:
            return None
        case ["readcyclecounter"] | ["read_volatile_register", _]:
            return np.int64(0)
        case ["memcpy", *_]:
            ctypes.memmove(int(arguments[0]), int(arguments[1]), int(arguments[2]))
        case ["memset", *_]:
            ctypes.memset(int(arguments[0]), int(arguments[1]) & 255, int(arguments[2]))
        case ["masked", kind, *_]:
            return _masked(kind, type, arguments)
        case _:
            raise NotImplementedError(f"llvm.{name}")
    return None


def _masked(kind: str, type: Type, arguments: list[Data]) -> Data:
    """Runs a masked access lane by lane."""
    if kind in ("load", "gather"):
        addresses, _, mask, rest = arguments
        found = rest.copy()
        for lane, address in _lanes(addresses, mask, found.dtype.itemsize):
            found[lane] = load(address, type.scalar)
        return found
    value, addresses, _, mask = arguments
    for lane, address in _lanes(addresses, mask, value.dtype.itemsize):
        store(address, value[lane])
    return None


def _lanes(addresses: Data, mask: Data, size: int) -> list[tuple[int, int]]:
    """Returns the active lanes with their addresses; a single address is that of the first lane."""
    if not addresses.shape:
        addresses = addresses + size * np.arange(len(mask), dtype=np.int64)
    return [(lane, int(address)) for lane, address in enumerate(addresses) if mask[lane]]
