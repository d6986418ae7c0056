"""Operations that repeat: most instructions of a module have the opcode and the attributes of earlier ones."""

from __future__ import annotations

import re
from typing import Final

from hloom.ops.communication import Outfeed, Receiving, Transfer
from hloom.ops.operation import Operation
from hloom.ops.structure import AfterAll, ElidedConstant
from hloom.ops.traits import Done, Start
from hloom.text.attribute_texts import FLAT_ATTRIBUTES
from hloom.text.scanner import FLAT_VALUE, OPCODE
from hloom.text.shapes import USUAL_SHAPE

FLAT_INSTRUCTION: Final = re.compile(
    rf"({USUAL_SHAPE.pattern})\s++({OPCODE.pattern})\(([^(){{}}\"]*+)\)({FLAT_ATTRIBUTES})"
    rf"(?:\s*+,\s*+metadata=({FLAT_VALUE.pattern}))?+(?=\s*+[^\s,])"
)
"""Shape, opcode, text in parentheses, attributes and metadata of an instruction whose attributes do not nest."""
_OF_ITS_OWN = (AfterAll, Done, ElidedConstant, Outfeed, Receiving, Start, Transfer)
"""Types of operations that differ for the same text, or whose shape is not the one that is written."""


class RepeatedOperations:
    """Operations by the texts of `FLAT_INSTRUCTION`, which say all about them."""

    def __init__(self) -> None:
        self._with_operands: dict[tuple[str | None, ...], Operation] = {}
        """Operations by opcode and attributes."""
        self._without: dict[tuple[str | None, ...], Operation] = {}
        """Operations whose parentheses hold an attribute, by shape, opcode, parentheses and attributes."""

    def find(self, texts: re.Match[str]) -> tuple[Operation, bool] | None:
        """Returns the operation of the same texts, and whether operands are in its parentheses; None for a new one."""
        if op := self._with_operands.get(texts.group(2, 4)):
            return op, True
        op = self._without.get(texts.group(1, 2, 3, 4))
        return None if op is None else (op, False)

    def keep(self, texts: re.Match[str], op: Operation) -> None:
        """Keeps the operation of an instruction without other annotations than metadata."""
        if op.calling_fields or isinstance(op, _OF_ITS_OWN) or type(op).canonical is not Operation.canonical:
            return
        if op.payload is None:
            self._with_operands[texts.group(2, 4)] = op
        else:
            self._without[texts.group(1, 2, 3, 4)] = op
