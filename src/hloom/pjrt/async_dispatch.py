"""Asynchronous dispatch: programs that take long run on a thread of their own, one after the other.

The caller goes on at once, with results that are not ready yet. All that a program needs is known when it is called:
where its arguments lie, and the memory of its results; so later calls may take those results, and wait in the same
queue. Only programs that always end and never fail are queued: what needs the host is run where its errors have a
caller, and a loop that may run for ever, or for more than a second, where Ctrl-C can end it. What took less than `LONG`
the last time runs in line, unless others are still under way.

A task has a number. A buffer's record says after which task it is ready (`ready_at`), and so does an event's
(`number`); what a task may still use when it is given up is kept until the task is done. Whoever reads a buffer, gives
its memory to others or runs a program in line waits for the queue: Python by `wait_for`.
"""

from __future__ import annotations

from collections.abc import Callable

from hloom.backends.cpu.llvm.native.threads import (
    pthread_cond_broadcast,
    pthread_cond_init,
    pthread_cond_signal,
    pthread_cond_wait,
    pthread_create,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from hloom.backends.cpu.llvm.native.types import (
    Address,
    Array,
    Atomic,
    Structure,
    boolean,
    field,
    i8,
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
    external,
    native,
    null,
    stack,
    static,
    store,
    to,
)
from hloom.backends.cpu.program.interface import TABLE
from hloom.pjrt.native_memory import (
    ASKING,
    NOTHING,
    STATE,
    aligned_alloc,
    ask,
    bury,
    count_bytes,
    free,
    give_record,
    is_immortal,
    put,
    release,
    word,
)
from hloom.pjrt.records import offsets_of_arguments, offsets_of_record

LONG, TOO_LONG = 2_000_000, 1_000_000_000
"""Nanoseconds from which on it pays to wake another thread, and those that nobody waits for without a way to end it."""
ASK = TABLE.index("ask")
MAX_UNDER_WAY = 2
"""Each holds its workspace and its results."""
EVENTS = 64
"""Whoever still holds an event when its record serves a later task waits for that one."""
EVENT, BUFFER = offsets_of_record("Event"), offsets_of_record("Buffer")
READY_EVENT, IS_READY = offsets_of_arguments("Buffer_ReadyEvent"), offsets_of_arguments("Event_IsReady")
AWAIT, ON_READY = offsets_of_arguments("Event_Await"), offsets_of_arguments("Event_OnReady")
ASK_AWAIT, ASK_ON_READY = ASKING.index("Event_Await"), ASKING.index("Event_OnReady")
CLOCK_MONOTONIC = 1

Program = Callable[[Address], i32]
OnReady = Callable[[Address, Address], None]


class Task(Structure):
    following: Address
    main: Program
    table: Address
    arena_bytes: u64
    number: u64
    waiting: Address
    """The list of who is called back."""


class Waiting(Structure):
    following: Address
    function: OnReady
    argument: Address


class Kept(Structure):
    """Memory that goes back to the pool when a task is done."""

    following: Address
    address: Address
    size: u64
    number: u64


class Queue(Structure):
    begun: Atomic[u64]
    """The number of the last task."""
    done: Atomic[u64]
    first: Address
    """The task that runs; the others follow."""
    last: Address
    kept: Address
    last_kept: Address
    is_started: u64
    mutex: Array[u8] = field(inline=(u8, 64))
    work: Array[u8] = field(inline=(u8, 64))
    finished: Array[u8] = field(inline=(u8, 64))
    events: Array[u64] = field(inline=(u64, EVENTS))
    """The records of events, by the remainder of the task's number; Python makes them."""


QUEUE = static(Queue, "hloom_pjrt_queue")

clock_gettime = external("clock_gettime", i32, i32, Address)


@native(name="hloom_pjrt_reset_queue")
def reset_queue() -> None:
    """An empty queue without a thread: at first, and in a forked child, which has none of its parent's threads."""
    QUEUE.done.store(QUEUE.begun.load(MONOTONIC), MONOTONIC)
    QUEUE.first = null
    QUEUE.last = null
    QUEUE.kept = null
    QUEUE.last_kept = null
    QUEUE.is_started = 0
    pthread_mutex_init(address_of(QUEUE.mutex), null)
    pthread_cond_init(address_of(QUEUE.work), null)
    pthread_cond_init(address_of(QUEUE.finished), null)


@native(inline=True)
def lock_queue() -> None:
    pthread_mutex_lock(address_of(QUEUE.mutex))


@native(inline=True)
def unlock_queue() -> None:
    pthread_mutex_unlock(address_of(QUEUE.mutex))


# Whoever calls


@native(inline=True)
def is_done(number: u64) -> boolean:
    return QUEUE.done.load(ACQUIRE) >= number


@native(inline=True)
def is_idle() -> boolean:
    return is_done(QUEUE.begun.load(MONOTONIC))


@native(name="hloom_pjrt_last_task")
def last_task() -> u64:
    """The number of the last task that was begun."""
    return QUEUE.begun.load(MONOTONIC)


@native(name="hloom_pjrt_done_tasks")
def done_tasks() -> u64:
    return QUEUE.done.load(ACQUIRE)


@native(name="hloom_pjrt_wait_for")
def wait_for(number: u64) -> None:
    """Returns when the task with this number is done, and all before it."""
    if not is_done(number):
        lock_queue()
        while not is_done(number):
            pthread_cond_wait(address_of(QUEUE.finished), address_of(QUEUE.mutex))
        unlock_queue()


@native()
def begin(main: Address, table: Array[u64], words: u64, arena_bytes: u64) -> u64:
    """Puts the program, with a copy of its table, at the end of the queue; its number, or 0 without memory for it."""
    size = (words << 3) + 63 & -64
    copy = aligned_alloc(64, size)
    place = aligned_alloc(64, 64)
    if copy == null or place == null or not is_served():
        free(copy)
        free(place)
        return u64(0)
    copy_memory(copy, address_of(table), words << 3)
    elements(u64, copy)[ASK] = address_of(go_on)
    task = to(Task, place)
    task.following = null
    task.main = to(Program, main)
    task.table = copy
    task.arena_bytes = arena_bytes
    task.waiting = null
    lock_queue()
    while QUEUE.begun.load(MONOTONIC) - QUEUE.done.load(MONOTONIC) >= MAX_UNDER_WAY:
        pthread_cond_wait(address_of(QUEUE.finished), address_of(QUEUE.mutex))
    number = QUEUE.begun.load(MONOTONIC) + 1
    task.number = number
    put(QUEUE.events[number % EVENTS], EVENT.number, number)
    if QUEUE.last == null:
        QUEUE.first = place
    else:
        to(Task, QUEUE.last).following = place
    QUEUE.last = place
    QUEUE.begun.store(number, RELEASE)
    pthread_cond_signal(address_of(QUEUE.work))
    unlock_queue()
    return number


@native(name="hloom_pjrt_go_on")
def go_on(host: Address, site: i64, place: i64) -> i32:
    """What the loops of queued programs ask: Python's lock, which the host needs, may be held by who waits for them."""
    return i32(0)


@native()
def is_served() -> boolean:
    """Whether there is a thread; the first call starts it."""
    if QUEUE.is_started == 0:
        lock_queue()
        if QUEUE.is_started == 0:
            thread = stack(1)
            if pthread_create(address_of(thread), null, address_of(serve), null) == 0:
                QUEUE.is_started = 1
        unlock_queue()
    return QUEUE.is_started != 0


@native()
def call_back(event: Address, function: OnReady, argument: Address) -> None:
    """Calls a function when the task of an event is done: at once, or on the queue's thread."""
    number = word(event, EVENT.number)
    if is_done(number):
        function(null, argument)
        return
    place = aligned_alloc(64, 64)
    lock_queue()
    found = QUEUE.first
    while found != null and to(Task, found).number != number:
        found = to(Task, found).following
    if found == null or place == null:
        unlock_queue()
        free(place)
        wait_for(number)
        function(null, argument)
        return
    waiting = to(Waiting, place)
    waiting.function = function
    waiting.argument = argument
    waiting.following = to(Task, found).waiting
    to(Task, found).waiting = place
    unlock_queue()


@native()
def release_later(address: Address, size: u64) -> None:
    """Gives memory back to the pool when all tasks are done that were begun before."""
    if is_idle():
        release(address, size)
        return
    place = aligned_alloc(64, 64)
    lock_queue()
    number = QUEUE.begun.load(MONOTONIC)
    if is_done(number) or place == null:
        unlock_queue()
        free(place)
        wait_for(number)
        release(address, size)
        return
    kept = to(Kept, place)
    kept.following = null
    kept.address = address
    kept.size = size
    kept.number = number
    if QUEUE.last_kept == null:
        QUEUE.kept = place
    else:
        to(Kept, QUEUE.last_kept).following = place
    QUEUE.last_kept = place
    unlock_queue()


@native(inline=True)
def event_of(number: u64) -> Address:
    """The event of a task; that which is always ready, where it is done."""
    return STATE.ready_event if is_done(number) else QUEUE.events[number % EVENTS]


@native(inline=True)
def nanoseconds() -> u64:
    time = stack(2)
    clock_gettime(CLOCK_MONOTONIC, address_of(time))
    return time[0] * 1_000_000_000 + time[1]


# The queue's thread


@native(name="hloom_pjrt_serve")
def serve(argument: Address) -> Address:
    while True:
        lock_queue()
        while QUEUE.first == null:
            pthread_cond_wait(address_of(QUEUE.work), address_of(QUEUE.mutex))
        unlock_queue()
        task = to(Task, QUEUE.first)
        task.main(task.table)
        if task.arena_bytes != 0:
            release(to(Table, task.table).arena, task.arena_bytes)
        free(task.table)
        end_task(task)


class Table(Structure):
    arena: Address


@native()
def end_task(task: Task) -> None:
    lock_queue()
    QUEUE.first = task.following
    if QUEUE.first == null:
        QUEUE.last = null
    QUEUE.done.store(task.number, RELEASE)
    pthread_cond_broadcast(address_of(QUEUE.finished))
    unlock_queue()
    waiting = task.waiting
    while waiting != null:
        each = to(Waiting, waiting)
        following = each.following
        each.function(null, each.argument)
        free(waiting)
        waiting = following
    release_kept(task.number)
    free(address_of(task))


@native()
def release_kept(number: u64) -> None:
    while True:
        lock_queue()
        place = QUEUE.kept
        if place == null or to(Kept, place).number > number:
            unlock_queue()
            return
        QUEUE.kept = to(Kept, place).following
        if QUEUE.kept == null:
            QUEUE.last_kept = null
        unlock_queue()
        release(to(Kept, place).address, to(Kept, place).size)
        free(place)


# Memory of buffers


@native()
def release_memory(record: Address) -> None:
    count_bytes(record, False)
    release_later(word(record, BUFFER.owned), word(record, BUFFER.on_device_size_in_bytes))


@native()
def bury_buffer(record: Address) -> None:
    if record == null:
        return
    owned = word(record, BUFFER.owned)
    if owned == 0:
        bury(record)
        return
    if owned != NOTHING:
        release_memory(record)
    give_record(record)


# What the framework asks


@native(name="PJRT_Buffer_ReadyEvent")
def ready_event_of(arguments: Address) -> Address:
    put(arguments, READY_EVENT.event, event_of(word(word(arguments, READY_EVENT.buffer), BUFFER.ready_at)))
    return null


@native(name="PJRT_Event_IsReady")
def event_is_ready(arguments: Address) -> Address:
    event = word(arguments, IS_READY.event)
    number = word(event, EVENT.number)
    ready = is_done(number) if number != 0 else word(event, EVENT.is_ready) != 0
    store(i8, arguments + IS_READY.is_ready, i8(1) if ready else i8(0))
    return null


@native(name="PJRT_Event_Await")
def await_event(arguments: Address) -> Address:
    event = word(arguments, AWAIT.event)
    if not is_immortal(event):
        return ask(ASK_AWAIT, arguments)
    wait_for(word(event, EVENT.number))
    return null


@native(name="PJRT_Event_OnReady")
def event_on_ready(arguments: Address) -> Address:
    event = word(arguments, ON_READY.event)
    if not is_immortal(event):
        return ask(ASK_ON_READY, arguments)
    call_back(event, to(OnReady, word(arguments, ON_READY.callback)), word(arguments, ON_READY.user_arg))
    return null
