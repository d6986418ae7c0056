"""Traits of operations: properties that passes query with `isinstance`.

An operation has its traits as base classes, so that they are declared once, with the operation:

    class Transpose(Movement, Operation, opcode="transpose"): ...

    if isinstance(instruction.op, Movement): ...

Further properties are class variables of `Operation`, such as `elementwise` and `cost`, and the base classes `Monoid`
and `Collective`. Prior art: traits in MLIR and xDSL.
"""

from __future__ import annotations

from typing import Any, ClassVar


class NoWork:
    """Computes no element, and moves none in memory: tuple, bitcast, get-dimension-size, async-done .."""


class Structural(NoWork):
    """Names, groups or orders values without computing: parameter, constant, tuple, get-tuple-element, after-all .."""


class Identity:
    """Returns the first operand unchanged: copy, opt-barrier, domain, add-dependency."""


class Movement:
    """Moves elements, bit for bit, from operands to the result: transpose, slice, pad, gather, bitcast .."""

    moved_operands: ClassVar[int | None] = 1
    """Number of leading operands whose elements are moved; None for all."""


class View(Movement, NoWork):
    """Moves no element in memory: the row-major order of operand and result is the same, as in reshape and bitcast."""

    cost = 0
    mixes_precision = False


class Update:
    """Returns the first operand with a part replaced, or combined with other values: dynamic-update-slice, scatter."""


class CallLike:
    """Runs computations on whole values: call, while, conditional, fusion, async-start."""

    mixes_precision = False


class ControlFlow(CallLike):
    """Runs computations instruction by instruction, as parts of the program: call, while, conditional."""


class AppliesScalar:
    """Applies computations to elements: map, reduce, reduce-window, scatter, sort, all-reduce .."""


class Reduction(AppliesScalar):
    """Combines elements of the operands by a computation, starting from initial values: reduce, reduce-window."""


class Communication:
    """Exchanges arrays with other devices of a group: all-reduce, all-gather, collective-permute .."""


class Asynchronous:
    """Is part of an operation that runs beside others: a start, an update or a done."""

    is_pinned = True
    pairing_clause: ClassVar[str] = "GEN-2"
    """The clause that says which start and done belong together."""


class Start(Asynchronous):
    """Starts a communication or a copy; its only user, the `done`, waits for the end: copy-start, send, recv ..

    Not so async-start, which runs a computation, and whose context may pass through async-updates.
    """

    opcode: ClassVar[str]
    done: ClassVar[type[Done]]
    has_side_effect: ClassVar[bool]


class Done(Asynchronous):
    """Waits for what the operation that made its context, the `start`, began: copy-done, send-done, recv-done .."""

    opcode: ClassVar[str]
    start: ClassVar[type[Start]]
    has_side_effect: ClassVar[bool]

    def __init_subclass__(cls, start: type[Start] | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if start is not None:
            cls.start, start.done = start, cls
            # A start that must stay needs its done.
            cls.has_side_effect = start.has_side_effect


class DeviceIndex(NoWork):
    """Returns the index of the device in a dimension of the device assignment: replica-id, partition-id."""


class Linear:
    """Is linear in its operands together: the result for sums of operands is the sum of the results."""
