"""XLA's syntax sugar for asynchronous instructions, `custom-call-start(%x), custom_call_target="f"` and its done.

A start without a declaration of its own stands for async-start of a computation with only that operation, which is
created here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence

from hloom.errors import ArgumentError
from hloom.ir import Computation, Instruction, callees_first
from hloom.ops.collectives import AllReduce
from hloom.ops.communication import CopyStart, Transfer
from hloom.ops.control_flow import AsyncDone, AsyncStart, AsyncUpdate
from hloom.ops.operation import OPERATIONS, Operation
from hloom.ops.structure import Parameter
from hloom.ops.traits import Done, Start
from hloom.shape import Shape
from hloom.text.attribute_texts import AttributeTexts
from hloom.text.attributes import scan_alias
from hloom.text.scanner import Scanner, scan_list


def is_short_form(declaration: type[Operation], shape: Shape | None, operands: list[Instruction]) -> bool:
    """Whether the opcode of a declared start or done is nevertheless syntax sugar for an asynchronous operation.

    XLA prints an async-start of an all-reduce as all-reduce-start, whose result is then a context, ((operands),
    result).
    """
    if issubclass(declaration, Done):
        return bool(operands) and isinstance(operands[0].op, AsyncStart | AsyncUpdate)
    if not issubclass(declaration, Start) or issubclass(declaration, Transfer):
        return False
    if shape is None or not shape.is_tuple or not shape.elements or not shape.elements[0].is_tuple:
        return False
    if issubclass(declaration, CopyStart):
        return shape.elements[0].compatible(Shape.tuple_of(operand.shape for operand in operands))
    return issubclass(declaration, AllReduce) or not (len(operands) > 1 or operands[0].shape.is_tuple)


def expand_async(
    opcode: str,
    shape: Shape | None,
    operands: list[Instruction],
    texts: AttributeTexts,
    names: Collection[str],
    create_operation: Callable[[type[Operation]], Operation],
) -> Operation | None:
    """The asynchronous operation that an opcode such as `reduce-start` stands for; None for other opcodes.

    `texts` holds the text of each attribute; attributes of the wrapper are removed from it, and `create_operation`
    makes the wrapped operation of the others. The wrapped computation gets a name that is not in `names`. Raises
    ArgumentError if the shape of a start is not `((operands), result, contexts..)`.
    """
    base, _, step = opcode.rpartition("-")
    declaration = OPERATIONS.get(base)
    if declaration is None or step not in ("start", "update", "done"):
        return None
    if step != "start":
        for field in declaration.fields:
            texts.pop(field.text or "", None)
        return AsyncUpdate() if step == "update" else AsyncDone()
    if shape is None or not shape.is_tuple or len(shape.elements) < 2:
        raise ArgumentError(f"the result of {opcode} is ((operands), result, contexts..), got {shape}")
    thread = texts.pop("async_execution_thread", ('"main"', 0))[0].strip('"')
    # If the wrapped operation has the attribute too, the aliases are its own.
    declared = {field.text for field in declaration.fields}
    aliases = None if "output_to_operand_aliasing" in declared else texts.pop("output_to_operand_aliasing", None)
    wrapped = _wrapped(create_operation(declaration), shape.elements[1], operands, names)
    for computation in callees_first(wrapped):
        computation.execution_thread = thread
    aliasing = scan_list(Scanner(aliases[0]), scan_alias) if aliases else ()
    return AsyncStart(async_execution_thread=thread, calls=wrapped, output_to_operand_aliasing=tuple(aliasing))


def _wrapped(op: Operation, shape: Shape, operands: Sequence[Instruction], names: Collection[str]) -> Computation:
    """Returns a computation, whose name is not in `names`, that applies an operation to its parameters."""
    index = next(index for index in itertools.count() if f"async_computation.{index}" not in names)
    wrapped = Computation(f"async_computation.{index}")
    parameters = [
        wrapped.add(Instruction(f"param_{i}", operand.shape, Parameter(number=i))) for i, operand in enumerate(operands)
    ]
    wrapped.add(Instruction(f"{op.opcode}.{index}", shape, op, parameters))
    return wrapped
