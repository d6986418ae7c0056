"""Asynchronous dispatch: long programs run on a worker thread, in order of submission.

The call returns at once, with results that are not ready. The addresses of arguments and results are known at the call,
so later calls may take these results and wait in the same queue. Only programs that always terminate and never fail are
queued: those that call the host run inline, where their errors have a caller, and so do loops that may run for more
than a second, since Ctrl-C can interrupt them there. Short programs run inline too, unless others are in flight.

Task ids count from 1. The record of a buffer has the id of the task that makes it ready (`ready_at`), and so has that
of an event (`task_id`). Memory that a task may use is released after it. Whatever reads a buffer, passes its memory on
or runs a program inline waits for the queue first; Python does so by `wait_for`.
"""

from __future__ import annotations

from collections.abc import Callable

from hloom.backends.cpu.llvm.native.threads import (
    clock_gettime,
    pthread_cond_broadcast,
    pthread_cond_init,
    pthread_cond_signal,
    pthread_cond_wait,
    pthread_create,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    usleep,
)
from hloom.backends.cpu.llvm.native.types import (
    Address,
    Array,
    Atomic,
    Structure,
    boolean,
    field,
    i32,
    i64,
    u8,
    u64,
)
from hloom.backends.cpu.llvm.native.vocabulary import (
    ACQUIRE,
    MONOTONIC,
    RELEASE,
    address_of,
    copy_memory,
    elements,
    native,
    null,
    stack,
    static,
    to,
)
from hloom.backends.cpu.program.interface import TABLE
from hloom.backends.cpu.runtime.device_threads import BUSY, Program
from hloom.pjrt.native.memory import (
    DONATED,
    STATE,
    aligned_alloc,
    count_bytes,
    free,
    release,
    retire,
    return_record,
)
from hloom.pjrt.native.structures import BufferRecord, EventRecord, ExecutableRecord

MIN_QUEUED_NANOSECONDS, MAX_QUEUED_LOOP_NANOSECONDS = 2_000_000, 1_000_000_000
"""Shortest run for which waking the worker pays; longest loop that may run where Ctrl-C cannot interrupt it."""
POLL_WORD = TABLE.index("poll")
MAX_IN_FLIGHT = 2
"""Bound on queued tasks, since each holds its workspace and its results."""
EVENT_COUNT = 64
"""Number of event records, shared round-robin: the holder of an old event may wait for a later task instead."""
CLOCK_MONOTONIC = 1
BUSY_MICROSECONDS = 100
"""Time between attempts to run a program on several devices whose threads run another one."""

RunDevices = Callable[[Program, Address, u64, u64, Address, u64], i32]
"""`hloom_run_devices`."""
OnReady = Callable[[Address, Address], None]


class Task(Structure):
    """A queued program, whose tables, one for each device, lie one after another."""

    next: Address
    main: Program
    tables: Address
    table_words: u64
    device_count: u64
    groups: Address
    arena_bytes: u64
    task_id: u64
    callbacks: Address
    """Head of the list of `Callback`s."""


class Callback(Structure):
    """A function to call when a task has completed."""

    next: Address
    function: OnReady
    argument: Address


class DeferredRelease(Structure):
    """Memory that is returned to the pool when a task has completed."""

    next: Address
    address: Address
    size: u64
    task_id: u64


class Queue(Structure):
    """The queue of tasks and the list of deferred releases. Threads share it under `mutex`."""

    submitted: Atomic[u64]
    """Id of the last task submitted."""
    completed: Atomic[u64]
    """Id of the last task completed."""
    first: Address
    """The running task, head of the list of tasks."""
    last: Address
    releases: Address
    last_release: Address
    is_started: u64
    mutex: Array[u8] = field(inline=(u8, 64))
    work: Array[u8] = field(inline=(u8, 64))
    finished: Array[u8] = field(inline=(u8, 64))
    events: Array[u64] = field(inline=(u64, EVENT_COUNT))
    """Records of events, indexed by the task id modulo `EVENT_COUNT`; Python allocates them."""


QUEUE = static(Queue, "hloom_pjrt_queue")


@native(name="hloom_pjrt_reset_queue")
def reset_queue() -> None:
    """Initialises an empty queue without a thread: at start-up, and in a forked child, which inherits no threads."""
    QUEUE.completed.store(QUEUE.submitted.load(MONOTONIC), MONOTONIC)
    QUEUE.first = null
    QUEUE.last = null
    QUEUE.releases = null
    QUEUE.last_release = null
    QUEUE.is_started = 0
    pthread_mutex_init(address_of(QUEUE.mutex), null)
    pthread_cond_init(address_of(QUEUE.work), null)
    pthread_cond_init(address_of(QUEUE.finished), null)


