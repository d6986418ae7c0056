"""The compiled backend as an Executable: arguments in, one native call, results out."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hloom.backends.cpu import buffers
from hloom.backends.cpu.compiler import CompiledModule
from hloom.backends.cpu.program import Buffer, HostStep, Slot, leaves
from hloom.backends.cpu.program_emitter import TABLE, host_buffers, table_position
from hloom.backends.cpu.thread_pool import shared_pool
from hloom.backends.interpreter.interpreter import Execution, Site
from hloom.errors import HloomError, RunError
from hloom.ir import Module
from hloom.ops.operation import TOKEN_VALUE, Array, Value
from hloom.runtime.device import Device
from hloom.runtime.executable import Executable
from hloom.runtime.rendezvous import Rendezvous
from hloom.shape import Shape

_HOST_CALL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
_MAIN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)


class CpuExecutable(Executable):
    """Runs a module as one native program; what has no native code calls the interpreter's meaning of it."""

    def __init__(
        self,
        module: Module,
        replica_count: int,
        devices: Sequence[Device] | None,
        timeout: float,
        seed: int | None,
        compiled: CompiledModule,
    ) -> None:
        super().__init__(module, replica_count, devices, timeout)
        self.seed = seed
        self.compiled = compiled
        self._main = _MAIN(compiled.code.address("hloom_main"))
        self._host_call = _HOST_CALL(self._call_host)
        self._runs = threading.local()
        program = compiled.program
        pool = shared_pool()
        constants = [buffer for buffer in program.buffers if buffer.kind == "constant"]
        self._outputs = [buffer for buffer in program.buffers if buffer.kind == "output"]
        inputs = [buffer for buffer in program.buffers if buffer.kind == "parameter"]
        size = len(TABLE) + len(inputs) + len(self._outputs) + len(constants)
        self._table = np.zeros(size, np.uint64)
        self._table[1] = pool.address
        self._table[2] = pool.parallel_for_address
        self._table[3] = ctypes.cast(self._host_call, ctypes.c_void_p).value or 0
        for buffer in constants:
            assert buffer.data is not None
            self._table[table_position(program, buffer)] = buffer.data.ctypes.data
        self._first_input = len(TABLE)
        self._first_output = len(TABLE) + len(inputs)

    def report(self) -> list[str]:
        """The instructions that call back into the interpreter, one line each."""
        return [repr(step.instruction) for step in self.compiled.program.host_steps]

    def _run(self, device: int, arguments: list[Value], rendezvous: Rendezvous) -> Value:
        program = self.compiled.program
        run = _Run(self, device, rendezvous)
        self._runs.current = run
        table = self._table.copy()
        kept = []
        position = self._first_input
        for place, value in zip(program.parameters, arguments, strict=True):
            for leaf, array in zip(_flat_place(place), _flat_value(value), strict=True):
                if isinstance(leaf, Slot):
                    run.slots[leaf.number] = array
                else:
                    array = np.ascontiguousarray(array)
                    kept.append(array)
                    table[position] = array.ctypes.data
                    position += 1
        for number, buffer in enumerate(self._outputs):
            output = buffers.empty(buffer.dimensions, buffer.type.dtype)
            run.outputs.append(output)
            table[self._first_output + number] = output.ctypes.data
        arena = buffers.allocate(self.compiled.assignment.arena_bytes) if self.compiled.assignment.arena_bytes else None
        if arena is not None:
            table[0] = arena.address
        failed = self._main(table.ctypes.data)
        if failed:
            assert run.error is not None
            raise run.error
        return run.collect(program.result)

    def _call_host(self, _: int, site: int, frame: int) -> int:
        run: _Run = self._runs.current
        try:
            run.evaluate(self.compiled.program.host_steps[site], frame)
        except BaseException as error:
            run.error = error
            return 1
        return 0


class _Run:
    """One call: its results, the values that only the host holds, and the error that stopped it."""

    def __init__(self, executable: CpuExecutable, device: int, rendezvous: Rendezvous) -> None:
        self.executable = executable
        self.device = device
        self.rendezvous = rendezvous
        self.slots: list[Any] = [None] * executable.compiled.program.slots
        self.outputs: list[np.ndarray[Any, Any]] = []
        self.error: BaseException | None = None
        self._execution: Execution | None = None

    @property
    def execution(self) -> Execution:
        """The interpreter's side of this run, made when first needed."""
        if self._execution is None:
            executable = self.executable
            replica, partition = divmod(self.device, executable.module.num_partitions)
            self._execution = Execution(
                executable.compiled.program.plans,
                executable.devices[self.device],
                self.rendezvous,
                replica,
                partition,
                executable.seed,
            )
        return self._execution

    def evaluate(self, step: HostStep, frame: int) -> None:
        addresses = (ctypes.c_void_p * sum(1 for _ in host_buffers(step))).from_address(frame)
        arrays = iter(
            [_array_at(address or 0, buffer) for address, buffer in zip(addresses, host_buffers(step), strict=True)]
        )
        instruction = step.instruction
        # What outlives the step, here or on another device, must not lie in memory that is used again.
        keep = self.executable.device_count > 1 or any(isinstance(leaf, Slot) for leaf in leaves(step.result))
        operands = [
            self._value(place, shape, arrays, keep)
            for place, shape in zip(step.operands, instruction.operand_shapes, strict=True)
        ]
        self.execution.current = instruction
        try:
            with np.errstate(all="ignore"):
                value = instruction.op.evaluate(
                    Site(self.execution, instruction, on_arrays=False), *instruction.op.bind(operands)
                )
        except HloomError as error:
            where = f" ({instruction.location})" if instruction.location else ""
            raise error.at(f"{instruction!r}{where}") from None
        except (MemoryError, OverflowError) as error:
            size = instruction.shape.byte_size
            raise RunError(f"no memory: the result has {size} bytes ({error})").at(repr(instruction)) from None
        self._put(step.result, value, arrays)

    def _value(self, place: Any, shape: Shape, arrays: Iterator[Array], keep: bool) -> Value:
        if isinstance(place, tuple):
            return tuple(self._value(p, s, arrays, keep) for p, s in zip(place, shape.elements, strict=True))
        if isinstance(place, Slot):
            return self.slots[place.number]
        array = next(arrays).reshape(shape.dimensions)
        return array.copy() if keep else array

    def _put(self, place: Any, value: Value, arrays: Iterator[Array]) -> None:
        if isinstance(place, tuple):
            for element, part in zip(place, value, strict=True):
                self._put(element, part, arrays)
        elif isinstance(place, Slot):
            self.slots[place.number] = value
        else:
            next(arrays)[...] = value

    def collect(self, place: Any) -> Value:
        if isinstance(place, tuple):
            return tuple(self.collect(element) for element in place)
        if isinstance(place, Slot):
            value = self.slots[place.number]
            return TOKEN_VALUE if value is None else value
        return self.outputs[place.number]


def _array_at(address: int, buffer: Buffer) -> np.ndarray[Any, Any]:
    """The array that lies in a buffer."""
    size = buffer.byte_size
    if not size:
        return np.empty(buffer.dimensions, buffer.type.dtype)
    memory = (ctypes.c_char * size).from_address(address)
    return np.frombuffer(memoryview(memory), buffer.type.dtype).reshape(buffer.dimensions)


def _flat_place(place: Any) -> list[Buffer | Slot]:
    return list(leaves(place))


def _flat_value(value: Value) -> list[Any]:
    if isinstance(value, tuple):
        return [leaf for element in value for leaf in _flat_value(element)]
    return [value]
