"""hloom as a platform that frameworks load: the PJRT C interface, implemented in Python and a little machine code."""

from __future__ import annotations

import functools


@functools.cache
def api_address() -> int:
    """The address of the PJRT_Api structure; it stays valid to the end of the process."""
    from hloom.pjrt import buffers, client, events, executables  # noqa: F401 # they register their answers
    from hloom.pjrt.handlers import HANDLERS, make_error
    from hloom.pjrt.native import code, make_api
    from hloom.pjrt.native_memory import SIZE_WORDS

    code().state.ready_event = events.ready_event()
    for rank in range(SIZE_WORDS):
        code().state.layouts[rank] = buffers.layout_handle(buffers.row_major(rank))
    return make_api(HANDLERS, make_error)
