"""The compiled backend as an Executable: checks arguments, makes one native call, and returns results."""

from __future__ import annotations

import ctypes
import operator
import time
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hloom.backends.cpu.compiler import CompiledModule
from hloom.backends.cpu.host_run import HostRun, ThreadRuns
from hloom.backends.cpu.llvm.machine_code import load_object
from hloom.backends.cpu.program.interface import TABLE, loop_of_site
from hloom.backends.cpu.program.program import TOKEN_SLOT, Buffer, HostStep, Slot, WaitStep
from hloom.backends.cpu.runtime import buffers
from hloom.backends.cpu.runtime.arrays import (
    as_dense,
    is_dense_array,
    result_value,
    sharing_memory,
    with_copies,
)
from hloom.backends.cpu.runtime.dispatch import (
    DOES_NOT_FIT,
    HEADER_WORDS,
    Template,
    bound_call,
    layout_is_known,
    template,
)
from hloom.backends.cpu.runtime.exchange import REFUSED, WAITS, exchange_address
from hloom.backends.cpu.runtime.interrupts import Host, host, poll_address, take_raised
from hloom.backends.cpu.runtime.mpi_calls import DeviceContext, exchanges_of
from hloom.backends.cpu.runtime.thread_pool import shared_pool
from hloom.errors import ResourceExhaustedError, RunError
from hloom.ir import Module
from hloom.ops.custom_call import PAD_TO_STATIC, REFUSE_SIZES, SLICE_TO_DYNAMIC
from hloom.ops.ragged_all_to_all import RaggedAllToAll
from hloom.runtime.executable import DeviceExecutable, RunOptions, own_arrays
from hloom.runtime.rendezvous import Rendezvous
from hloom.system.lazy import cached_property
from hloom.system.python_api import c_address
from hloom.system.records import record
from hloom.values import Array, Value, leaves

if TYPE_CHECKING:
    from hloom.backends.cpu.runtime.local_moves import Team
    from hloom.runtime.mpi.reductions import MakeReduction

_HOST_CALL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_size_t)
STOPPED = 1
"""Status of a program that the host stopped."""
_BUSY_POLLS, _SLEEP_SECONDS = 50, 1e-4
"""Number of polls after which a waiting rank sleeps between polls, and for how many seconds."""
KEPT_ARENA_BYTES = 1 << 20
"""Maximum size of an arena that is kept between calls."""


@record(slots=True)
class NativeEntry:
    """Program for callers in native code: `i32 main(ptr table)`.

    The caller copies the row of `tables` for each device, writes the addresses of `inputs` parameters and then of all
    outputs from word `first_input` on, and the address of `arena_bytes` bytes of scratch memory to word 0.
    """

    main: int
    tables: Array
    first_input: int
    inputs: int
    arena_bytes: int
    donated: dict[int, int]
    """Parameter whose memory each output takes, by index; the output's address holds the parameter's value."""
    is_shared: bool
    """Whether other processes take part, which after a failure may still write to the program's buffers."""
    always_ends: bool
    """Whether every run ends without an error unless it is stopped."""
    has_loops: bool
    """Whether the program has loops, in which it can be stopped."""
    is_brief: bool
    """Whether every run takes a few microseconds at most."""
    groups: int
    """Address of the `Groups` of several devices, which `run_devices` takes; 0 for one device."""


_AT_THE_BOUNDARY = {PAD_TO_STATIC, SLICE_TO_DYNAMIC, REFUSE_SIZES}


