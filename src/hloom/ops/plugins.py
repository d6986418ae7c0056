"""Operations of others: what packages name in the entry points `hloom.operations`.

    [project.entry-points."hloom.operations"]
    my-operations = "my_package.operations"      # the module that declares them

They are loaded when an opcode, or a method of the builder, is not among those that are known.
"""

from __future__ import annotations

import difflib
import functools
import importlib.metadata
import sys

from hloom.errors import ArgumentError
from hloom.ops.operation import OPERATIONS, Operation

GROUP = "hloom.operations"


def operation_named(opcode: str) -> type[Operation] | None:
    """The declaration of an opcode; None where nobody declares it. Raises ArgumentError where a package fails."""
    if opcode not in OPERATIONS:
        load_installed()
    return OPERATIONS.get(opcode)


def unknown_opcode(opcode: str) -> str:
    """What to say of an opcode that nobody declares."""
    close = difflib.get_close_matches(opcode, OPERATIONS, 3)
    return f"there is no opcode {opcode!r}" + (f"; close are {', '.join(close)}" if close else "")


@functools.cache
def load_installed() -> None:
    """Loads what installed packages name; their classes register themselves."""
    for point in importlib.metadata.entry_points(group=GROUP):
        if getattr(getattr(sys.modules.get(point.module), "__spec__", None), "_initializing", False):
            continue  # by whom this is called: waiting for it would never end
        try:
            point.load()
        except Exception as error:
            raise ArgumentError(f"the entry point {point.name} of {GROUP} does not load: {error}") from error
