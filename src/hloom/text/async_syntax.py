"""The short form of asynchronous instructions: `custom-call-start(%x), custom_call_target="f"` and its done.

It stands for async-start of a computation that holds the operation alone; that computation is made here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from hloom.errors import ArgumentError
from hloom.ir import Computation, Instruction, callees_first
from hloom.ops.control_flow import AsyncDone, AsyncStart, AsyncUpdate
from hloom.ops.operation import OPERATIONS, Operation
from hloom.ops.structure import Parameter
from hloom.shape import Shape
from hloom.text.attributes import scan_alias
from hloom.text.scanner import Scanner, listed

Raw = dict[str, tuple[str, int]]


def expand_async(
    opcode: str,
    shape: Shape | None,
    operands: list[Instruction],
    raw: Raw,
    names: Collection[str],
    make: Callable[[type[Operation]], Operation],
) -> Operation | None:
    """The asynchronous operation that an opcode like `reduce-start` stands for; None where it stands for none.

    `raw` holds the attributes as text; `make` makes an operation of those that are left. A computation that is started
    is new, under a name that is not among `names`. ArgumentError where the result's shape is no context.
    """
    base, _, step = opcode.rpartition("-")
    declaration = OPERATIONS.get(base)
    if declaration is None or step not in ("start", "update", "done"):
        return None
    if step != "start":
        for field in declaration.fields:
            raw.pop(field.text or "", None)
        return AsyncUpdate() if step == "update" else AsyncDone()
    thread = raw.pop("async_execution_thread", ('"main"', 0))[0].strip('"')
    number = 0
    while f"async_computation.{number}" in names:
        number += 1
    wrapped = Computation(f"async_computation.{number}")
    wrapped.execution_thread = thread
    aliases = raw.pop("output_to_operand_aliasing", None)
    parameters = [
        wrapped.add(Instruction(f"param_{i}", operand.shape, Parameter(number=i))) for i, operand in enumerate(operands)
    ]
    if shape is None or not shape.is_tuple or len(shape.elements) < 2:
        raise ArgumentError(f"the result of {opcode} is ((operands), result, contexts..), got {shape}")
    wrapped.add(Instruction(f"{base}.{number}", shape.elements[1], make(declaration), parameters))
    for computation in callees_first(wrapped):
        computation.execution_thread = thread
    aliasing = listed(Scanner(aliases[0]), scan_alias) if aliases else ()
    return AsyncStart(async_execution_thread=thread, calls=wrapped, output_to_operand_aliasing=tuple(aliasing))
