"""Native functions of events: the readiness of buffers, waiting and callbacks.

Events of tasks (`async_dispatch.py`) are handled here, those of Python objects by Python (`pjrt/events.py`).
"""

from __future__ import annotations

from hloom.backends.cpu.llvm.native.types import Address
from hloom.backends.cpu.llvm.native.vocabulary import address_of, native, null, to
from hloom.pjrt.native.async_dispatch import OnReady, call_when_done, event_for, is_done, wait_for
from hloom.pjrt.native.memory import PYTHON_FUNCTIONS, call_python, is_immortal, pause_if_ending
from hloom.pjrt.native.structures import AwaitCall, IsReadyCall, OnReadyCall, ReadyEventCall
from hloom.pjrt.records import WITHHELD

PYTHON_AWAIT, PYTHON_ON_READY, PYTHON_ERROR, PYTHON_READY = map(
    PYTHON_FUNCTIONS.index, ("Event_Await", "Event_OnReady", "Event_Error", "Buffer_ReadyEvent")
)


@native(name="PJRT_Buffer_ReadyEvent")
def ready_event_of(arguments: ReadyEventCall) -> Address:
    """Returns the event of the task that writes a buffer; those that wait for a transfer have theirs in Python."""
    if arguments.buffer.is_deleted & WITHHELD != 0:
        return call_python(PYTHON_READY, address_of(arguments))
    arguments.event = event_for(arguments.buffer.ready_at)
    return null


@native(name="PJRT_Event_IsReady")
def event_is_ready(arguments: IsReadyCall) -> Address:
    """Tests an event without blocking."""
    event = arguments.event
    arguments.is_ready = is_done(event.task_id) if event.task_id != 0 else event.is_ready != 0
    return null


@native(name="PJRT_Event_Await")
def await_event(arguments: AwaitCall) -> Address:
    """Waits for an event; those of Python objects are awaited by Python."""
    event = arguments.event
    if not is_immortal(address_of(event)):
        return call_python(PYTHON_AWAIT, address_of(arguments))
    wait_for(event.task_id)
    pause_if_ending()
    return null


@native(name="PJRT_Event_Error")
def event_error(arguments: AwaitCall) -> Address:
    """Returns the error of an event; tasks have none."""
    if not is_immortal(address_of(arguments.event)):
        return call_python(PYTHON_ERROR, address_of(arguments))
    return null


@native(name="PJRT_Event_OnReady")
def event_on_ready(arguments: OnReadyCall) -> Address:
    """Registers a callback of an event; those of Python objects keep theirs in Python."""
    event = arguments.event
    if not is_immortal(address_of(event)):
        return call_python(PYTHON_ON_READY, address_of(arguments))
    call_when_done(event.task_id, to(OnReady, arguments.callback), arguments.user_arg)
    return null