@native(inline=True)
def lock_queue() -> None:
    """Locks the mutex of the queue."""
    pthread_mutex_lock(address_of(QUEUE.mutex))


@native(inline=True)
def unlock_queue() -> None:
    """Unlocks the mutex of the queue."""
    pthread_mutex_unlock(address_of(QUEUE.mutex))


# Called by any thread


@native(inline=True)
def is_done(task_id: u64) -> boolean:
    """Whether a task has completed."""
    return QUEUE.completed.load(ACQUIRE) >= task_id


@native(inline=True)
def is_idle() -> boolean:
    """Whether no task is queued or running."""
    return is_done(QUEUE.submitted.load(MONOTONIC))


@native(name="hloom_pjrt_last_task")
def last_task() -> u64:
    """Id of the last task submitted."""
    return QUEUE.submitted.load(MONOTONIC)


@native(name="hloom_pjrt_completed_tasks")
def completed_tasks() -> u64:
    """Id of the last task completed."""
    return QUEUE.completed.load(ACQUIRE)


@native(name="hloom_pjrt_wait_for")
def wait_for(task_id: u64) -> None:
    """Blocks until a task and all earlier ones have completed."""
    if not is_done(task_id):
        lock_queue()
        while not is_done(task_id):
            pthread_cond_wait(address_of(QUEUE.finished), address_of(QUEUE.mutex))
        unlock_queue()


@native()
def enqueue(executable: ExecutableRecord, tables: Array[u64]) -> u64:
    """Appends a program with copies of its tables to the queue; returns the task id, or 0 if out of memory."""
    words, devices = executable.table_words, executable.device_count
    size = words * devices << 3
    copy = aligned_alloc(64, size + 63 & -64)
    node = aligned_alloc(64, Task.byte_size + 63 & -64)
    if copy == null or node == null or not ensure_worker():
        free(copy)
        free(node)
        return u64(0)
    copy_memory(copy, address_of(tables), size)
    for device in range(devices):
        elements(u64, copy)[device * words + POLL_WORD] = address_of(always_continue)
    task = to(Task, node)
    task.next = null
    task.main = to(Program, executable.main)
    task.tables = copy
    task.table_words = words
    task.device_count = devices
    task.groups = executable.groups
    task.arena_bytes = executable.arena_bytes
    task.callbacks = null
    lock_queue()
    while QUEUE.submitted.load(MONOTONIC) - QUEUE.completed.load(MONOTONIC) >= MAX_IN_FLIGHT:
        pthread_cond_wait(address_of(QUEUE.finished), address_of(QUEUE.mutex))
    task_id = QUEUE.submitted.load(MONOTONIC) + 1
    task.task_id = task_id
    to(EventRecord, QUEUE.events[task_id % EVENT_COUNT]).task_id = task_id
    if QUEUE.last == null:
        QUEUE.first = node
    else:
        to(Task, QUEUE.last).next = node
    QUEUE.last = node
    QUEUE.submitted.store(task_id, RELEASE)
    pthread_cond_signal(address_of(QUEUE.work))
    unlock_queue()
    return task_id


@native(name="hloom_pjrt_always_continue")
def always_continue(host: Address, site: i64, position: i64) -> i32:
    """Replaces the poll of the host in queued loops: it would need the GIL, which a waiting thread may hold."""
    return i32(0)


@native()
def ensure_worker() -> boolean:
    """Starts the worker thread at the first call; false if it cannot be started."""
    if QUEUE.is_started == 0:
        lock_queue()
        if QUEUE.is_started == 0:
            thread = stack(1)
            if pthread_create(address_of(thread), null, address_of(run_tasks), null) == 0:
                QUEUE.is_started = 1
        unlock_queue()
    return QUEUE.is_started != 0


@native()
def call_when_done(task_id: u64, function: OnReady, argument: Address) -> None:
    """Calls a function once a task has completed: at once, or on the worker thread."""
    if is_done(task_id):
        function(null, argument)
        return
    node = aligned_alloc(64, 64)
    lock_queue()
    found = QUEUE.first
    while found != null and to(Task, found).task_id != task_id:
        found = to(Task, found).next
    if found == null or node == null:
        unlock_queue()
        free(node)
        wait_for(task_id)
        function(null, argument)
        return
    callback = to(Callback, node)
    callback.function = function
    callback.argument = argument
    callback.next = to(Task, found).callbacks
    to(Task, found).callbacks = node
    unlock_queue()