class CpuExecutable(DeviceExecutable):
    """Runs a module as one native program; instructions without native code call the interpreter."""

    def __init__(self, module: Module, options: RunOptions, compiled: CompiledModule) -> None:
        super().__init__(module, options)
        if not layout_is_known():
            raise RunError("this Python's arrays and tuples lie in memory in an unknown way: use backend='interpreter'")
        self.signature = signature = compiled.signature
        self.host = compiled.host
        self._arena_bytes = compiled.arena_bytes
        self._donated = compiled.donated
        self.key = compiled.key
        self._largest_buffers = "\n  ".join(["a run, whose largest buffers are", *compiled.largest_buffers])
        self.code = load_object(*compiled.object_files)
        self._runs = ThreadRuns()
        self._loops = compiled.loops
        self._is_brief = compiled.is_brief
        self._arenas: list[_Arena] = []
        self._host_call = _host_callback(self)
        host_call = c_address(self._host_call)
        self._host = host(host_call)
        self._exchanges: list[Any] = []
        pool = shared_pool()
        self._template = template(
            signature,
            self.code.address("hloom_main"),
            {
                "pool": pool.address,
                "parallel_for": pool.parallel_for_address,
                "run_calls": pool.run_calls_address,
                "host_call": exchange_address() if self.has_one_device_per_rank else host_call,
                "host_data": self._host.ctypes.data,
                "poll": poll_address(),
            },
            keeps_lock=compiled.is_brief,  # since releasing it would cost as much as the run
        )
        self._call = bound_call(self._template)
        self._outputs = [(b.dimensions, b.type.dtype) for b in signature.of_kind("output")]
        self._allocators = [buffers.allocator(*output) for output in self._outputs]
        self._is_plain = not compiled.host.is_needed and self.device_count == 1
        self._parameters_are_flat = all(isinstance(tree, Buffer) for tree in signature.parameters)
        result = signature.result
        self._result_is_flat = isinstance(result, tuple) and all(isinstance(tree, Buffer) for tree in result)
        self._result_is_array = isinstance(result, Buffer)

    @property
    def temporary_bytes(self) -> int:
        """Size of the arena in bytes."""
        return self._arena_bytes

    def report(self) -> list[str]:
        """Returns the instructions that call the interpreter, one line each.

        Conversions of arguments and results of dynamic sizes, and checks that raise errors, are left out.
        """
        steps = [step.instruction for step in self.host.steps if isinstance(step, HostStep)]
        return [repr(i) for i in steps if getattr(i.op, "target_name", "") not in _AT_THE_BOUNDARY]

    def _on_first_run(self) -> None:
        """Prepares the MPI calls of collectives, if each rank has one device."""
        if not self.has_one_device_per_rank:
            return
        assert self.world is not None
        partitions = self.module.num_partitions
        context = DeviceContext(
            self.world, self.ranks, self.local_devices[0], self.replica_count, partitions, self._make_reduction
        )
        words, are_all, self._exchanges = exchanges_of(self.host.steps, context)
        Host(self._host.ctypes.data).exchanges = words.ctypes.data
        self._is_plain = are_all and not self.host.slot_count

    @property
    def _make_reduction(self) -> MakeReduction:
        from hloom.backends.cpu.kernels.reduction_function import make_reduction

        return make_reduction

    def native_entry(self) -> NativeEntry | None:
        """Returns the entry for native callers; None if the program needs Python, or if results are nested."""
        team = self._team
        if not ((self._is_plain or team) and self._result_is_flat and self._parameters_are_flat):
            return None
        main, inputs = self.code.address("hloom_main"), len(self.signature.of_kind("parameter"))
        shared = self.world is not None
        ends = not shared and all(loop.is_counted for loop in self._loops)
        tables = team.tables if team else self._table[np.newaxis]
        facts = shared, ends, bool(self._loops), self._is_brief, team.groups if team else 0
        return NativeEntry(main, tables, len(TABLE), inputs, self._arena_bytes, self._donated, *facts)

    @property
    def _table(self) -> Array:
        """The table of the program without the addresses of arrays."""
        return self._template[HEADER_WORDS:][: Template(self._template.ctypes.data).words]

    @cached_property
    def _team(self) -> Team | None:
        """The devices of this process that run the program together without Python; None if it needs Python."""
        if self.device_count == 1 or self.world is not None or self.host.slot_count or not self.host.are_met:
            return None
        # Imported here, because programs of one device need none of it.
        from hloom.backends.cpu.runtime.local_moves import team_of

        return team_of(self.host.steps, self.replica_count, self.module.num_partitions, self._table)

    def __call__(self, *arrays: Any) -> Value:
        if self._is_plain and (self._parameters_are_flat or not self._donated):
            results = self._results(arrays, arrays)
            status = self._native(arrays, results)
            if status == 0:
                if self._result_is_array:
                    return results[0]
                return results if self._result_is_flat else result_value(self.signature.result, results, [])
            if status == STOPPED:
                raise self.stopped()
        # Slow path: arguments that are not dense arrays of the right types, and programs that need the host.
        return super().__call__(*arrays)

    def stopped(self) -> BaseException:
        """Returns the error that stopped this thread's run, and reports it to other ranks."""
        raised = take_raised(self._host if self._team is None else self._team.hosts[0])
        error = self._runs.error or raised or KeyboardInterrupt()
        self._runs.error = None
        if self.world is not None:
            self.world.fail(error)
        return error

    def _results(self, arguments: Sequence[Any], caller_arrays: Sequence[Any]) -> tuple[Array, ...]:
        """Returns arrays for the results, new or donated; `caller_arrays` are the arguments before conversion."""
        try:
            if self._donated:
                return self._donated_results(arguments, caller_arrays)
            return tuple(map(operator.call, self._allocators))
        except ResourceExhaustedError as error:
            raise error.at(self._largest_buffers) from None

    def _donated_results(self, arguments: Sequence[Any], caller_arrays: Sequence[Any]) -> tuple[Array, ...]:
        shared = sharing_memory(caller_arrays)
        results = []
        for index, (sizes, dtype) in enumerate(self._outputs):
            parameter = self._donated.get(index)
            taken = None if parameter is None else arguments[parameter]
            if not is_dense_array(taken, sizes, dtype):
                results.append(self._allocators[index]())
            elif parameter not in shared and taken.flags.writeable and buffers.is_well_aligned(taken):
                results.append(taken.reshape(sizes))
            else:
                # The memory is shared, read-only or misaligned: the program reads the value from a copy.
                results.append(self._allocators[index]())
                results[-1][...] = taken.reshape(sizes)
        return tuple(results)

    def _native(self, arguments: tuple[Any, ...], results: tuple[Array, ...]) -> int:
        arena = self._arena() if self._arena_bytes else None
        status = (self._call if arena is None else arena.call)(arguments, results)
        if status and self.world is not None:
            self.world.keep_alive(arena, arguments, results, self._exchanges)
        elif arena is not None and self._arena_bytes <= KEPT_ARENA_BYTES:
            self._arenas.append(arena)
        return status

    def _arena(self) -> _Arena:
        try:
            # Another thread may take the last one meanwhile.
            return self._arenas.pop()
        except IndexError:
            pass
        try:
            return _Arena(self._arena_bytes, self._template)
        except ResourceExhaustedError as error:
            raise error.at(self._largest_buffers) from None

    def _copy_shared_arguments(self, lists: list[list[Value]]) -> list[list[Value]]:
        if not self._donated or self.list_count == 1:
            return lists
        arrays = [*leaves(tuple(map(tuple, lists)))]
        shared = {id(arrays[k]) for k in sharing_memory(arrays)}
        return [[with_copies(value, shared) for value in each] for each in lists]

    def run_replicas(self, arguments: Sequence[Sequence[Any]], timeout: float | None = None) -> list[Value]:
        if timeout is None and self._team is not None and len(arguments) == self.list_count:
            results = self._run_team(self._team, arguments)
            if results is not None:
                return results
        return super().run_replicas(arguments, timeout)

    def _run_team(self, team: Team, arguments: Sequence[Sequence[Any]]) -> list[Value] | None:
        """Runs all devices without Python; returns None, and runs nothing, if another run has their threads."""
        checked = self._copy_shared_arguments([self._check_arguments([*each]) for each in arguments])
        tables, kept, values = team.tables.copy(), list[Any](), list[Value]()
        for table, each in zip(tables, checked, strict=True):
            inputs, caller_arrays = self._inputs(each, [])
            results = self._results(inputs, caller_arrays)
            arrays = [array.ctypes.data for array in (*inputs, *results)]
            table[len(TABLE) : len(TABLE) + len(arrays)] = arrays
            if self._arena_bytes:
                kept.append(buffers.allocate(self._arena_bytes))
                table[TABLE.index("arena")] = kept[-1].address
            kept.append(inputs)
            values.append(result_value(self.signature.result, results, []))
        status = team.run(self.code.address("hloom_main"), tables)
        if status == STOPPED:
            raise self.stopped()
        return values if status == 0 else None

    def _inputs(self, arguments: list[Value], slots: list[Any]) -> tuple[list[Array], list[Value]]:
        """Returns the arrays that the program reads, dense, and those of the caller; fills slots with other values."""
        inputs, caller_arrays = list[Array](), list[Value]()
        for tree, value in zip(self.signature.parameters, arguments, strict=True):
            for leaf, array in zip(leaves(tree), leaves(value), strict=True):
                if leaf == TOKEN_SLOT:
                    continue
                if isinstance(leaf, Slot):
                    slots[leaf.index] = array
                else:
                    caller_arrays.append(array)
                    inputs.append(as_dense(array, leaf))
        return inputs, caller_arrays

    def _run(self, device: int, arguments: list[Value], rendezvous: Rendezvous) -> Value:
        signature = self.signature
        run = HostRun(self, self.host, device, rendezvous)
        inputs, caller_arrays = self._inputs(arguments, run.slots)
        results = self._results(inputs, caller_arrays)
        # A custom call may run this program again on the same thread.
        outer = self._runs.current
        try:
            self._runs.current = run
            status = self._native(tuple(inputs), results)
        finally:
            self._runs.current = outer
        if status == DOES_NOT_FIT:
            raise AssertionError("checked arguments do not fit: a defect in hloom")
        if run.error is not None:
            raise run.error
        if status == STOPPED:
            raise self.stopped()
        return result_value(signature.result, results, [own_arrays(value, arguments) for value in run.slots])

    def _call_host(self, data: int | None, request_id: int, site: int, frame: int) -> int:
        """Callback of programs. Returns `request_id`, or 0 if the program must end, for an error that is recorded."""
        try:
            self._serve(request_id, site, frame)
        except BaseException as error:
            (self._runs.current or self._runs).error = error
            return 0
        return request_id

    def _serve(self, request_id: int, site: int, frame: int) -> None:
        """Polls for a loop or an exchange, or runs the step of a site."""
        loop = loop_of_site(site)
        if loop is not None:
            self._poll_loop(loop)
        elif frame in (WAITS, REFUSED):
            self._poll_exchange(site, request_id, frame == REFUSED)
        else:
            self._run_step(site, frame)

    def _run_step(self, site: int, frame: int) -> None:
        """Evaluates the step of a site, on the arrays that a frame points to."""
        run, step = self._runs.current, self.host.steps[site]
        if run is not None and not isinstance(step, WaitStep):
            run.evaluate(step, frame)
        elif self.world is not None:
            self.world.check()

    def _poll_exchange(self, site: int, request_id: int, is_refused: bool) -> None:
        """Checks whether a pending exchange may go on waiting; `request_id` identifies the exchange."""
        runs, instruction = self._runs, self.host.steps[site].start.instruction
        assert self.world is not None
        if is_refused:
            is_ragged = isinstance(instruction.op, RaggedAllToAll)
            reason = "COLL-7: rows lie outside of the arrays, or " if is_ragged else ""
            raise RunError(f"{reason}MPI refused it").at(repr(instruction))
        if runs.waits != request_id:
            runs.waits, runs.polls, runs.since = request_id, 0, time.monotonic()
        runs.polls += 1
        what = f"{instruction!r}: its group meets"
        self.world.check_peers(what, runs.since + self.timeout, self.timeout)
        if runs.current is not None:
            runs.current.rendezvous.check(repr(instruction))
        if runs.polls > _BUSY_POLLS:
            time.sleep(_SLEEP_SECONDS)

    def _poll_loop(self, loop: int) -> None:
        """Checks whether a loop may go on. Python handles signals while this runs."""
        run = self._runs.current
        if run is not None:
            run.rendezvous.check(f"loop {self._loops[loop].name}")


def _host_callback(executable: CpuExecutable) -> Any:
    """Returns the callback of programs, which does not keep the executable: unused ones go at once, with their code."""
    found = weakref.ref(executable)

    def call(data: int | None, request_id: int, site: int, frame: int) -> int:
        running = found()
        return running._call_host(data, request_id, site, frame) if running is not None else 0

    return _HOST_CALL(call)


class _Arena:
    """Arena of a run, and the program's call with a copy of the template that holds its address."""

    def __init__(self, size: int, template: np.ndarray[Any, np.dtype[np.uint64]]) -> None:
        self.block = buffers.allocate(size)
        own = template.copy()
        own[HEADER_WORDS + TABLE.index("arena")] = self.block.address
        self.call = bound_call(own)
