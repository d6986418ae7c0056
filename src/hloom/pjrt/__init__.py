"""hloom as a PJRT plugin: the PJRT C interface, implemented in Python and native Python."""

from __future__ import annotations

import functools


@functools.cache
def api_address() -> int:
    """Address of the PJRT_Api structure, which is valid until the process ends."""
    from hloom.pjrt import buffers, client, events, executables, transfers  # noqa: F401 # registers their handlers
    from hloom.pjrt.handlers import HANDLERS, make_error
    from hloom.pjrt.layouts import row_major
    from hloom.pjrt.native.api import code, make_api
    from hloom.pjrt.native.memory import SIZE_WORDS

    code().state.ready_event = events.ready_event()
    for rank in range(SIZE_WORDS):
        code().state.layouts[rank] = buffers.layout_handle(row_major(rank))
    return make_api(HANDLERS, make_error)