@native()
def release_after_tasks(address: Address, size: u64) -> None:
    """Releases memory once all tasks submitted so far have completed."""
    if is_idle():
        release(address, size)
        return
    node = aligned_alloc(64, 64)
    lock_queue()
    task_id = QUEUE.submitted.load(MONOTONIC)
    if is_done(task_id) or node == null:
        unlock_queue()
        free(node)
        wait_for(task_id)
        release(address, size)
        return
    deferred = to(DeferredRelease, node)
    deferred.next = null
    deferred.address = address
    deferred.size = size
    deferred.task_id = task_id
    if QUEUE.last_release == null:
        QUEUE.releases = node
    else:
        to(DeferredRelease, QUEUE.last_release).next = node
    QUEUE.last_release = node
    unlock_queue()


@native(inline=True)
def event_for(task_id: u64) -> Address:
    """The event of a task; for a completed task, the event that is always ready."""
    return STATE.ready_event if is_done(task_id) else QUEUE.events[task_id % EVENT_COUNT]


@native(inline=True)
def now() -> u64:
    """Monotonic time in nanoseconds."""
    time = stack(2)
    clock_gettime(CLOCK_MONOTONIC, address_of(time))
    return time[0] * 1_000_000_000 + time[1]


# The worker thread


@native(name="hloom_pjrt_run_tasks")
def run_tasks(argument: Address) -> Address:
    """Main function of the worker thread; it never returns."""
    while True:
        lock_queue()
        while QUEUE.first == null:
            pthread_cond_wait(address_of(QUEUE.work), address_of(QUEUE.mutex))
        unlock_queue()
        task = to(Task, QUEUE.first)
        run_task(task)
        end_task(task)


@native(inline=True)
def run_task(task: Task) -> None:
    """Runs a program on its devices, and releases its workspaces and tables."""
    words, devices = task.table_words, task.device_count
    while run_program(task.main, task.tables, words << 3, devices, task.groups, 0) == BUSY:
        usleep(BUSY_MICROSECONDS)
    if task.arena_bytes != 0:
        for device in range(devices):
            release(elements(u64, task.tables)[device * words], task.arena_bytes)
    free(task.tables)


@native(inline=True)
def run_program(main: Program, tables: Address, table_bytes: u64, devices: u64, groups: Address, polls: u64) -> i32:
    """Runs a program on this thread, and on those of other devices, whose waits poll the host or not. Returns its
    status: 0, `BUSY` if nothing has run, or another one if it failed or was interrupted.
    """
    if groups == null:
        return main(tables)
    run_devices = to(RunDevices, STATE.run_devices)
    return run_devices(main, tables, table_bytes, devices, groups, polls)


@native()
def end_task(task: Task) -> None:
    """Marks the running task as completed, calls its callbacks and releases memory that waited for it."""
    lock_queue()
    QUEUE.first = task.next
    if QUEUE.first == null:
        QUEUE.last = null
    QUEUE.completed.store(task.task_id, RELEASE)
    pthread_cond_broadcast(address_of(QUEUE.finished))
    unlock_queue()
    node = task.callbacks
    while node != null:
        callback = to(Callback, node)
        following = callback.next
        callback.function(null, callback.argument)
        free(node)
        node = following
    release_deferred(task.task_id)
    free(address_of(task))


@native()
def release_deferred(task_id: u64) -> None:
    """Performs the deferred releases that waited for a task or an earlier one."""
    while True:
        lock_queue()
        node = QUEUE.releases
        if node == null or to(DeferredRelease, node).task_id > task_id:
            unlock_queue()
            return
        QUEUE.releases = to(DeferredRelease, node).next
        if QUEUE.releases == null:
            QUEUE.last_release = null
        unlock_queue()
        release(to(DeferredRelease, node).address, to(DeferredRelease, node).size)
        free(node)


# Memory of buffers


@native()
def release_memory(buffer: BufferRecord) -> None:
    """Releases the memory of a buffer that native code owns, once no task can use it."""
    count_bytes(buffer, False)
    release_after_tasks(buffer.owned, buffer.on_device_size_in_bytes)


@native()
def retire_buffer(record: Address) -> None:
    """Destroys a buffer: frees one that native code owns, and retires one that has a Python object."""
    if record == null:
        return
    buffer = to(BufferRecord, record)
    if buffer.owned == 0:
        retire(record)
        return
    if buffer.owned != DONATED:
        release_memory(buffer)
    return_record(record)
