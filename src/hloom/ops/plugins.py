"""Operations of other packages, declared by entry points of the group `hloom.operations`.

    [project.entry-points."hloom.operations"]
    my-operations = "my_package.operations"      # the module that declares them

The modules are imported when an unknown opcode, or an unknown method of the builder, is looked up.
"""

from __future__ import annotations

import functools
import sys

from hloom.errors import ArgumentError, close_names
from hloom.ops.operation import OPERATIONS, Operation

GROUP = "hloom.operations"


def operation_named(opcode: str) -> type[Operation] | None:
    """Returns the class of an opcode; None if no package declares it. Raises ArgumentError if an entry point fails to
    load.
    """
    if opcode not in OPERATIONS:
        load_installed()
    return OPERATIONS.get(opcode)


def unknown_opcode(opcode: str) -> str:
    """Returns the error message for an unknown opcode, with similar ones."""
    return f"there is no opcode {opcode!r}{close_names(opcode, OPERATIONS)}"


@functools.cache
def load_installed() -> None:
    """Imports the modules of all entry points; their classes register themselves."""
    from importlib.metadata import entry_points  # slow to import, and rarely needed

    for point in entry_points(group=GROUP):
        if getattr(getattr(sys.modules.get(point.module), "__spec__", None), "_initializing", False):
            continue  # the caller is importing this module: waiting for it would deadlock
        try:
            point.load()
        except Exception as error:
            raise ArgumentError(f"the entry point {point.name} of {GROUP} does not load: {error}") from error
